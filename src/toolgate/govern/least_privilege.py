"""Learning: what a task should be by what was used of it, as a plan that can be made so.

Nothing is changed here. Who agrees with the lesson applies its record, with the id of its plan.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from toolgate.errors import InvalidRequest
from toolgate.govern.audit import index_of
from toolgate.govern.changes.commit import check_drafts, warn_of_edits
from toolgate.govern.changes.impact import ChangePlan, plan_edits
from toolgate.govern.changes.pending import Draft
from toolgate.govern.changes.records import fill_in, find_record, show_body
from toolgate.govern.control import Control
from toolgate.govern.usage import FEW_CALLS, Used, by_name, day_of, plainly, read_extent
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.model.snapshot import Snapshot
from toolgate.model.tasks import Task
from toolgate.policy.layers import TaskPolicy, parse_task_policy
from toolgate.policy.learn import Lesson, encode_lesson, learn
from toolgate.policy.offers import is_unlisted
from toolgate.policy.plan import TaskChange
from toolgate.policy.resolve import bind_task
from toolgate.registry.records.codec import parse_record

_NAMED: Final = 10
"""In one warning."""


class Removed(NamedTuple):
    """Something that the task would lose."""

    ref: ToolRef
    last_ms: int | None
    """When the task used it last. None: never, as far as is known."""
    tokens: int
    """What its definition costs in each list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a task should be, and what that would do."""

    since_ms: int
    begins_ms: int | None
    """When what is known begins."""
    calls: int
    kept: Mapping[ToolRef, Used]
    removed: Sequence[Removed]
    tokens_saved: int
    """In each list of callers who ask for nothing in particular."""
    lesson: Lesson
    record: Mapping[str, Any]
    """The task as it should be, to be applied."""
    plan: ChangePlan
    revision: int
    warnings: Sequence[str]
    """Of how much is known, and of what the lesson leaves out."""
    plan_warnings: Sequence[str]


async def learn_task(
    control: Control, actor: Principal, task_id: str, *, since_ms: int, may_be_empty: bool
) -> Learned:
    """The least that the task should be by what was used since. Raises InvalidRequest where that is nothing.

    Calls of other tasks, and of callers without one, do not count.
    """
    stored = await find_record(control, "task", task_id)
    index, served = index_of(control), control.gateway.snapshot
    async with index.counting:
        used = by_name(await index.uses("task_id", since_ms=since_ms, holder=task_id))
        extent, gaps = await read_extent(index, since_ms=since_ms, until_ms=control.clock_ms())
    recent = {ref: one for ref, one in used.items() if one.calls}
    task = parse_record("task", task_id, stored.body)
    assert isinstance(task, Task)
    policy = parse_task_policy(task)
    lesson = await asyncio.to_thread(learn, served, policy, set(plainly(recent)))
    if not lesson.kept and not may_be_empty:
        raise _nothing_used(task_id, since_ms)
    record = show_body("task", fill_in(stored))
    record["config"] = dict(encode_lesson(task.config, policy, lesson.policy))
    draft = Draft(kind="task", id=task_id, sent=record, is_declared=True)
    edits, listing = await check_drafts(control, actor, [draft])
    plan = await plan_edits(control, edits)
    change = next((one for one in plan.tasks if one.task_id == task_id), TaskChange(task_id=task_id))
    calls = sum(one.calls for one in recent.values())
    return Learned(
        since_ms=since_ms,
        begins_ms=extent.begins_ms,
        calls=calls,
        kept={ref: recent[ref] for ref in lesson.kept if ref in recent},
        removed=[_removed(served, ref, used) for ref in change.reach_removed],
        tokens_saved=_tokens(served, change.removed) - _tokens(served, change.added),
        lesson=lesson,
        record=record,
        plan=plan,
        revision=listing.revision,
        warnings=[*gaps, *_few(calls), *_remarks(served, policy, lesson)],
        plan_warnings=await warn_of_edits(served, edits),
    )


def _nothing_used(task_id: str, since_ms: int) -> InvalidRequest:
    return InvalidRequest(
        f"nothing that task `{task_id}` still has was used since {day_of(since_ms)}:"
        " the least policy would deny everything",
        hint="look further back, or ask for that too: `--deny-all`, or `deny_all=true`",
    )


def _removed(platform: Snapshot, ref: ToolRef, used: Mapping[ToolRef, Used]) -> Removed:
    known = used.get(ref)
    return Removed(ref, None if known is None else known.last_ms, _tokens(platform, [ref]))


def _tokens(platform: Snapshot, refs: Iterable[ToolRef]) -> int:
    """What the definitions of those that are tools cost."""
    offers = ((platform.servers.get(ref.server_id), ref.name) for ref in refs)
    found = (offer.tools.get(name) for offer, name in offers if offer is not None)
    return sum(tool.tokens for tool in found if tool is not None)


def _few(calls: int) -> Iterable[str]:
    if calls < FEW_CALLS:
        yield f"fewer than {FEW_CALLS} calls are known: what is needed rarely may not be among them"


def _remarks(platform: Snapshot, policy: TaskPolicy, lesson: Lesson) -> Iterable[str]:
    """What whoever agrees to a lesson should know of it."""
    bound = bind_task(platform, policy).allowed & platform.servers.keys()
    unlisted = sorted(one for one in bound if is_unlisted(platform.servers[one]))
    refused = [f"`{one.server_id}/{one.tool}` by {one.rule}" for one in lesson.refused]
    found = {
        "let through because it was used, though the rules of the task would deny it": _quoted(lesson.anew),
        "left out, because it would deny what was used": lesson.dropped,
        "too much was used to name each, so all of it is let through": _quoted(lesson.widened),
        "was used and is refused by now, and stays so": refused,
        "was used and is not there any more": _quoted(lesson.gone),
        "what it offers is not known now, so what would be lost of it is not shown": _quoted(unlisted),
    }
    yield from (f"{what}: {_listed(names)}" for what, names in found.items() if names)
    if not policy.enforced:
        yield "the task would be enforced; requests that name servers it does not allow would be refused"


def _quoted(names: Iterable[object]) -> list[str]:
    return [f"`{one}`" for one in names]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
