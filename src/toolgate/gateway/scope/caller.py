"""The caller of a request, the scope that policy composes for it, and the part of it that others may see.

Pure. An agent sees only what it may call: to an agent, a hidden server looks exactly like a missing one. The
other roles may read the whole registry.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec

from toolgate.errors import Forbidden, NotFound, PolicyDenied, ToolgateError, TooManyTools
from toolgate.gateway.auth.identity import credential_lapsed, principal_of, reaches
from toolgate.model.names import ToolRef
from toolgate.model.principals import Key, Principal
from toolgate.model.tasks import Side
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import Explanation, compose, decide_one, explain
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.patterns import Patterns
from toolgate.policy.resolve import ScopeInputs, read_integrations
from toolgate.policy.rollouts import draw_versions
from toolgate.policy.rules import can_match, is_unlisted
from toolgate.policy.scope import NO_LIMITS, Decision, Refusal, Scope, ScopeLimits

Mode = Literal["list", "find"]
"""How a scope lists its tools: each one, or three tools that find and call them."""


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
        """`snapshot` with the caller's version of each profile in a rollout."""
        return draw_versions(snapshot, self.principal.id, task=task, request=self.request)

    def mode_of(self, scope: Scope) -> Mode:
        """How the caller's scope lists its tools: too many to list are searched."""
        return "find" if scope.is_searchable else self.mode


class Trace(msgspec.Struct, frozen=True, gc=False):
    """The origin of a request, for the audit log."""

    door: str
    session: str = ""
    request_id: str = ""
    round: int = 0
    """How often the client sent the request before, because its server required input."""
    trace_id: str = ""
    """The id of its OpenTelemetry trace; empty if tracing is off."""
    deadline_s: float = math.inf
    """The caller's deadline, by the loop's clock: a cancellation after it counts as a timeout."""


_REFUSALS: Final = {"mcp_policy_denied": PolicyDenied, "too_many_tools": TooManyTools, "not_found": NotFound}


def find_task_policy(snapshot: Snapshot, caller: Caller) -> TaskPolicy | None:
    """The policy of the caller's task. Raises NotFound, also for a task that the caller may not use."""
    task_id = caller.effective_task_id
    tasks = caller.principal.ceiling.tasks
    if task_id is None:
        if tasks is not None:
            raise NotFound(
                "this key is bound to tasks, and the request names no task",
                hint="use `/api/mcp/t/<task>`, or `/t/<task>/v1` for chats",
            )
        return None
    task = snapshot.tasks.get(task_id)
    if task is None or (tasks is not None and task_id not in tasks):
        raise NotFound(f"no task `{task_id}`", hint="list the tasks with `toolgate tasks list`")
    return parse_task_policy(task)


def limits_of(caller: Caller, limits: ScopeLimits) -> ScopeLimits:
    """The size limits of the caller's scope. A scope in find mode has none."""
    return limits if caller.mode == "list" else NO_LIMITS


def compose_scope(snapshot: Snapshot, caller: Caller, limits: ScopeLimits) -> Scope:
    """The scope as policy composes it, including a refusal."""
    return compose(_scope_inputs(snapshot, caller), limits=limits_of(caller, limits))


def decide(snapshot: Snapshot, caller: Caller, ref: ToolRef) -> Decision:
    """Whether the caller may use one tool, prompt or resource, listed or not."""
    return decide_one(_scope_inputs(snapshot, caller), ref)


def _scope_inputs(snapshot: Snapshot, caller: Caller) -> ScopeInputs:
    task = find_task_policy(snapshot, caller)
    platform, principal = caller.platform(snapshot, task), caller.principal
    own = read_integrations(platform, principal)
    return ScopeInputs(platform, principal.ceiling, task, caller.request, own)


def explain_for(
    reader: Principal, caller: Caller, snapshot: Snapshot, limits: ScopeLimits, *, side: Side | None = None
) -> Explanation:
    """Explain the scope of `caller` to `reader`, without what the reader may not see.

    With `side`, as if the caller had that version of every profile in a rollout. Raises Forbidden to agents.
    """
    if side is not None and not reaches(reader.role, "viewer"):
        raise Forbidden("only the role `viewer` or above may explain another version of a profile")
    inputs = _scope_inputs(snapshot, caller)
    if side is not None:
        candidates = frozenset(snapshot.profiles if side == "candidate" else ())
        inputs = replace(inputs, platform=replace(snapshot, candidates=candidates))
    explanation = explain(inputs, limits=limits_of(caller, limits))
    return replace(
        explanation,
        tools=visible_decisions(explanation.tools, reader),
        servers=visible_decisions(explanation.servers, reader),
        pending=tuple(one for one in explanation.pending if can_show_server(snapshot, reader, one)),
    )


def visible_decisions(decisions: Iterable[Decision], reader: Principal) -> tuple[Decision, ...]:
    if reaches(reader.role, "viewer"):
        return tuple(decisions)
    # Agents must not see which rules are in shadow mode, either.
    return tuple(replace(one, shadow=None) for one in decisions if one.allowed)


def visible_servers(snapshot: Snapshot, reader: Principal, scope: Scope) -> list[str]:
    named = {ref.server_id for ref in scope.refs}
    return [one for one in scope.servers if one in named or can_show_server(snapshot, reader, one)]


def can_show_server(snapshot: Snapshot, principal: Principal, server_id: str) -> bool:
    """Whether a principal may see the name of a server that has no tool for it so far.

    An agent may only while the server's tools are unknown, and only if its key could allow one of them.
    """
    offer, allow = snapshot.servers[server_id], principal.ceiling.allow
    if reaches(principal.role, "viewer"):
        return True
    return is_unlisted(offer) and (allow is None or can_match(offer, Patterns(allow), is_deny=False))


def check_key(keys: Mapping[str, Key], principal: Principal) -> None:
    """Raises Unauthenticated if a principal's key was revoked or changed."""
    key = keys.get(principal.id.removeprefix("key:"))
    if principal.id.startswith("key:") and (key is None or principal_of(key) != principal):
        raise credential_lapsed()


def refusal_error(refusal: Refusal) -> ToolgateError:
    exc = _REFUSALS[refusal.code](refusal.message, hint=refusal.hint)
    if isinstance(exc, PolicyDenied):
        exc.servers = refusal.servers
    return exc
