"""What a model asks for, and what it is told."""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from toolgate.errors import InvalidArguments, ToolgateError

CallKind = Literal["function", "other"]
"""`other`: a call of a tool that is no function. It is never run here."""
MAX_ARGUMENT_BYTES: Final = 1_048_576
MAX_ARGUMENT_DEPTH: Final = 64
MAX_ARGUMENT_CONTAINERS: Final = 20_000
"""Objects and arrays: many empty ones take a reader far longer than their size says."""
INVALID_KEY: Final = "__invalid__"
"""Stands in a history before arguments that were no JSON object."""
_MAX_SHOWN: Final = 200
_MAX_NAME: Final = 64
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_CONTAINERS: Final = (dict, list)

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call in a model's reply."""

    call_id: str
    """As the model's server gave it, or made up where it gave none or gave it twice."""
    name: str
    arguments: str
    """As the model wrote them: JSON, or not."""
    kind: CallKind = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call has no result, as the model is told: structured, and always with `retryable`."""

    code: str
    message: str
    retryable: bool

    @property
    def detail(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "retryable": self.retryable}}


def call_error(exc: ToolgateError) -> CallError:
    """A failure of ours as a model is told of it."""
    return CallError(code=exc.code, message=f"{exc}. {exc.hint}", retryable=exc.retryable)


def parse_arguments(text: str) -> bytes | CallError:
    """The one JSON object that `text` is, or what the model is told of it.

    Whatever can be read in two ways, or is cut off, is refused: nothing runs with arguments that the model
    did not write.
    """
    if not text.strip():
        return _invalid("they are empty; where there are none, send `{}`")
    try:
        sent = text.encode()
        fault = _fault_of(sent)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        fault = f"they are not one whole JSON object ({exc})"
    return _invalid(fault) if fault else sent


def sendable_arguments(text: str) -> str:
    """Arguments as they may stand in a history: servers choke on their own model's words that are no JSON."""
    if not isinstance(parse_arguments(text), CallError):
        return text
    if not text.strip():
        return "{}"
    return msgspec.json.encode({INVALID_KEY: text[:_MAX_SHOWN]}).decode()


def sendable_name(name: str) -> str:
    """A name of a function as it may stand in a history, whatever a model has called."""
    return _FOREIGN.sub("_", name)[:_MAX_NAME] or "_"


def canonical(arguments: bytes) -> bytes:
    """One spelling for all that say the same, so that repeats are seen."""
    return msgspec.json.encode(_decode(arguments), order="sorted")


def _fault_of(sent: bytes) -> str | None:
    if len(sent) > MAX_ARGUMENT_BYTES:
        return f"they are longer than {MAX_ARGUMENT_BYTES} bytes"
    signs = b"".join(sent.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    if signs.count(b"{") + signs.count(b"[") > MAX_ARGUMENT_CONTAINERS:
        return f"they hold more than {MAX_ARGUMENT_CONTAINERS} objects and arrays"
    value = _decode(sent)
    if not isinstance(value, dict):
        return "they are no JSON object"
    depth, members = _measure(value)
    if depth > MAX_ARGUMENT_DEPTH:
        return f"they are nested deeper than {MAX_ARGUMENT_DEPTH} levels"
    # Outside of texts a colon stands for each member that was written; of two with one name, one is left.
    return "a name stands twice in one object" if signs.count(b":") > members else None


def _measure(value: dict[str, Any]) -> tuple[int, int]:
    """How deep objects and arrays nest in it, and how many members all its objects have."""
    depth, members = 0, 0
    level: list[Any] = [value]
    while level:
        depth += 1
        members += sum(len(one) for one in level if isinstance(one, dict))
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, _CONTAINERS)
        ]
    return depth, members


def _invalid(reason: str) -> CallError:
    return CallError(
        code=InvalidArguments.code,
        message=f"the arguments cannot be used: {reason}. Nothing was run; call again with one JSON object",
        retryable=True,
    )
