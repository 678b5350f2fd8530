"""What a model asks for, and what it is told."""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from toolgate.errors import ToolgateError

CallKind = Literal["function", "other"]
"""`other`: a call of a tool that is no function. It is never run here."""
MAX_ARGUMENT_BYTES: Final = 1_048_576
MAX_ARGUMENT_DEPTH: Final = 64

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
        if len(sent) > MAX_ARGUMENT_BYTES:
            return _invalid(f"they are longer than {MAX_ARGUMENT_BYTES} bytes")
        value = _decode(sent)
        if not isinstance(value, dict):
            return _invalid("they are no JSON object")
        if _is_deeper_than(value, MAX_ARGUMENT_DEPTH):
            return _invalid(f"they are nested deeper than {MAX_ARGUMENT_DEPTH} levels")
        json.loads(text, object_pairs_hook=_refuse_repeats)
    except _Repeated as exc:
        return _invalid(f"the name {exc} stands twice in one object")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        return _invalid(f"they are not one whole JSON object ({exc})")
    return sent


def canonical(arguments: bytes) -> bytes:
    """One spelling for all that say the same, so that repeats are seen."""
    return msgspec.json.encode(_decode(arguments), order="sorted")


class _Repeated(Exception):
    """A name that stands twice in one object."""


def _refuse_repeats(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _Repeated(ascii(name[:40]))
        seen.add(name)


def _is_deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [child for one in level for child in _children(one)]
    return any(isinstance(one, dict | list) for one in level)


def _children(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _invalid(reason: str) -> CallError:
    return CallError(
        code="mcp_invalid_arguments",
        message=f"the arguments cannot be used: {reason}. Nothing was run; call again with one JSON object",
        retryable=True,
    )
