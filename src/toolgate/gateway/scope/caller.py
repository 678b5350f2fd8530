"""Who sends a request, and for what: the key that a scope is compiled and cached under."""

import math
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from toolgate.model.principals import Principal
from toolgate.model.tools import Snapshot
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.rollouts import draw_versions
from toolgate.policy.scope import Scope

Mode = Literal["list", "find"]
"""How the tools of a scope are shown: each one, or three tools that find and call them."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal with the scope it requests. Hashable: equal callers share one compiled view."""

    principal: Principal
    task_id: str | None = None
    request: SessionRequest = field(default_factory=SessionRequest)
    only_server: str | None = None
    """Set on a single-server path, where names have no prefix."""
    mode: Mode = "list"

    @property
    def effective_task_id(self) -> str | None:
        """The task that applies: the requested one, else the key's default."""
        return self.task_id or self.principal.default_task

    def platform(self, snapshot: Snapshot, task: TaskPolicy | None) -> Snapshot:
        """`snapshot` with the caller's versions of profiles that are in a rollout."""
        return draw_versions(snapshot, self.principal.id, task=task, request=self.request)

    def mode_of(self, scope: Scope) -> Mode:
        """How the tools of its scope are shown: too many to list are searched."""
        return "find" if scope.is_searchable else self.mode


class Trace(msgspec.Struct, frozen=True, gc=False):
    """Where a request came in, for the audit."""

    door: str
    session: str = ""
    request_id: str = ""
    round: int = 0
    """How often the request was sent before, if its server asked its client for input."""
    trace_id: str = ""
    """Of its OpenTelemetry trace; empty if tracing is off."""
    deadline_s: float = math.inf
    """When its caller gives up, by the loop's clock: a cancellation after that is a timeout."""
