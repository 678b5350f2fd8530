"""Why a scope is what it is, as far as whoever asks may know it.

An agent learns of what it may call and of nothing else: to it, a hidden server answers like one that does not
exist. The other roles read the whole registry anyway.

Calls of tools that are not known yet, because their server is starting for the first time.
"""

import time
from collections.abc import Iterable
from dataclasses import replace

from toolgate.errors import Forbidden, ServerUnavailable
from toolgate.gateway.auth.identity import reaches
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.model.principals import Principal
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Side
from toolgate.policy.explain import Explanation, explain
from toolgate.policy.patterns import Patterns
from toolgate.policy.resolve import read_integrations
from toolgate.policy.rules import can_match, is_unlisted
from toolgate.policy.scope import Decision, Scope
from toolgate.upstream.pool.health import describe_slow_start


def explain_for(
    gateway: Gateway, asker: Principal, caller: Caller, *, side: Side | None = None
) -> Explanation:
    """The scope of `caller` spelled out, without what is not for `asker`. May be asked in a thread.

    With `side`: as if the caller had that version of every profile in a rollout. Raises Forbidden to agents.
    """
    if side is not None and not reaches(asker.role, "viewer"):
        raise Forbidden("explaining another version of a profile needs the role `viewer`")
    snapshot, task = gateway.snapshot, gateway.task_policy(caller)
    found = explain(
        caller.platform(snapshot, task) if side is None else _with_versions(snapshot, side),
        caller.principal.ceiling,
        task=task,
        request=caller.request,
        limits=gateway.limits_of(caller),
        integrations=read_integrations(snapshot, caller.principal),
    )
    return replace(
        found,
        tools=visible_decisions(found.tools, asker),
        servers=visible_decisions(found.servers, asker),
        pending=tuple(one for one in found.pending if can_show_server(snapshot, asker, one)),
    )


def _with_versions(snapshot: Snapshot, side: Side) -> Snapshot:
    return replace(snapshot, candidates=frozenset(snapshot.profiles if side == "candidate" else ()))


def visible_decisions(decisions: Iterable[Decision], asker: Principal) -> tuple[Decision, ...]:
    """Those that are for `asker`."""
    if reaches(asker.role, "viewer"):
        return tuple(decisions)
    # Nor is it for an agent to know that a rule is not enforced.
    return tuple(replace(one, shadow=None) for one in decisions if one.allowed)


def visible_servers(snapshot: Snapshot, asker: Principal, scope: Scope) -> list[str]:
    """The servers of a scope that are for `asker`."""
    named = {ref.server_id for ref in scope.refs}
    return [one for one in scope.servers if one in named or can_show_server(snapshot, asker, one)]


def can_show_server(snapshot: Snapshot, principal: Principal, server_id: str) -> bool:
    """Whether a server without a tool for the caller, so far, may be named to it.

    To an agent only while its tools are not known, and only if its key allows for one of them.
    """
    offer, allow = snapshot.servers[server_id], principal.ceiling.allow
    if reaches(principal.role, "viewer"):
        return True
    return is_unlisted(offer) and (allow is None or can_match(offer, Patterns.of(allow), is_deny=False))


def check_server_started(gateway: Gateway, view: View, name: str, trace: Trace) -> None:
    """Raises ServerUnavailable where `name` can only be a tool of a server that was never listed yet.

    Never tells callers of a server that they may not know of: to them the tool is unknown.
    """
    server_id = view.caller.only_server or name.partition(".")[0]
    if name in view.routes or server_id not in view.scope.servers:
        return
    health = gateway.servers.health().get(server_id)
    if health is None or health.state != "starting":
        return
    if not can_show_server(gateway.snapshot, view.caller.principal, server_id):
        return
    gateway.record_unmade(view, name, trace=trace, code=ServerUnavailable.code)
    since_s = max(0.0, time.time() - health.since_ms / 1000)
    raise describe_slow_start(server_id, since_s, health.hint)
