"""Who sends a request, and for what; the scope that policy composes for it, and who may know why.

Pure. An agent learns of what it may call and of nothing else: to an agent, a hidden server looks exactly like
a missing one. The other roles may read the whole registry anyway.
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


_REFUSALS: Final = {"mcp_policy_denied": PolicyDenied, "too_many_tools": TooManyTools, "not_found": NotFound}


def find_task_policy(snapshot: Snapshot, caller: Caller) -> TaskPolicy | None:
    """The policy of the caller's task. Raises NotFound, also for a task that it may not use."""
    task_id = caller.effective_task_id
    tasks = caller.principal.ceiling.tasks
    if task_id is None:
        if tasks is not None:
            raise NotFound(
                "this key is bound to tasks: name one",
                hint="use `/api/mcp/t/<task>`, or `/t/<task>/v1` for chats",
            )
        return None
    task = snapshot.tasks.get(task_id)
    if task is None or (tasks is not None and task_id not in tasks):
        raise NotFound(f"no task `{task_id}`", hint="list the tasks with `toolgate tasks list`")
    return parse_task_policy(task)


def limits_of(caller: Caller, limits: ScopeLimits) -> ScopeLimits:
    """How large the caller's scope may be. A scope that is searched has no limit."""
    return limits if caller.mode == "list" else NO_LIMITS


def compose_scope(snapshot: Snapshot, caller: Caller, limits: ScopeLimits) -> Scope:
    """The scope as policy composes it, refusals included."""
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
    asker: Principal, caller: Caller, snapshot: Snapshot, limits: ScopeLimits, *, side: Side | None = None
) -> Explanation:
    """Explain the scope of `caller`, without what `asker` may not know.

    With `side`: as if the caller had that version of every profile in a rollout. Raises Forbidden to agents.
    """
    if side is not None and not reaches(asker.role, "viewer"):
        raise Forbidden("explaining another version of a profile needs the role `viewer`")
    inputs = _scope_inputs(snapshot, caller)
    if side is not None:
        candidates = frozenset(snapshot.profiles if side == "candidate" else ())
        inputs = replace(inputs, platform=replace(snapshot, candidates=candidates))
    explanation = explain(inputs, limits=limits_of(caller, limits))
    return replace(
        explanation,
        tools=visible_decisions(explanation.tools, asker),
        servers=visible_decisions(explanation.servers, asker),
        pending=tuple(one for one in explanation.pending if can_show_server(snapshot, asker, one)),
    )


def visible_decisions(decisions: Iterable[Decision], asker: Principal) -> tuple[Decision, ...]:
    if reaches(asker.role, "viewer"):
        return tuple(decisions)
    # Agents must not learn that a rule is not enforced either.
    return tuple(replace(one, shadow=None) for one in decisions if one.allowed)


def visible_servers(snapshot: Snapshot, asker: Principal, scope: Scope) -> list[str]:
    named = {ref.server_id for ref in scope.refs}
    return [one for one in scope.servers if one in named or can_show_server(snapshot, asker, one)]


def can_show_server(snapshot: Snapshot, principal: Principal, server_id: str) -> bool:
    """Whether a server that has no tool for a principal so far may be named to it.

    To an agent only while the server's tools are unknown, and only if the key could allow one of them.
    """
    offer, allow = snapshot.servers[server_id], principal.ceiling.allow
    if reaches(principal.role, "viewer"):
        return True
    return is_unlisted(offer) and (allow is None or can_match(offer, Patterns(allow), is_deny=False))


def check_key(keys: Mapping[str, Key], principal: Principal) -> None:
    """Raises Unauthenticated if the key of a principal was revoked or changed."""
    key = keys.get(principal.id.removeprefix("key:"))
    if principal.id.startswith("key:") and (key is None or principal_of(key) != principal):
        raise credential_lapsed()


def refusal_error(refusal: Refusal) -> ToolgateError:
    exc = _REFUSALS[refusal.code](refusal.message, hint=refusal.hint)
    if isinstance(exc, PolicyDenied):
        exc.servers = refusal.servers
    return exc
