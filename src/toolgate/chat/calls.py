"""What a model asks for, and what it is told."""

from dataclasses import dataclass
from typing import Any, Literal

from toolgate.errors import ToolgateError

CallKind = Literal["function", "other"]
"""`other`: a call of a tool that is no function. It is never run here."""


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
