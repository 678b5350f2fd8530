"""Which rows of the catalog a caller sees: those of the tools that its key lets it reach, and no others.

For servers that were listed, policy decides on what they list. For the others it decides on what the catalog
knows of them, as if they had listed that. What is hidden counts nowhere and is hinted at nowhere.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from toolgate.gateway.gateway import Gateway
from toolgate.govern.catalog_keeper import CatalogKeeper
from toolgate.model.names import ToolRef
from toolgate.model.packages import ALL_TOOLS, CatalogRow
from toolgate.model.principals import Ceiling
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, TaskPolicy, parse_task_policy
from toolgate.policy.offers import is_unlisted, may_hold
from toolgate.policy.resolve import bind_task
from toolgate.policy.rules import compiled

MAX_KEPT: Final = 64
"""Different reaches of keys that are remembered. Keys with the same share one."""

Rows = Mapping[str, tuple[CatalogRow, ...]]


@dataclass(frozen=True, slots=True)
class Visible:
    """What one caller sees of the catalog."""

    rows: Mapping[str, CatalogRow]
    """By full name, sorted by it. Nobody changes it."""
    packages: Rows
    """The same by package, both sorted."""


@dataclass(slots=True)
class Visibility:
    """What was found visible for the newest snapshot and the newest rows."""

    _of: tuple[int, int] = (-1, -1)
    _platform: Snapshot = field(default_factory=Snapshot)
    _kept: dict[Ceiling, Visible] = field(default_factory=dict)

    def of(self, gateway: Gateway, keeper: CatalogKeeper, ceiling: Ceiling) -> Visible:
        """What a key with this ceiling sees. Raises what the gateway refuses with."""
        if (obstacle := gateway.obstacle) is not None:
            raise obstacle
        newest = (gateway.snapshot.serial, keeper.count)
        if self._of != newest:
            self._kept.clear()
            self._platform = _with_catalog(gateway.snapshot, keeper.rows)
            self._of = newest
        known = self._kept.pop(ceiling, None)
        self._kept[ceiling] = found = known or _find(gateway, self._platform, ceiling, keeper.rows)
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        return found


def _with_catalog(snapshot: Snapshot, rows: Rows) -> Snapshot:
    """The snapshot as it were if servers that were not listed yet had listed what the catalog says."""
    servers = {
        server_id: _as_listed(offer, rows.get(server_id, ())) if is_unlisted(offer) else offer
        for server_id, offer in snapshot.servers.items()
    }
    return replace(snapshot, servers=MappingProxyType(servers))


def _as_listed(offer: ServerTools, rows: tuple[CatalogRow, ...]) -> ServerTools:
    # That a server could not be listed is no reason to hide what is known of it.
    tools = {
        row.tool_name: ToolDefinition(
            ref=ToolRef(row.package_id, row.tool_name), raw=b"", digest=row.digest, tokens=row.tokens
        )
        for row in rows
        if row.tool_name != ALL_TOOLS
    }
    return replace(offer, state="ready" if tools else "pending", tools=MappingProxyType(tools))


def _find(gateway: Gateway, platform: Snapshot, ceiling: Ceiling, rows: Rows) -> Visible:
    scopes = [
        compose(
            platform,
            ceiling,
            task=task,
            # All that the task allows, not only what it starts with.
            request=SessionRequest(
                servers=None if task is None else tuple(bind_task(platform, task).allowed)
            ),
            limits=replace(gateway.limits, on_too_many="find"),
        )
        for task in _tasks(platform, ceiling)
    ]
    admitted = frozenset(ref for scope in scopes for ref in scope.admitted)
    reached = frozenset(server_id for scope in scopes for server_id in scope.servers)
    unknown = {one for one in reached if _may_hold_some(platform.servers[one], ceiling)}
    packages = {
        package_id: shown
        for package_id in sorted(rows)
        if (shown := tuple(row for row in rows[package_id] if _is_shown(row, admitted, unknown)))
    }
    by_name = {row.full_name: row for shown in packages.values() for row in shown}
    return Visible(rows=dict(sorted(by_name.items())), packages=packages)


def _is_shown(row: CatalogRow, admitted: AbstractSet[ToolRef], unknown: AbstractSet[str]) -> bool:
    if row.tool_name == ALL_TOOLS:
        return row.package_id in unknown
    return (row.package_id, row.tool_name) in admitted


def _may_hold_some(offer: ServerTools, ceiling: Ceiling) -> bool:
    """Whether a server of which no tool is known may be named: it could have one that the key reaches."""
    everything = ToolRef(offer.record.server_id, ALL_TOOLS)
    return (
        is_unlisted(offer)
        and (ceiling.allow is None or may_hold(offer, compiled(ceiling.allow)))
        and compiled(ceiling.deny).first_match(everything) is None
    )


def _tasks(platform: Snapshot, ceiling: Ceiling) -> Iterator[TaskPolicy | None]:
    if ceiling.tasks is None:
        yield None
        return
    for task_id in ceiling.tasks:
        # One that nobody has written yet lets nothing through.
        if task_id in platform.tasks:
            yield parse_task_policy(platform.tasks[task_id])
