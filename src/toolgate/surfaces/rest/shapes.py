"""What all shapes have in common, and those that belong to no part in particular.

Requests are pydantic models, for there bytes come in, and they are checked by them. Answers are plain
values, from which the document takes names, types and descriptions.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolgate.upstream.health import HealthState

Revision = Annotated[int, Field(ge=0)]


class Sent(BaseModel):
    """What all requests have in common: nothing is coerced, nothing unknown is taken, nothing is echoed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
        defer_build=True,
    )


class Shown:
    """What all answers have in common."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetail(Shown):
    """A failure. Programs act on the code, people on the rest."""

    code: str
    """Stable."""
    message: str
    """What happened."""
    hint: str
    """What to do next."""
    data: dict[str, Any] | None = None
    """More about it, where there is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer(Shown):
    """The one shape of every error."""

    error: ErrorDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAnswer(Shown):
    """Whether the gateway serves, and what."""

    status: Literal["ok"]
    version: str
    revision: Revision
    """The registry revision served."""
    servers: dict[HealthState, int]
    """How many servers are in each state."""
    uptime_s: float


class NoBody(Sent):
    """Nothing, or an empty object."""
