"""What a record may show: everything but secrets. Every answer and log line that shows one passes here first;
nothing here ever resolves a reference.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from toolgate.model.names import REFERENCE
from toolgate.model.revisions import Body, Kind
from toolgate.redaction.random_words import random_spans
from toolgate.redaction.secret_names import looks_secret
from toolgate.redaction.shapes import MASK, hides_word, redact_commands, redact_shapes, redact_statements

MAX_COMMAND: Final = 1_024
"""Characters of a command line that is shown as one text."""

# These are searched for in the texts of strangers: none may begin at every character of a word and read on to
# its end.
_SCHEME_AND_REFERENCE = re.compile(rf"(?:(?i:Bearer|Basic|Token) )?{REFERENCE.pattern}")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
# What is no port behind the first colon may be a password with characters that should have been encoded.
_URL_USERINFO = re.compile(
    r"""(?<![\w+.-])([\w+.-]*://)(?:[^/?#\s@]*+|[^/?#\s@:]*+:(?!\d{1,5}[/?#])[^\s@"'<>]{1,64}+)@"""
)
# A name, and what parts it from its value: `name=value` in a URL, `name = 'value'` in a connection string,
# `"name": "value"` in JSON. What follows is not read along, for it may be `url=https://host/?token=…`.
_SEPARATOR = r"""\]?\s{0,2}=\s{0,2}["']?|\\{0,3}["']\s{0,8}:\s{0,8}\\{0,3}["']?"""
_PAIR = re.compile(rf"(?<![\w.-])(--?)?([A-Za-z_][\w.-]*)(?:{_SEPARATOR})")
# Also `Name: value` of a header, `--name value` of a command, `NAME 'value'` of a statement.
_PROSE_PAIR = re.compile(
    rf"""(?<![\w.-])(--?)?([A-Za-z_][\w.-]*)(?:{_SEPARATOR}|:[ \t]{{0,8}}["']?|\s{{1,4}}(?(1)["']?|["']))"""
)
_QUOTED: Final = {
    '"': re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL),
}
_LINE: Final = re.compile(r"""[^\r\n"']*""")
_WORD: Final = re.compile(r"""\{[^}]*\}?|\[[^\]]*\]?|[^\s&;,"'#]*""")
_ELEMENT: Final = re.compile(r"<(?:[\w.-]{1,64}:)?([\w.-]{1,64})(?:\s[^<>]{0,256})?>(?=[^<])")
_ELEMENT_TEXT: Final = re.compile(r"[^<]*")
_ENCODED_WORD: Final = re.compile(r"[^\s\"'<>]+")
_MAX_ENCODED: Final = 3
"""So often one text may have been percent-encoded."""
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)(=|:\s*)(.*)", re.DOTALL)
_BLANK: Final = re.compile(r"\s")
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")


def redact_record(kind: Kind, body: Body) -> dict[str, Any]:
    """`body` of any kind as it may be shown."""
    if kind == "server":
        return redact_server(body)
    if kind == "chat_upstream":
        return _redact_endpoint(body, url_field="base_url")
    if kind == "key" and "sha256" in body:
        return {**body, "sha256": MASK}
    if kind == "secret":
        return {**body, "hex": MASK}
    if kind == "task" and isinstance(workload := body.get("workload"), Mapping):
        return {**body, "workload": _redact_launch(workload)}
    return dict(body)


def redact_server(body: Body) -> dict[str, Any]:
    """A server's body with every literal secret masked; references stay, they are not the secret."""
    shown = dict(body)
    if isinstance(stdio := body.get("stdio"), Mapping):
        shown["stdio"] = _redact_launch(stdio)
    if isinstance(http := body.get("http"), Mapping):
        shown["http"] = _redact_endpoint(http, url_field="url")
    return shown


def list_hidden_fields(kind: Kind, body: Body) -> list[str]:
    """Where a body holds what is masked when it is shown, such as `stdio.env.TOKEN`."""
    return list(_find_differences(body, redact_record(kind, body), ""))


def _find_differences(body: Any, shown: Any, where: str) -> Iterator[str]:
    if isinstance(body, Mapping):
        for name, value in body.items():
            yield from _find_differences(value, shown[name], f"{where}.{name}" if where else name)
    elif isinstance(body, list | tuple):
        for index, (value, look) in enumerate(zip(body, shown, strict=True)):
            yield from _find_differences(value, look, f"{where}[{index}]")
    elif body != shown:
        yield where


def _redact_launch(launch: Body) -> dict[str, Any]:
    """Of a child process or a guest: its variables and its arguments."""
    command = str(launch.get("command", ""))
    shown = dict(launch)
    if isinstance(env := launch.get("env"), Mapping):
        shown["env"] = _redact_named(env)
    if isinstance(args := launch.get("args"), list | tuple):
        shown["args"] = _redact_args(command, [str(arg) for arg in args])
    return shown


def redact_command(command: str, args: Sequence[str]) -> str:
    """A command line as a shell would be given it, without the secrets in it, on one line."""
    words = (redact_text(command), *_redact_args(command, [*args]))
    line = " ".join(shlex.join(words).split())
    return line if len(line) <= MAX_COMMAND else f"{line[:MAX_COMMAND]}…"


def _redact_endpoint(endpoint: Body, *, url_field: str) -> dict[str, Any]:
    shown = dict(endpoint)
    if isinstance(headers := endpoint.get("headers"), Mapping):
        shown["headers"] = _redact_named(headers)
    if isinstance(url := endpoint.get(url_field), str):
        shown[url_field] = _redact_random(redact_text(url))
    return shown


def _redact_named(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: _mask(str(value)) if looks_secret(name) else _redact_random(redact_text(str(value)), name)
        for name, value in values.items()
    }


def _redact_random(text: str, name: str = "") -> str:
    """`text` without words that chance has made. References stay, but not such a word as their default."""
    shown, upto = [], 0
    for found in REFERENCE.finditer(text):
        begin, end = found.span(2) if found[2] else (found.end(), found.end())
        shown += [_mask_random(text[upto : found.start()], name), text[found.start() : begin]]
        shown += [_mask_random(text[begin:end], name), text[end : found.end()]]
        upto = found.end()
    return "".join([*shown, _mask_random(text[upto:], name)])


def _mask_random(text: str, name: str) -> str:
    shown, upto = [], 0
    for start, end in random_spans(text, name):
        shown += [text[upto:start], MASK]
        upto = end
    return "".join([*shown, text[upto:]])


def _redact_args(command: str, args: list[str]) -> list[str]:
    """Masks what follows a flag like `--token`, what one like `API_KEY=…` assigns, and random words."""
    shown = []
    flag = ""
    for at, arg in enumerate(args):
        is_hidden = looks_secret(flag) or hides_word(command, args, at)
        shown.append(_mask(arg) if is_hidden else _redact_random(_redact_arg(arg), flag))
        flag = arg if _FLAG.fullmatch(arg) else ""
    return shown


def _redact_arg(arg: str) -> str:
    if assignment := _ASSIGNMENT.fullmatch(arg):
        name, sign, value = assignment.groups()
        if looks_secret(name):
            return f"{name}{sign}{_mask(value)}"
        if (inner := _ASSIGNMENT.fullmatch(value)) and looks_secret(inner[1]):
            return f"{name}{sign}{inner[1]}{inner[2]}{_mask(inner[3])}"
    return redact_text(arg)


def redact_text(text: str, *, hides: Callable[[str], bool] = looks_secret, is_said: bool = False) -> str:
    """`text` without the secrets one can tell by their name, their shape, or their place in a URL.

    `is_said`: also where it may be told in words, like `Token: …`, which in a message is mostly none.
    """
    return _redact(text, hides, is_said=is_said, encoded=_MAX_ENCODED)


def _redact(text: str, hides: Callable[[str], bool], *, is_said: bool, encoded: int) -> str:
    text = _URL_USERINFO.sub(rf"\1{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _redact_pairs(text, _PROSE_PAIR if is_said else _PAIR, hides)
    if is_said:
        text = redact_statements(_redact_elements(text, hides))
    text = redact_shapes(redact_commands(text))
    if encoded and "%" in text:
        decode = partial(_redact_encoded, hides=hides, is_said=is_said, encoded=encoded - 1)
        text = _ENCODED_WORD.sub(decode, text)
    return text


def _redact_encoded(word: re.Match[str], *, hides: Callable[[str], bool], is_said: bool, encoded: int) -> str:
    """A word as it came, unless something in it shows when it is decoded: then decoded, and without that."""
    if "%" not in word[0]:
        return word[0]
    plain = _BLANK.sub("+", unquote(word[0], errors="replace"))
    shown = _redact(plain, hides, is_said=is_said, encoded=encoded) if plain != word[0] else plain
    return word[0] if shown == plain else shown


def _redact_elements(text: str, hides: Callable[[str], bool]) -> str:
    """Without what stands in an XML element by the name of a secret."""
    shown, upto = [], 0
    for found in _ELEMENT.finditer(text):
        if hides(found[1]):
            shown += [text[upto : found.end()], MASK]
            value = _ELEMENT_TEXT.match(text, found.end())
            upto = found.end() if value is None else value.end()
    return "".join([*shown, text[upto:]])


def _redact_pairs(text: str, pair: re.Pattern[str], hides: Callable[[str], bool]) -> str:
    shown, upto = [], 0
    for found in pair.finditer(text):
        if found.start() >= upto and hides(found[2]):
            value = _value_after(text, found)
            shown += [text[upto : found.end()], _mask(value)]
            upto = found.end() + len(value)
    return "".join([*shown, text[upto:]])


def _value_after(text: str, name: re.Match[str]) -> str:
    sign = text[name.end(2) : name.end()]
    value = _QUOTED.get(sign[-1], _LINE if sign[0] == ":" else _WORD)
    found = value.match(text, name.end())
    return "" if found is None else found[0]


def _mask(value: str) -> str:
    """A secret's place holder. A reference is shown, but not the default in it, which may be the secret."""
    if not value or not _SCHEME_AND_REFERENCE.fullmatch(value):
        return value and MASK
    return REFERENCE.sub(lambda match: f"${{ENV:{match[1]}:-{MASK}}}" if match[2] else match[0], value)
