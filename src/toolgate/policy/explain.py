"""Why a scope is what it is: every registered tool, prompt and resource, in or out, by which layer and rule.

It must never have an opinion of its own: it spells out the decisions of `compose`, nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.policy.compose import compose, exclude, servers_in_question
from toolgate.policy.integrations import ALL_ON, Integrations
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.limits import DEFAULT_LIMITS, Limits
from toolgate.policy.offers import is_unlisted, offered_names
from toolgate.policy.resolve import resolve
from toolgate.policy.scope import Decision, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A scope, spelled out."""

    scope: Scope
    tools: tuple[Decision, ...]
    """Exactly one for each registered tool, prompt and resource, sorted by server and name."""
    servers: tuple[Decision, ...]
    """The servers excluded whole, and those asked for that do not exist."""
    pending: tuple[str, ...]
    """Servers in the scope whose tools are not known yet: more may come."""


def explain(
    platform: Snapshot,
    ceiling: Ceiling,
    *,
    task: TaskPolicy | None,
    request: SessionRequest,
    limits: Limits = DEFAULT_LIMITS,
    integrations: Integrations = ALL_ON,
) -> Explanation:
    """What `compose` answers for the same arguments, with a decision for every registered tool."""
    scope = compose(platform, ceiling, task=task, request=request, limits=limits, integrations=integrations)
    resolved = resolve(platform, ceiling, task=task, request=request, integrations=integrations)
    out_of_question = platform.servers.keys() - servers_in_question(platform, resolved)
    excluded = (exclude(platform.servers[server_id], resolved) for server_id in out_of_question)
    decisions = sorted(
        (*scope.decisions, *(one for one in excluded if one is not None)),
        key=lambda one: (one.server_id, one.tool or ""),
    )
    return Explanation(
        scope=scope,
        tools=tuple(tool for one in decisions for tool in _spell_out(one, platform)),
        servers=tuple(one for one in decisions if one.tool is None),
        pending=tuple(one for one in scope.servers if is_unlisted(platform.servers[one])),
    )


def _spell_out(decision: Decision, platform: Snapshot) -> Iterator[Decision]:
    """`decision` for each tool it is about: itself, or one for every tool of its server."""
    if decision.tool is not None:
        yield decision
    elif decision.server_id in platform.servers:
        for name in sorted(offered_names(platform.servers[decision.server_id])):
            yield replace(decision, tool=name)
