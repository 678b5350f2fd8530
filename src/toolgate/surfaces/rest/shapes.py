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
class ReasonGiven(Shown):
    """Why something is not as it should be."""

    code: str
    """One of the error codes, or `audit_unwritable`."""
    hint: str
    """What to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAnswer(Shown):
    """Whether the gateway serves, and what."""

    status: Literal["ok", "degraded"]
    """`degraded`: it goes on as far as it can. `/readyz` says whether calls can be sent to it."""
    reasons: list[ReasonGiven]
    """Why it is degraded."""
    version: str
    revision: Revision
    """The registry revision served."""
    uptime_s: float
    servers: dict[HealthState, int] | None = None
    """How many servers are in each state that any is in: for the role `viewer` and above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyAnswer(Shown):
    """Whether the gateway answers every caller as its policy says."""

    status: Literal["ready", "not_ready"]
    reasons: list[ReasonGiven]
    """Why it is not."""
    revision: Revision


class NoBody(Body):
    """Nothing, or an empty object."""
