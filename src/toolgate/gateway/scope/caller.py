"""Who asks, and for what: the key under which a scope is compiled and cached."""

import math
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from toolgate.model.principals import Principal
from toolgate.model.snapshot import Snapshot
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.rollouts import draw_versions
from toolgate.policy.scope import Scope

Mode = Literal["list", "find"]
"""How the tools of a scope are shown: one by one, or by three tools that find and call them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal with what it asks for now. Hashable: equal callers share one compiled view."""

    principal: Principal
    task_id: str | None = None
    request: SessionRequest = field(default_factory=SessionRequest)
    only_server: str | None = None
    """Set on a single-server path: names are bare there."""
    mode: Mode = "list"

    @property
    def effective_task_id(self) -> str | None:
        """The task that applies: the one asked for, else the key's own."""
        return self.task_id or self.principal.default_task

    def platform(self, snapshot: Snapshot, task: TaskPolicy | None) -> Snapshot:
        """`snapshot` with the versions of profiles that the caller has while they are rolled out."""
        return draw_versions(snapshot, self.principal.id, task=task, request=self.request)

    def mode_of(self, scope: Scope) -> Mode:
        """How the tools of its scope are shown: too many to list are to be found."""
        return "find" if scope.is_searchable else self.mode


class Trace(msgspec.Struct, frozen=True, gc=False):
    """Where a call came in, for the audit."""

    door: str
    session: str = ""
    request_id: str = ""
    round: int = 0
    """Of a call in which its server asked its client something: how often it was sent before."""
    trace_id: str = ""
    """Of the OpenTelemetry trace it is part of; empty while nothing is traced."""
    deadline_s: float = math.inf
    """When its caller gives it up, by the loop's clock: what is cancelled then has timed out."""
