"""The shape of a profile: a selection of servers and tools, and its next version during a rollout."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field, model_validator

from toolgate.model.tasks import Environment, Profile, Rollout, RolloutBy, Selection
from toolgate.registry.records.fields import Name, Patterns, ServerId, Tag, refuse
from toolgate.registry.records.server_bodies import Body, tuple_or_none

MAX_VERSION: Final = 2**31 - 1
"""What every client of the APIs can hold."""


class SelectionBody(Body):
    """Servers and tools. A list left out does not restrict; an empty one lets nothing pass."""

    servers: Annotated[list[ServerId], Field(max_length=2_000)] | None = None
    """Server ids."""

    tags: Annotated[list[Tag], Field(max_length=2_000)] | None = None
    """Servers that carry any of these tags."""

    allow: Patterns | None = None
    """Patterns of which a tool must match one."""

    deny: Patterns = Field(default=[])
    """Patterns of which a tool may match none."""

    def selection(self) -> Selection:
        return Selection(
            servers=tuple_or_none(self.servers),
            tags=tuple_or_none(self.tags),
            allow=tuple_or_none(self.allow),
            deny=tuple(self.deny),
        )


class _VersionBody(SelectionBody):
    """One version of a profile's selection."""

    environments: dict[Environment, SelectionBody] = Field(default={})
    """Per environment (`dev`, `staging`, `prod`) a selection that replaces the common one."""

    def by_environment(self) -> Mapping[Environment, Selection]:
        return MappingProxyType({name: body.selection() for name, body in self.environments.items()})


class RolloutBody(_VersionBody):
    """The next version of a profile, for a share of callers or tasks. The lists mean what they mean in a
    profile."""

    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] | None = None
    """Must be higher than the profile's own; one higher by default. Each version draws its share of callers
    independently."""

    share: Annotated[int, Field(ge=1, le=100)]
    """Percent of callers or tasks that have this version. A higher share adds some and takes it from none."""

    by: RolloutBy = "caller"
    """What is divided: each `caller` (key, or subject of an issuer), or each `task` with all its callers."""


class ProfileBody(_VersionBody):
    """A reusable selection of servers and tools."""

    profile_id: Name
    """Its name."""

    version: Annotated[int, Field(ge=1, le=MAX_VERSION)] = 1
    """The number of this selection, for audit and comparison."""

    rollout: RolloutBody | None = None
    """The next version, while only a share of callers has it."""

    @model_validator(mode="after")
    def _versions_rise(self) -> "ProfileBody":
        candidate = None if self.rollout is None else self.rollout.version
        if candidate is not None and candidate <= self.version:
            raise refuse(f"`rollout.version` must be higher than the profile's own, {self.version}")
        return self

    def value(self) -> Profile:
        return Profile(
            profile_id=self.profile_id,
            version=self.version,
            selection=self.selection(),
            environments=self.by_environment(),
            rollout=self._candidate(),
        )

    def _candidate(self) -> Rollout | None:
        candidate = self.rollout
        if candidate is None:
            return None
        return Rollout(
            version=candidate.version or self.version + 1,
            share=candidate.share,
            by=candidate.by,
            selection=candidate.selection(),
            environments=candidate.by_environment(),
        )
