"""What all shapes have in common, and those that belong to no part in particular.

Requests are pydantic models, as strict as the registry's, for there bytes come in. Answers are plain values,
from which the document takes names, types and descriptions.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import fields
from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from toolgate.model.reports import HealthState
from toolgate.registry.records.server_bodies import Body

Revision = Annotated[int, Field(ge=0)]


class Shown(msgspec.Struct, frozen=True):
    """What all answers have in common. Not dataclasses: to make those took a tenth of each start."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(_described(cls))


@cache
def _described(shape: type[Shown]) -> type[object]:
    """`shape` as a dataclass at the same place: of those, what makes the document knows the fields."""
    copied = ("__annotations__", "__doc__", "__firstlineno__", "__module__", "__qualname__")
    members = {name: value for name, value in vars(shape).items() if name in copied}
    own = [one for one in fields(shape) if one.name in members.get("__annotations__", ())]
    members |= {one.name: field(default=one.default) for one in own if one.default is not NODEFAULT}
    members |= {
        one.name: field(default_factory=one.default_factory)
        for one in own
        if one.default_factory is not NODEFAULT
    }
    members["__pydantic_config__"] = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    parents = tuple(_described(one) for one in shape.__bases__ if one is not Shown)
    return dataclass(kw_only=True)(type(shape.__name__, parents, members))


class ErrorDetail(Shown, frozen=True, kw_only=True):
    """A failure. Programs act on the code, people on the rest."""

    code: str
    """Stable."""
    message: str
    """What happened."""
    hint: str
    """What to do next."""
    data: dict[str, Any] | None = None
    """More about it, where there is more."""


class ErrorAnswer(Shown, frozen=True, kw_only=True):
    """The one shape of every error."""

    error: ErrorDetail


class MetadataAnswer(Shown, frozen=True, kw_only=True):
    """Where tokens come from (RFC 9728)."""

    resource: str
    """What the metadata is of; tokens are for it."""
    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource_name: str


class ReasonGiven(Shown, frozen=True, kw_only=True):
    """Why something is not as it should be."""

    code: str
    """One of the error codes, or `audit_unwritable`."""
    hint: str
    """What to do."""


class HealthAnswer(Shown, frozen=True, kw_only=True):
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


class ReadyAnswer(Shown, frozen=True, kw_only=True):
    """Whether the gateway answers every caller as its policy says."""

    status: Literal["ready", "not_ready"]
    reasons: list[ReasonGiven]
    """Why it is not."""
    revision: Revision


class NoBody(Body):
    """Nothing, or an empty object."""
