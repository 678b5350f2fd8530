"""Masks every secret in registry records for display, and restores masks that come back in a change.

Every response and log line that shows a record passes `redact_record` first. Nothing here resolves a
reference. A client that reads a record, changes a field and sends it again loses nothing: `restore_hidden`
puts the stored values back. A mask without a stored value is rejected. A mask in a place that hides nothing
is rejected, too: there the value would be shown to a caller who may only read.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.names import REFERENCE
from toolgate.model.revisions import Body, Kind
from toolgate.redaction.random_words import random_spans
from toolgate.redaction.shapes import MASK, hides_word, looks_secret, mask_spans, mask_value, redact_text

MAX_COMMAND: Final = 1_024  # characters of a command line that is shown as one text: a few lines of a log
HIDING: Final[Mapping[Kind, Sequence[str]]] = {
    "server": ("stdio", "http"),
    "chat_upstream": ("base_url", "headers"),
    "task": ("workload",),
}
"""The members with hidden values. Elsewhere `***` is plain text: a pattern, a title."""

_ASSIGNMENT: Final = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)(=|:\s*)(.*)", re.DOTALL)
_FLAG: Final = re.compile(r"--?[A-Za-z][\w-]*")


def redact_record(kind: Kind, body: Body) -> dict[str, Any]:
    """`body` of any kind, ready to show."""
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
    """A server's body with every literal secret masked. References stay, because they are not secrets."""
    shown = dict(body)
    if isinstance(stdio := body.get("stdio"), Mapping):
        shown["stdio"] = _redact_launch(stdio)
    if isinstance(http := body.get("http"), Mapping):
        shown["http"] = _redact_endpoint(http, url_field="url")
    return shown


def list_hidden_fields(kind: Kind, body: Body) -> list[str]:
    """The fields of a body that are masked for display, such as `stdio.env.TOKEN`."""
    return [where for where, value, look in _walk(body, redact_record(kind, body), "") if value != look]


def _walk(value: Any, look: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Each value within `value`: its place, itself, and how it looks in `look`, its redacted form."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _walk(one, _mapping(look).get(name), f"{where}.{name}" if where else name)
    elif isinstance(value, list | tuple):
        for index, (one, other) in enumerate(zip(value, _sequence(look), strict=False)):
            yield from _walk(one, other, f"{where}[{index}]")
    else:
        yield where, value, look


def _redact_launch(launch: Body) -> dict[str, Any]:
    """Redact the variables and arguments of a child process or a guest."""
    command = str(launch.get("command", ""))
    shown = dict(launch)
    if isinstance(env := launch.get("env"), Mapping):
        shown["env"] = _redact_named(env)
    if isinstance(args := launch.get("args"), list | tuple):
        shown["args"] = _redact_args(command, [str(arg) for arg in args])
    return shown


def redact_command(command: str, args: Sequence[str]) -> str:
    """A command line in shell syntax, without its secrets, on one line."""
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
        name: mask_value(str(value)) if looks_secret(name) else _redact_random(redact_text(str(value)), name)
        for name, value in values.items()
    }


def _redact_random(text: str, name: str = "") -> str:
    """`text` without random words. References stay, but not a random word as their default."""
    return mask_spans(text, _find_random(text, name))


def _find_random(text: str, name: str) -> Iterator[tuple[int, int]]:
    begin = 0
    for found in REFERENCE.finditer(text):
        yield from random_spans(text, name, begin, found.start())
        if found[2]:
            yield from random_spans(text, name, *found.span(2))
        begin = found.end()
    yield from random_spans(text, name, begin)


def _redact_args(command: str, args: list[str]) -> list[str]:
    """Mask the value after a flag like `--token`, the value of an assignment like `API_KEY=…`, and random
    words."""
    shown = []
    flag = ""
    for at, arg in enumerate(args):
        is_hidden = looks_secret(flag) or hides_word(command, args, at)
        shown.append(mask_value(arg) if is_hidden else _redact_random(_redact_arg(arg), flag))
        flag = arg if _FLAG.fullmatch(arg) else ""
    return shown


def _redact_arg(arg: str) -> str:
    if assignment := _ASSIGNMENT.fullmatch(arg):
        name, sign, value = assignment.groups()
        if looks_secret(name):
            return f"{name}{sign}{mask_value(value)}"
        if (inner := _ASSIGNMENT.fullmatch(value)) and looks_secret(inner[1]):
            return f"{name}{sign}{inner[1]}{inner[2]}{mask_value(inner[3])}"
    return redact_text(arg)


def restore_hidden(kind: Kind, sent: Body, *, shown: Body, stored: Body) -> dict[str, Any]:
    """`sent` with every mask replaced by the stored value. `shown` is the redacted form of `stored`."""
    hiding = HIDING[kind]
    restored = {
        name: _restore(value, shown.get(name), stored.get(name), name) if name in hiding else value
        for name, value in sent.items()
    }
    # A mask may not be sent in a place where its value would be shown.
    shown_again = redact_record(kind, restored)
    for name in hiding:
        for where, value, look in _walk(sent.get(name), shown_again.get(name), name):
            if isinstance(value, str) and MASK in value and value != look:
                raise _no_stored_secret(where)
    return restored


def _restore(sent: Any, shown: Any, stored: Any, where: str) -> Any:
    if isinstance(sent, dict):
        known, real = _mapping(shown), _mapping(stored)
        return {
            name: _restore(value, known.get(name), real.get(name), f"{where}.{name}")
            for name, value in sent.items()
        }
    if isinstance(sent, list):
        return _restore_list(sent, _sequence(shown), _sequence(stored), where)
    if isinstance(sent, str) and MASK in sent and sent != shown:
        raise _no_stored_secret(where)
    return stored if sent == shown else sent


def _restore_list(sent: list[Any], shown: Sequence[Any], stored: Sequence[Any], where: str) -> Sequence[Any]:
    """If elements moved, a masked one is identified by the element before it, or by its shown form alone.

    Two secrets must never change places: a mask with several candidates is rejected.
    """
    if sent == shown:
        return stored
    if not all(isinstance(value, str) for value in sent):
        return sent  # not a list of a record: its validation reports it
    by_place, by_look = defaultdict(set), defaultdict(set)
    for before, look, real in zip(("", *shown), shown, stored, strict=False):
        by_place[before, look].add(real)
        by_look[look].add(real)
    restored = list(sent)
    for index, (before, value) in enumerate(zip(("", *sent), sent, strict=False)):
        if MASK in value:
            meant = by_place.get((before, value)) or by_look[value]
            if len(meant) != 1:
                raise _no_stored_secret(f"{where}[{index}]")
            (restored[index],) = meant
    return restored


def _no_stored_secret(where: str) -> InvalidRecord:
    # A guest gets no secret of the node.
    better = "" if where.startswith("workload") else ", or better a reference to it: `${ENV:NAME}`"
    message = f"`{ascii(where[:80])[1:-1]}`: `{MASK}` is the mask of a secret, but no secret is stored here"
    return InvalidRecord(message, hint=f"send the value itself{better}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
