"""Why a scope is what it is, as far as whoever asks may know it.

An agent learns of what it may call and of nothing else: to it, a hidden server answers like one that does not
exist. The other roles read the whole registry anyway.
"""

from collections.abc import Iterable
from dataclasses import replace

from toolgate.errors import Forbidden
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.roles import reaches
from toolgate.gateway.scope.caller import Caller
from toolgate.model.principals import Principal
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Side
from toolgate.policy.explain import Explanation, explain
from toolgate.policy.integrations import integrations_of
from toolgate.policy.offers import is_unlisted, may_hold
from toolgate.policy.patterns import Patterns
from toolgate.policy.scope import Decision, Scope


def explain_to(
    gateway: Gateway, asker: Principal, caller: Caller, *, side: Side | None = None
) -> Explanation:
    """The scope of `caller` spelled out, without what is not for `asker`. May be asked in a thread.

    With `side`: as if the caller had that version of every profile in a rollout. Raises Forbidden to agents.
    """
    if side is not None and not reaches(asker.role, "viewer"):
        raise Forbidden("explaining another version of a profile needs the role `viewer`")
    snapshot, task = gateway.snapshot, gateway.task_policy(caller)
    found = explain(
        caller.platform(snapshot, task) if side is None else _on_side(snapshot, side),
        caller.principal.ceiling,
        task=task,
        request=caller.request,
        limits=gateway.limits_of(caller),
        integrations=integrations_of(snapshot, caller.principal),
    )
    return replace(
        found,
        tools=visible_decisions(found.tools, asker),
        servers=visible_decisions(found.servers, asker),
        pending=tuple(one for one in found.pending if may_show(snapshot, asker, one)),
    )


def _on_side(snapshot: Snapshot, side: Side) -> Snapshot:
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
    return [one for one in scope.servers if one in named or may_show(snapshot, asker, one)]


def may_show(snapshot: Snapshot, principal: Principal, server_id: str) -> bool:
    """Whether a server without a tool for the caller, so far, may be named to it.

    To an agent only while its tools are not known, and only if its key allows for one of them.
    """
    offer, allow = snapshot.servers[server_id], principal.ceiling.allow
    if reaches(principal.role, "viewer"):
        return True
    return is_unlisted(offer) and (allow is None or may_hold(offer, Patterns.of(allow), is_deny=False))
