"""A scope spelled out: each registered name, in or out, by which layer and rule; and a summary of it.

It repeats the decisions of `compose` and never makes one itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.policy.compose import compose, exclude_server, find_candidate_servers
from toolgate.policy.layers import SessionRequest, TaskPolicy
from toolgate.policy.resolve import ALL_ON, Integrations, resolve
from toolgate.policy.rules import is_unlisted, list_names
from toolgate.policy.scope import DEFAULT_LIMITS, Decision, Reason, Scope, ScopeLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A scope, spelled out."""

    scope: Scope
    tools: tuple[Decision, ...]
    """One for each registered tool, prompt and resource, sorted by server and name."""
    servers: tuple[Decision, ...]
    """The servers excluded whole, and the requested ones that do not exist."""
    pending: tuple[str, ...]
    """Servers in the scope that have not listed their tools."""


def explain(
    platform: Snapshot,
    ceiling: Ceiling,
    *,
    task: TaskPolicy | None,
    request: SessionRequest,
    limits: ScopeLimits = DEFAULT_LIMITS,
    integrations: Integrations = ALL_ON,
) -> Explanation:
    """The scope that `compose` returns for these arguments, with a decision for every registered tool."""
    scope = compose(platform, ceiling, task=task, request=request, limits=limits, integrations=integrations)
    resolved = resolve(platform, ceiling, task=task, request=request, integrations=integrations)
    out_of_question = platform.servers.keys() - find_candidate_servers(platform, resolved)
    excluded = (exclude_server(platform.servers[server_id], resolved) for server_id in out_of_question)
    decisions = sorted(
        (*scope.decisions, *(one for one in excluded if one is not None)),
        key=lambda one: (one.server_id, one.tool or ""),
    )
    return Explanation(
        scope=scope,
        tools=tuple(tool for one in decisions for tool in _expand_decision(one, platform)),
        servers=tuple(one for one in decisions if one.tool is None),
        pending=tuple(one for one in scope.servers if is_unlisted(platform.servers[one])),
    )


def _expand_decision(decision: Decision, platform: Snapshot) -> Iterator[Decision]:
    """`decision` for each name it is about: itself, or one for each name of its server."""
    if decision.tool is not None:
        yield decision
    elif decision.server_id in platform.servers:
        for name in sorted(list_names(platform.servers[decision.server_id])):
            yield replace(decision, tool=name)


MAX_EXCLUSIONS: Final = 64
"""Exclusions that are named. The others are counted."""


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The exclusions of one scope."""

    reasons: Mapping[Reason, int]
    named: tuple[Decision, ...]
    """The first: whole servers before single names."""
    fingerprint: int
    """Differs if what is excluded, or why, differs. Comparable within one process only."""

    @property
    def count(self) -> int:
        return sum(self.reasons.values())


def summarize_exclusions(decisions: Iterable[Decision]) -> Exclusions:
    """What `decisions` leave out.

    Rules are not in the fingerprint: they may quote errors that differ each time.
    """
    against = [one for one in decisions if one.reason is not None]
    servers = [one for one in against if one.tool is None]
    named = servers[:MAX_EXCLUSIONS]
    if len(named) < MAX_EXCLUSIONS:
        named += [one for one in against if one.tool is not None][: MAX_EXCLUSIONS - len(named)]
    return Exclusions(
        reasons=Counter(one.reason for one in against if one.reason is not None),
        named=tuple(named),
        fingerprint=hash(tuple((one.server_id, one.tool, one.reason) for one in against)),
    )
