"""Plans: what a change would do to each task, with an id by which it can be held to that later.

The id stands for the change and its effect. Nothing is stored: whoever makes the change with it has the
plan made again, and where it comes out otherwise the change is refused.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from toolgate.govern.changes.pending import Edit
from toolgate.govern.control import Control
from toolgate.govern.foresight import foresee
from toolgate.model.revisions import Body
from toolgate.model.servers import ServerRecord
from toolgate.policy.offers import is_unlisted
from toolgate.policy.plan import TaskChange

_encode_canonical = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """What a change would do."""

    id: str
    edits: tuple[Edit, ...]
    tasks: tuple[TaskChange, ...]
    """Whose callers would notice: of tasks, and those of the plain URL."""
    unchanged: int
    """The tasks whose callers would not."""
    unlisted: tuple[str, ...]
    """Servers among the edits whose tools nobody knows yet, so that the plan cannot show them."""


async def plan_edits(control: Control, edits: Sequence[Edit]) -> ChangePlan:
    """The effect of `edits` on what is served now. Changes nothing."""
    before = control.gateway.snapshot
    after = foresee(before, edits)
    # In a thread: a task that reaches many servers takes longer than the event loop may stand still.
    planned = await asyncio.to_thread(control.planner.plan, before, after, limits=control.gateway.limits)
    changes = planned.changes
    noticed = tuple(one for one in changes if one.has_effect)
    return ChangePlan(
        id=_identify(edits, noticed),
        edits=tuple(edits),
        tasks=noticed,
        unchanged=sum(one.task_id is not None and not one.has_effect for one in changes),
        unlisted=tuple(
            edit.record.server_id
            for edit in edits
            if isinstance(edit.record, ServerRecord) and is_unlisted(after.servers[edit.record.server_id])
        ),
    )


def _identify(edits: Sequence[Edit], effects: Sequence[TaskChange]) -> str:
    records = [
        (edit.draft.kind, edit.draft.id, edit.body_before, edit.body) for edit in edits if edit.has_effect
    ]
    seen = [
        (one.task_id, one.share, one.added, one.removed, one.reach_added, one.reach_removed)
        for one in effects
    ]
    return hashlib.sha256(_encode_canonical((sorted(records, key=_name), seen))).hexdigest()[:32]


def _name(record: tuple[str, str, Body | None, Body | None]) -> tuple[str, str]:
    return record[:2]
