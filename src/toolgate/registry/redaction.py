"""What a record may show: everything but secrets. Every answer and log line that shows one passes here first;
nothing here ever resolves a reference.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolgate.model.references import REFERENCE
from toolgate.model.revisions import Body, Kind
from toolgate.model.secret_names import looks_secret

MASK: Final = "***"

# These are searched for in the texts of strangers: none may begin at every character of a word and read on to
# its end.
# Tokens whose makers gave them a shape, so that they are known wherever they stand.
_SECRET_SHAPE = re.compile(
    r"\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,1024}\.eyJ[\w-]{8,}\.[\w-]*)"
)
_SCHEME_AND_REFERENCE = re.compile(rf"(?:(?i:Bearer|Basic|Token) )?{REFERENCE.pattern}")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_URL_USERINFO = re.compile(r"(?<![\w+.-])([\w+.-]*://)[^/?#\s@]*@")
# `name=value` in a URL or a connection string, `"name": "value"` in JSON.
_PAIR = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]*)(=|["']\s*:\s*["'])([^\s&;,"'#]+)""")
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)(=|:\s*)(.*)", re.DOTALL)
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


def hidden_fields(kind: Kind, body: Body) -> list[str]:
    """Where a body holds what is masked when it is shown, such as `stdio.env.TOKEN`."""
    return list(_differing(body, redact_record(kind, body), ""))


def _differing(body: Any, shown: Any, where: str) -> Iterator[str]:
    if isinstance(body, Mapping):
        for name, value in body.items():
            yield from _differing(value, shown[name], f"{where}.{name}" if where else name)
    elif isinstance(body, list | tuple):
        for index, (value, look) in enumerate(zip(body, shown, strict=True)):
            yield from _differing(value, look, f"{where}[{index}]")
    elif body != shown:
        yield where


def _redact_launch(launch: Body) -> dict[str, Any]:
    """Of a child process or a guest: its variables and its arguments."""
    shown = dict(launch)
    if isinstance(env := launch.get("env"), Mapping):
        shown["env"] = _redact_named(env)
    if isinstance(args := launch.get("args"), list | tuple):
        shown["args"] = _redact_args([str(arg) for arg in args])
    return shown


def _redact_endpoint(endpoint: Body, *, url_field: str) -> dict[str, Any]:
    shown = dict(endpoint)
    if isinstance(headers := endpoint.get("headers"), Mapping):
        shown["headers"] = _redact_named(headers)
    if isinstance(url := endpoint.get(url_field), str):
        shown[url_field] = redact_text(url)
    return shown


def _redact_named(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: _mask(str(value)) if looks_secret(name) else redact_text(str(value))
        for name, value in values.items()
    }


def _redact_args(args: list[str]) -> list[str]:
    """Masks what follows a flag like `--token`, and what an argument like `API_KEY=…` assigns."""
    shown = []
    is_value_of_secret = False
    for arg in args:
        shown.append(_mask(arg) if is_value_of_secret else _redact_arg(arg))
        is_value_of_secret = bool(_FLAG.fullmatch(arg)) and looks_secret(arg)
    return shown


def _redact_arg(arg: str) -> str:
    if assignment := _ASSIGNMENT.fullmatch(arg):
        name, sign, value = assignment.groups()
        if looks_secret(name):
            return f"{name}{sign}{_mask(value)}"
        if (inner := _ASSIGNMENT.fullmatch(value)) and looks_secret(inner[1]):
            return f"{name}{sign}{inner[1]}{inner[2]}{_mask(inner[3])}"
    return redact_text(arg)


def redact_text(text: str) -> str:
    """`text` without the secrets one can tell by their name, their shape, or their place in a URL."""
    text = _URL_USERINFO.sub(rf"\1{MASK}@", text)
    text = _PAIR.sub(_mask_pair, text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    return _SECRET_SHAPE.sub(MASK, text)


def _mask_pair(match: re.Match[str]) -> str:
    name, sign, value = match.groups()
    return f"{name}{sign}{_mask(value) if looks_secret(name) else value}"


def _mask(value: str) -> str:
    """A secret's place holder. A reference is shown, but not the default in it, which may be the secret."""
    if not value or not _SCHEME_AND_REFERENCE.fullmatch(value):
        return value and MASK
    return REFERENCE.sub(lambda match: f"${{ENV:{match[1]}:-{MASK}}}" if match[2] else match[0], value)
