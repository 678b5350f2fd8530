"""Decides which catalog rows a caller sees: the rows of tools that its key allows, and no others.

Policy decides on the tools that servers list. For a server that has listed nothing, it decides on the tools
in the catalog. Hidden rows never show in counts or hints.
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
from toolgate.policy.scope import NO_LIMITS, Reason

MAX_KEPT: Final = 32  # cached results; a choice: keys with the same ceiling share one

Rows = Mapping[str, tuple[CatalogRow, ...]]


class VisibleCatalog(NamedTuple):
    """The part of the catalog that one caller sees."""

    rows: Mapping[str, CatalogRow]
    """By full name, sorted. Read only."""
    packages: Rows
    """The same rows by package, both sorted."""


_ReachKey = tuple[Ceiling, frozenset[str]]
"""The key of the cache: callers with an equal one share a result. The second part: the profiles in a rollout
of which the caller has the next version."""


class _VisibilityInputs(NamedTuple):
    """The inputs of visibility."""

    snapshot: Snapshot
    rows: Rows
    changes: int
    """The change count of the rows."""

    @classmethod
    def build(cls, snapshot: Snapshot, rows: Rows, count: int) -> Self:
        """Inputs with a snapshot in which unlisted servers have the tools of their catalog rows."""
        servers = {
            server_id: _as_listed(offer, rows.get(server_id, ())) if is_unlisted(offer) else offer
            for server_id, offer in snapshot.servers.items()
        }
        return cls(replace(snapshot, servers=MappingProxyType(servers)), rows, count)

    def is_current(self, gateway: Gateway, catalog: CatalogProjection) -> bool:
        return (self.snapshot.serial, self.changes) == (gateway.snapshot.serial, catalog.count)


class CatalogVisibility:
    """Caches the rows that callers see, for the newest snapshot and rows."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._state = _VisibilityInputs(Snapshot(serial=-1), {}, -1)
        self._kept: dict[_ReachKey, VisibleCatalog] = {}
        self.lock = asyncio.Lock()
        """Held during a computation: after a change, many callers with one ceiling arrive at once."""

    async def of(self, gateway: Gateway, catalog: CatalogProjection, principal: Principal) -> VisibleCatalog:
        """The rows that this caller sees. Raises the error of a suspended gateway."""
        if (suspension := gateway.suspension) is not None:
            raise suspension
        if (known := self._recall(gateway, catalog, principal)) is not None:
            return known
        async with self.lock:
            if (known := self._recall(gateway, catalog, principal)) is not None:
                return known
            if not self._state.is_current(gateway, catalog):
                self._kept.clear()
                # Copied, because rows change while a thread reads them.
                rows, count = catalog.quality.select(catalog.rows), catalog.count
                self._state = await asyncio.to_thread(_VisibilityInputs.build, gateway.snapshot, rows, count)
            # In a thread: deciding on ten thousand tools would block the event loop.
            found = await asyncio.to_thread(_find_visible_rows, self._state, principal)
            # Uses the snapshot of the computation: versions in a rollout may have changed meanwhile.
            self._kept[_reach_of(self._state.snapshot, principal)] = found
            if len(self._kept) > self._max_kept:
                del self._kept[next(iter(self._kept))]
            return found

    def _recall(
        self, gateway: Gateway, catalog: CatalogProjection, principal: Principal
    ) -> VisibleCatalog | None:
        """The cached result, if it is current. Marks it as recently used."""
        if not self._state.is_current(gateway, catalog):
            return None
        if (reach := _reach_of(self._state.snapshot, principal)) not in self._kept:
            return None
        self._kept[reach] = known = self._kept.pop(reach)
        return known


def _as_listed(offer: ServerTools, rows: tuple[CatalogRow, ...]) -> ServerTools:
    # A server that could not list its tools is shown with its catalog rows.
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


def _find_visible_rows(state: _VisibilityInputs, principal: Principal) -> VisibleCatalog:
    ceiling = principal.ceiling
    admitted: set[ToolRef] = set()
    unknown: set[str] = set()
    for task in _ceiling_tasks(state.snapshot, ceiling):
        platform = draw_versions(state.snapshot, principal.id, task=task, request=SessionRequest())
        # All servers that the task allows, not only its default servers.
        request = SessionRequest(servers=None if task is None else tuple(bind_task(platform, task).allowed))
        scope = compose(ScopeInputs(platform, ceiling, task, request), limits=NO_LIMITS)
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
    """For a key that is bound to tasks: the task to name for each of these servers.

    It is the first task that offers a tool of the server, or else the first that may; the key's default task
    comes before others.
    """
    default, ceiling = principal.default_task, principal.ceiling
    offering: dict[str, str] = {}
    reaching: dict[str, str] = {}
    tasks = filter(None, _ceiling_tasks(gateway.snapshot, ceiling))
    for task in sorted(tasks, key=lambda one: (one.task_id != default, one.task_id)):
        platform = draw_versions(gateway.snapshot, principal.id, task=task, request=SessionRequest())
        if left := bind_task(platform, task).allowed & needed - offering.keys():
            request = SessionRequest(servers=tuple(left))
            scope = compose(ScopeInputs(platform, ceiling, task, request), limits=NO_LIMITS)
            offering |= {ref.server_id: task.task_id for ref in scope.admitted}
            reaching = dict.fromkeys(scope.servers, task.task_id) | reaching
    return reaching | offering


def _may_hold_some(platform: Snapshot, ceiling: Ceiling, task: TaskPolicy | None, server_id: str, /) -> bool:
    """Whether the caller may see a server without known tools, because its scope could include one."""
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
        # A task that does not exist allows nothing.
        if task_id in platform.tasks:
            yield parse_task_policy(platform.tasks[task_id])
