"""What is granted and not used: by task, by key, and of whole servers. Nothing is changed by asking."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolgate.audit.usage import Use
from toolgate.errors import InvalidRecord, NotFound
from toolgate.gateway.auth.identity import principal_of
from toolgate.govern.audit import index_of
from toolgate.govern.control import Control
from toolgate.govern.usage import Used, by_name, read_extent
from toolgate.model.names import ToolRef
from toolgate.model.quotas import Holder
from toolgate.model.snapshot import Snapshot
from toolgate.policy.layers import parse_task_policy
from toolgate.policy.reach import key_reach, task_reach
from toolgate.policy.unused import Grant, weigh_grant


class HolderGrant(NamedTuple):
    """What one holder is granted and does not use."""

    holder: Holder
    grant: Grant
    calls: int
    last_ms: int | None
    """When it was used at all. None: never, as far as is known."""


class IdleServer(NamedTuple):
    """A server that nobody used."""

    server_id: str
    last_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Who used what, for all that is asked for at once."""

    since_ms: int
    begins_ms: int | None
    warnings: Sequence[str]
    by_task: Mapping[str, Mapping[ToolRef, Used]]
    by_principal: Mapping[str, Mapping[ToolRef, Used]]

    def of(self, holder: Holder) -> Mapping[ToolRef, Used]:
        if holder.kind == "task":
            return self.by_task.get(holder.id, {})
        return self.by_principal.get(f"key:{holder.id}", {})


async def read_uses(control: Control, *, since_ms: int) -> Uses:
    """One look at the whole audit: others wait for their turn."""
    index = index_of(control)
    async with index.counting:
        by_task = await index.uses("task_id", since_ms=since_ms)
        by_principal = await index.uses("principal", since_ms=since_ms)
        extent, gaps = await read_extent(index, since_ms=since_ms, until_ms=control.clock_ms())
    return Uses(
        since_ms=since_ms,
        begins_ms=extent.begins_ms,
        warnings=gaps,
        by_task=_parted(by_task),
        by_principal=_parted(by_principal),
    )


def _parted(uses: Iterable[Use]) -> Mapping[str, Mapping[ToolRef, Used]]:
    parts: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        parts[use.holder].append(use)
    return {holder: by_name(part) for holder, part in parts.items()}


def find_holders(snapshot: Snapshot, *, task_id: str | None, key_id: str | None) -> list[Holder]:
    """Those that are asked about: one, or all there are, sorted. Raises NotFound.

    Keys of nodes are left out: they call no tools.
    """
    keys = {one for one, key in snapshot.keys.items() if key.role != "node"}
    if task_id is not None and task_id not in snapshot.tasks:
        raise NotFound(f"there is no task `{task_id}`", hint="list the tasks with `toolgate tasks list`")
    if key_id is not None and key_id not in keys:
        raise NotFound(f"there is no key `{key_id}`", hint="list the keys with `toolgate keys list`")
    is_one = task_id is not None or key_id is not None
    tasks = [task_id] if task_id is not None else [] if is_one else list(snapshot.tasks)
    chosen = [key_id] if key_id is not None else [] if is_one else list(keys)
    return sorted([*(Holder("task", one) for one in tasks), *(Holder("key", one) for one in chosen)], key=str)


async def weigh_holders(snapshot: Snapshot, holders: Sequence[Holder], uses: Uses) -> Sequence[HolderGrant]:
    """What each is granted and does not use. In a thread: each is composed."""
    return await asyncio.to_thread(lambda: [_weigh(snapshot, one, uses.of(one)) for one in holders])


def idle_servers(snapshot: Snapshot, uses: Uses) -> Sequence[IdleServer]:
    """The servers nobody used since, by id."""
    recent: set[str] = set()
    last_ms: dict[str, int] = {}
    for found in uses.by_task.values():
        for ref, used in found.items():
            recent |= {ref.server_id} if used.calls else set()
            last_ms[ref.server_id] = max(used.last_ms, last_ms.get(ref.server_id, 0))
    return [IdleServer(one, last_ms.get(one)) for one in sorted(snapshot.servers) if one not in recent]


def _weigh(snapshot: Snapshot, holder: Holder, used: Mapping[ToolRef, Used]) -> HolderGrant:
    return HolderGrant(
        holder=holder,
        grant=weigh_grant(
            snapshot,
            _reach(snapshot, holder),
            used={ref for ref, one in used.items() if one.calls},
            last_ms={ref: one.last_ms for ref, one in used.items()},
        ),
        calls=sum(one.calls for one in used.values()),
        last_ms=max((one.last_ms for one in used.values()), default=None),
    )


def _reach(snapshot: Snapshot, holder: Holder) -> frozenset[ToolRef]:
    if holder.kind == "key":
        return key_reach(snapshot, principal_of(snapshot.keys[holder.id]).ceiling)
    try:
        return task_reach(snapshot, parse_task_policy(snapshot.tasks[holder.id]))
    except InvalidRecord:  # it has no tools, then
        return frozenset()
