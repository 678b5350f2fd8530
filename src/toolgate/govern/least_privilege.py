"""Least privilege: the least policy of a task by its usage, and unused grants.

Reads the audit index and the snapshot, and changes nothing. A person applies the learned policy, with the id
of its plan.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.audit.index.statements import IndexExtent, ToolUse, UseColumn
from toolgate.errors import InvalidRecord, InvalidRequest, NotFound
from toolgate.gateway.auth.identity import principal_of
from toolgate.gateway.scope.routes import normalize_uri
from toolgate.govern.changes.commit import PlannedChange, plan_changes
from toolgate.govern.changes.records import PendingChange, fill_defaults, find_record, show_body
from toolgate.govern.control import Control
from toolgate.model.names import MAX_AUDITED_NAME, RESOURCE, ToolRef, kind_of
from toolgate.model.principals import Ceiling, HolderKind, Principal, QuotaHolder
from toolgate.model.tasks import Task
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import compute_key_reach, compute_task_reach
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.learn import Lesson, UnusedTool, encode_lesson, find_unused, learn
from toolgate.policy.plan import TaskChange
from toolgate.policy.resolve import bind_task
from toolgate.policy.rules import is_unlisted
from toolgate.registry.records.codec import parse_record

FEW_CALLS: Final = 20  # with fewer calls, rarely needed tools are likely to be missing
_MAX_NAMES: Final = 10  # names in one warning


class ToolUsage(NamedTuple):
    """The usage of one tool, prompt or resource."""

    calls: int
    """Calls in the queried time."""
    last_ms: int
    """In all indexed events."""


def group_by_tool(uses: Iterable[ToolUse]) -> Mapping[ToolRef, ToolUsage]:
    """The usage of all callers by tool. A name that the audit log truncated ends with `*`."""
    found: dict[ToolRef, ToolUsage] = {}
    for use in uses:
        name = f"{use.tool}*" if len(use.tool) >= MAX_AUDITED_NAME else use.tool
        ref = ToolRef(use.server_id, name)
        known = found.get(ref, ToolUsage(0, 0))
        found[ref] = ToolUsage(known.calls + use.calls, max(known.last_ms, use.last_ms))
    return found


def with_plain_uris(refs: Iterable[ToolRef]) -> Iterable[ToolRef]:
    """`refs`, and resources with their normalized URIs, too: rules match both."""
    for ref in refs:
        yield ref
        if kind_of(ref.name) == RESOURCE and (plain := normalize_uri(ref.name[len(RESOURCE) :])):
            yield ToolRef(ref.server_id, RESOURCE + plain)


async def _read_extent(control: Control, since_ms: int) -> tuple[IndexExtent, Sequence[str]]:
    """The part of the time that is indexed, with a warning for each gap."""
    extent = await control.audit_index.extent(since_ms=since_ms, until_ms=control.clock_ms())
    gaps = []
    if extent.begins_ms is None:
        gaps.append("the audit log is empty: no usage is known")
    elif extent.begins_ms > since_ms:
        gaps.append(f"the audit log begins on {format_day(extent.begins_ms)}: earlier usage is unknown")
    if extent.silent_days:
        gaps.append(
            f"{extent.silent_days} of {extent.days} days have no events:"
            " either there were no calls, or a node's log is missing"
        )
    return extent, gaps


def format_day(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):%Y-%m-%d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTool:
    """A tool, prompt or resource that was used, and stays allowed."""

    server_id: str
    tool: str
    """A tool's name, `prompt:<name>` or `resource:<uri>`."""
    calls: int
    last_used_ms: int
    is_anew: bool
    """Whether the task's current rules deny it. It was used while they were not enforced."""


class TaskLesson(msgspec.Struct, frozen=True, kw_only=True):
    """The least policy for what a task used."""

    audit_begins_ms: int | None
    """The time of the oldest kept audit event. Null if no event is kept."""
    calls: int
    kept: list[KeptTool]
    removed: list[UnusedTool]
    """What callers of the task can reach now and would lose, also by naming servers."""
    tokens_saved: int
    """Tokens saved in each list, for callers without a selection."""
    record: dict[str, Any]
    """The proposed task. Apply it with the id of `plan`."""
    warnings: list[str]


async def learn_task(
    control: Control, actor: Principal, task_id: str, *, since_ms: int, may_be_empty: bool
) -> tuple[TaskLesson, PlannedChange]:
    """Learn the least policy of a task from its usage since `since_ms`, and plan it. Raises
    InvalidRequest."""
    stored = await find_record(control, "task", task_id)
    index, served = control.audit_index, control.gateway.snapshot
    async with index.counting:
        used = group_by_tool(await index.uses("task_id", since_ms=since_ms, holder=task_id))
        extent, gaps = await _read_extent(control, since_ms)
    recent = {ref: one for ref, one in used.items() if one.calls}
    task = parse_record("task", task_id, stored.body)
    assert isinstance(task, Task)
    policy = parse_task_policy(task)
    lesson = await asyncio.to_thread(learn, served, policy, set(with_plain_uris(recent)))
    if not lesson.kept and not may_be_empty:
        raise InvalidRequest(
            f"task `{task_id}` has used none of its tools since {format_day(since_ms)}, so the least policy"
            " would deny everything",
            hint="use a longer `--since`, or confirm with `--deny-all` (REST: `deny_all=true`)",
        )
    record = show_body("task", fill_defaults(stored))
    record["config"] = dict(encode_lesson(task.config, policy, lesson.policy))
    change = PendingChange(kind="task", id=task_id, sent=record, is_declared=True)
    planned = await plan_changes(control, actor, [change])
    tasks = planned.plan.tasks
    impact = next((one for one in tasks if one.task_id == task_id), TaskChange(task_id=task_id))
    calls = sum(one.calls for one in recent.values())
    newly_allowed = set(lesson.newly_allowed)
    learned = TaskLesson(
        audit_begins_ms=extent.begins_ms,
        calls=calls,
        kept=[
            KeptTool(
                server_id=ref.server_id,
                tool=ref.name,
                calls=recent[ref].calls,
                last_used_ms=recent[ref].last_ms,
                is_anew=ref in newly_allowed,
            )
            for ref in lesson.kept
            if ref in recent
        ],
        removed=[
            UnusedTool(*ref, _count_tokens(served, [ref]), used[ref].last_ms if ref in used else None)
            for ref in impact.reach_removed
        ],
        tokens_saved=_count_tokens(served, impact.removed) - _count_tokens(served, impact.added),
        record=record,
        warnings=[*gaps, *_explain_lesson(served, policy, lesson, calls)],
    )
    return learned, planned


def _count_tokens(platform: Snapshot, refs: Iterable[ToolRef]) -> int:
    """The tokens of the definitions of `refs` that are tools."""
    offers = ((platform.servers.get(ref.server_id), ref.name) for ref in refs)
    found = (offer.tools.get(name) for offer, name in offers if offer is not None)
    return sum(tool.tokens for tool in found if tool is not None)


def _explain_lesson(platform: Snapshot, policy: TaskPolicy, lesson: Lesson, calls: int) -> Iterable[str]:
    """Warnings that a person should read before applying a learned policy."""
    if calls < FEW_CALLS:
        yield f"fewer than {FEW_CALLS} calls are known: rarely used tools may be missing"
    bound = bind_task(platform, policy).allowed & platform.servers.keys()
    unlisted = sorted(one for one in bound if is_unlisted(platform.servers[one]))
    refused = [f"`{one.server_id}/{one.tool}` by {one.rule}" for one in lesson.refused]
    found = {
        "allowed because the task used it, although its rules would deny it": _quote(lesson.newly_allowed),
        "rule left out, because it would deny a used tool": lesson.dropped,
        "the task used too many tools to name each, so all are allowed": _quote(lesson.widened),
        "the task used it, but policy denies it now, and it stays denied": refused,
        "the task used it, but it no longer exists": _quote(lesson.gone),
        "its tools are unknown, so the plan cannot show what the task loses there": _quote(unlisted),
    }
    yield from (f"{what}: {_join_names(names)}" for what, names in found.items() if names)
    if not policy.enforced:
        yield "this ends the task's shadow mode: requests for servers that it does not allow will fail"


def _quote(names: Iterable[object]) -> list[str]:
    return [f"`{one}`" for one in names]


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderGrant:
    """What a task grants, or a key allows at most, and what is unused."""

    kind: HolderKind
    id: str
    calls: int
    """The number of calls since `since_ms`."""
    last_used_ms: int | None
    """Null: never within the kept audit log."""
    granted: int
    """The number of granted tools."""
    unused: int
    unused_tokens: int
    """Estimated tokens of the unused tools in each list."""
    tools: Sequence[UnusedTool]
    """The first unused tools, by server and name. All of them if the query names one task or key."""


class UsageByHolder(NamedTuple):
    since_ms: int
    begins_ms: int | None
    warnings: Sequence[str]
    by_task: Mapping[str, Mapping[ToolRef, ToolUsage]]
    by_principal: Mapping[str, Mapping[ToolRef, ToolUsage]]

    def of(self, holder: QuotaHolder) -> Mapping[ToolRef, ToolUsage]:
        if holder.kind == "task":
            return self.by_task.get(holder.id, {})
        return self.by_principal.get(f"key:{holder.id}", {})


async def read_usage(control: Control, *, since_ms: int) -> UsageByHolder:
    """The usage by holder since `since_ms`. Scans the whole index, so one query runs at a time."""
    index = control.audit_index

    async def group(member: UseColumn) -> Mapping[str, Mapping[ToolRef, ToolUsage]]:
        parts: dict[str, list[ToolUse]] = defaultdict(list)
        for use in await index.uses(member, since_ms=since_ms):
            parts[use.holder].append(use)
        return {holder: group_by_tool(part) for holder, part in parts.items()}

    async with index.counting:
        by_task, by_principal = await group("task_id"), await group("principal")
        extent, gaps = await _read_extent(control, since_ms)
    return UsageByHolder(since_ms, extent.begins_ms, gaps, by_task, by_principal)


def find_holders(snapshot: Snapshot, *, task_id: str | None, key_id: str | None) -> list[QuotaHolder]:
    """One task or key, or all, sorted; without keys of nodes, which call no tools. Raises NotFound."""
    keys = {one for one, key in snapshot.keys.items() if key.role != "node"}
    if task_id is not None and task_id not in snapshot.tasks:
        raise NotFound(f"there is no task `{task_id}`", hint="list the tasks with `toolgate tasks list`")
    if key_id is not None and key_id not in keys:
        raise NotFound(f"there is no key `{key_id}`", hint="list the keys with `toolgate keys list`")
    is_one = task_id is not None or key_id is not None
    holders = [QuotaHolder("task", one) for one in snapshot.tasks if not is_one or one == task_id]
    holders += [QuotaHolder("key", one) for one in keys if not is_one or one == key_id]
    return sorted(holders, key=str)


async def weigh_holders(
    snapshot: Snapshot, holders: Sequence[QuotaHolder], uses: UsageByHolder, *, max_tools: int | None
) -> list[HolderGrant]:
    def weigh(holder: QuotaHolder) -> HolderGrant:
        used = uses.of(holder)
        recent = {ref for ref, one in used.items() if one.calls}
        last_ms = {ref: one.last_ms for ref, one in used.items()}
        reach = _find_reach(snapshot, holder)
        unused = find_unused(snapshot, reach, used=recent, last_ms=last_ms)
        return HolderGrant(
            kind=holder.kind,
            id=holder.id,
            calls=sum(one.calls for one in used.values()),
            last_used_ms=max(last_ms.values(), default=None),
            granted=sum(not kind_of(ref.name) for ref in reach),
            unused=len(unused),
            unused_tokens=sum(one.tokens for one in unused),
            tools=unused[:max_tools],
        )

    # In a thread: composing all their scopes would block the event loop.
    return await asyncio.to_thread(lambda: [weigh(one) for one in holders])


def find_idle_servers(snapshot: Snapshot, uses: UsageByHolder) -> Sequence[tuple[str, int | None]]:
    """The servers without any call in that time, by id, with their last use."""
    recent: set[str] = set()
    last_ms: dict[str, int] = {}
    for found in uses.by_task.values():
        for ref, used in found.items():
            recent |= {ref.server_id} if used.calls else set()
            last_ms[ref.server_id] = max(used.last_ms, last_ms.get(ref.server_id, 0))
    return [(one, last_ms.get(one)) for one in sorted(snapshot.servers) if one not in recent]


class KeyReach(msgspec.Struct, frozen=True):
    tools: int
    """The number of tools that it can reach, in any of its tasks."""
    tokens: int
    """Estimated tokens of the definitions of these tools."""
    problem: str
    """Why it can reach no tool. Empty: it can, or it is the key of a node."""


NO_REACH: Final = KeyReach(0, 0, "")


def weigh_ceiling(snapshot: Snapshot, ceiling: Ceiling) -> KeyReach:
    """What keys with this ceiling can reach. Composes the scopes of all their tasks: call it in a thread."""
    reach = [ref for ref in compute_key_reach(snapshot, ceiling) if not kind_of(ref.name)]
    problem = "" if reach else _explain_no_tools(snapshot, ceiling)
    return KeyReach(len(reach), _count_tokens(snapshot, reach), problem)


def _explain_no_tools(snapshot: Snapshot, ceiling: Ceiling) -> str:
    parts = (("task", ceiling.tasks, snapshot.tasks), ("server", ceiling.servers, snapshot.servers))
    for what, names, known in parts:
        if names is not None and not known.keys() & set(names):
            if not names:
                return f"its ceiling allows no {what}"
            return f"no {what} that its ceiling allows exists: {_join_names(_quote(names))}"
    if not any(offer.tools for offer in snapshot.servers.values()):
        return "no server has listed a tool"
    return "no tool is within both its ceiling and the policy of " + (
        "the platform" if ceiling.tasks is None else "its tasks"
    )


def _find_reach(snapshot: Snapshot, holder: QuotaHolder) -> frozenset[ToolRef]:
    if holder.kind == "key":
        return compute_key_reach(snapshot, principal_of(snapshot.keys[holder.id]).ceiling)
    try:
        return compute_task_reach(snapshot, parse_task_policy(snapshot.tasks[holder.id]))
    except InvalidRecord:  # its stored policy is invalid, so it has no tools
        return frozenset()
