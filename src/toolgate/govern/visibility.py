"""Which rows of the catalog a caller sees: those of the tools that its key reaches, and no others.

For listed servers, policy decides on what they list; for the others, on what the catalog knows of them.
Nothing hidden is counted or hinted at.
"""

import asyncio
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from toolgate.gateway.gateway import Gateway
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.model.names import ToolRef
from toolgate.model.packages import ALL_TOOLS, CatalogRow
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.tools import UNSTATED, ServerTools, Snapshot, ToolDefinition
from toolgate.policy.compose import compose, decide_one
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.resolve import ScopeInputs, bind_task
from toolgate.policy.rollouts import draw_versions, find_candidates
from toolgate.policy.rules import can_match, compile_stored, is_unlisted
from toolgate.policy.scope import Reason, Scope, ScopeLimits

MAX_KEPT: Final = 32  # cached results for different ceilings; keys with the same ceiling share one

Rows = Mapping[str, tuple[CatalogRow, ...]]


class VisibleCatalog(NamedTuple):
    """What one caller sees of the catalog."""

    rows: Mapping[str, CatalogRow]
    """By full name, sorted. Read only."""
    packages: Rows
    """The same by package, both sorted."""


_ReachKey = tuple[Ceiling, frozenset[str]]
"""What decides what a caller sees: callers with the same key share a result. The second: the profiles in a
rollout of which it has the next version."""


class _VisibilityInputs(NamedTuple):
    """What visibility is computed from."""

    snapshot: Snapshot
    rows: Rows
    changes: int
    """The change count of the rows."""

    @classmethod
    def build(cls, snapshot: Snapshot, rows: Rows, count: int) -> Self:
        """With a snapshot in which servers that were not listed yet have the tools of their catalog rows."""
        servers = {
            server_id: _as_listed(offer, rows.get(server_id, ())) if is_unlisted(offer) else offer
            for server_id, offer in snapshot.servers.items()
        }
        return cls(replace(snapshot, servers=MappingProxyType(servers)), rows, count)

    def is_current(self, gateway: Gateway, catalog: CatalogProjection) -> bool:
        return (self.snapshot.serial, self.changes) == (gateway.snapshot.serial, catalog.count)


class CatalogVisibility:
    """Caches what callers see, for the newest snapshot and the newest rows."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._state = _VisibilityInputs(Snapshot(serial=-1), {}, -1)
        self._kept: dict[_ReachKey, VisibleCatalog] = {}
        self.lock = asyncio.Lock()
        """One computation at a time: after a change, many callers with one ceiling come at once."""

    async def of(self, gateway: Gateway, catalog: CatalogProjection, principal: Principal) -> VisibleCatalog:
        """What this caller sees. Raises why the gateway is suspended."""
        if (suspension := gateway.suspension) is not None:
            raise suspension
        if (known := self._recall(gateway, catalog, principal)) is not None:
            return known
        async with self.lock:
            if (known := self._recall(gateway, catalog, principal)) is not None:
                return known
            if not self._state.is_current(gateway, catalog):
                self._kept.clear()
                # Copied: rows change while a thread looks at them.
                rows, count = catalog.quality.select(catalog.rows), catalog.count
                self._state = await asyncio.to_thread(_VisibilityInputs.build, gateway.snapshot, rows, count)
            # In a thread: deciding on ten thousand tools would block the event loop.
            found = await asyncio.to_thread(_find_visible_rows, gateway.limits, self._state, principal)
            # By the snapshot of the computation: the versions in a rollout may have changed meanwhile.
            self._kept[_reach_of(self._state.snapshot, principal)] = found
            if len(self._kept) > self._max_kept:
                del self._kept[next(iter(self._kept))]
            return found

    def _recall(
        self, gateway: Gateway, catalog: CatalogProjection, principal: Principal
    ) -> VisibleCatalog | None:
        """The cached result, if it is current. The least recently used one is dropped first."""
        if not self._state.is_current(gateway, catalog):
            return None
        if (reach := _reach_of(self._state.snapshot, principal)) not in self._kept:
            return None
        self._kept[reach] = known = self._kept.pop(reach)
        return known


def _as_listed(offer: ServerTools, rows: tuple[CatalogRow, ...]) -> ServerTools:
    # A server that could not be listed still shows what is known of it.
    tools = {
        row.tool_name: ToolDefinition(
            ref=ToolRef(row.package_id, row.tool_name),
            raw=b"",
            digest=row.digest,
            tokens=row.tokens,
            effects=row.effects,
        )
        for row in rows
        if row.tool_name != ALL_TOOLS
    }
    return replace(offer, state="ready" if tools else "pending", tools=MappingProxyType(tools))


def _reach_of(platform: Snapshot, principal: Principal) -> _ReachKey:
    is_bound = principal.ceiling.tasks is not None
    return principal.ceiling, find_candidates(platform, principal.id) if is_bound else frozenset()


def _find_visible_rows(limits: ScopeLimits, state: _VisibilityInputs, principal: Principal) -> VisibleCatalog:
    ceiling = principal.ceiling
    admitted: set[ToolRef] = set()
    unknown: set[str] = set()
    for task in _ceiling_tasks(state.snapshot, ceiling):
        platform = draw_versions(state.snapshot, principal.id, task=task, request=SessionRequest())
        # All servers that the task allows, not only its default ones.
        servers = None if task is None else tuple(bind_task(platform, task).allowed)
        scope = _compose_scope(limits, platform, ceiling, task=task, servers=servers)
        admitted.update(scope.admitted)
        unknown.update(one for one in scope.servers if _may_hold_some(platform, ceiling, task, one))

    def is_shown(row: CatalogRow) -> bool:
        if row.tool_name == ALL_TOOLS:
            return row.package_id in unknown
        return (row.package_id, row.tool_name) in admitted

    found = ((package_id, tuple(filter(is_shown, rows))) for package_id, rows in sorted(state.rows.items()))
    packages = {package_id: rows for package_id, rows in found if rows}
    named = {row.full_name: row for rows in packages.values() for row in rows}
    return VisibleCatalog(rows=dict(sorted(named.items())), packages=packages)


def find_tasks_by_server(
    gateway: Gateway, principal: Principal, needed: AbstractSet[str]
) -> Mapping[str, str]:
    """For a key that is bound to tasks: which of them to name for each of these servers.

    The first that offers something of it, or else the first that may; its default task before others.
    """
    default, ceiling, limits = principal.default_task, principal.ceiling, gateway.limits
    offering: dict[str, str] = {}
    reaching: dict[str, str] = {}
    tasks = filter(None, _ceiling_tasks(gateway.snapshot, ceiling))
    for task in sorted(tasks, key=lambda one: (one.task_id != default, one.task_id)):
        platform = draw_versions(gateway.snapshot, principal.id, task=task, request=SessionRequest())
        if left := bind_task(platform, task).allowed & needed - offering.keys():
            scope = _compose_scope(limits, platform, ceiling, task=task, servers=tuple(left))
            offering |= {ref.server_id: task.task_id for ref in scope.admitted}
            reaching = dict.fromkeys(scope.servers, task.task_id) | reaching
    return reaching | offering


def _compose_scope(
    limits: ScopeLimits,
    platform: Snapshot,
    ceiling: Ceiling,
    *,
    task: TaskPolicy | None,
    servers: tuple[str, ...] | None,
) -> Scope:
    """The scope, whatever its size."""
    inputs = ScopeInputs(platform, ceiling, task, SessionRequest(servers=servers))
    return compose(inputs, limits=replace(limits, on_too_many="find"))


def _may_hold_some(platform: Snapshot, ceiling: Ceiling, task: TaskPolicy | None, server_id: str, /) -> bool:
    """Whether a server without known tools may be named: it could have one that the caller reaches."""
    offer, everything = platform.servers[server_id], ToolRef(server_id, ALL_TOOLS)
    if (
        not is_unlisted(offer)
        or (ceiling.allow is not None and not can_match(offer, compile_stored(ceiling.allow), is_deny=False))
        or compile_stored(ceiling.deny).first_match(everything, effects=UNSTATED, is_deny=True) is not None
    ):
        return False
    request = SessionRequest(servers=(server_id,))
    decision = decide_one(ScopeInputs(platform, ceiling, task, request), everything)
    return decision.reason is not Reason.DENIED_BY_TASK


def _ceiling_tasks(platform: Snapshot, ceiling: Ceiling) -> Iterator[TaskPolicy | None]:
    if ceiling.tasks is None:
        yield None
        return
    for task_id in ceiling.tasks:
        # A task that does not exist yet allows nothing.
        if task_id in platform.tasks:
            yield parse_task_policy(platform.tasks[task_id])
