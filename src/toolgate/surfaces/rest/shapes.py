"""What all shapes have in common, and those that belong to no part in particular.

Requests are pydantic models, as strict as the registry's, for there bytes come in. Answers are plain values,
from which the document takes names, types and descriptions.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from toolgate.model.reports import HealthState
from toolgate.registry.bodies import Body

Revision = Annotated[int, Field(ge=0)]


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
class MetadataAnswer(Shown):
    """Where tokens come from (RFC 9728)."""

    resource: str
    """What the metadata is of; tokens are for it."""
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


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
    degraded: bool
    """What is served is not known to be current: what this process follows cannot be reached."""
    degraded_by: str | None = None
    """The code of the error that keeps it from that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyAnswer(Shown):
    """The gateway answers every caller as its policy says."""

    status: Literal["ready"]
    revision: Revision
    degraded: bool
    """As in `/healthz`."""


class NoBody(Body):
    """Nothing, or an empty object."""
