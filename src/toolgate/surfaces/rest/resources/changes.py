"""Sets of changes: what they would do, and making all of them in one transaction."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from toolgate.errors import Compacted, InvalidRecord, NotFound
from toolgate.govern.changes.commit import commit_changes, list_needed_modules, plan_changes
from toolgate.govern.changes.history import build_rollback
from toolgate.govern.changes.permissions import find_record_within
from toolgate.govern.changes.records import PendingChange
from toolgate.govern.control import Control
from toolgate.model.principals import Principal
from toolgate.registry.records.codec import parse_id
from toolgate.registry.records.transaction import RecordKey
from toolgate.surfaces.rest.framework.request import PLAN_HEADER, RestCall, validate_as
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, post
from toolgate.surfaces.rest.resources.change_shapes import (
    ApplyAnswer,
    ApplySent,
    ChangeSent,
    PlanAnswer,
    PlanSent,
    show_edits,
    show_plan,
)
from toolgate.surfaces.rest.resources.collection import WRITE_ERRORS


@post(
    "/admin/api/plan",
    "viewer",
    "Show what changes would do",
    PlanAnswer,
    body=validate_as(PlanSent),
    errors=(InvalidRecord, NotFound, Compacted),
)
async def show_change_plan(control: Control, call: RestCall[PlanSent]) -> RestResponse:
    """What changes of records would do to each task: written, taken back or, with a null body, deleted.

    Nothing is changed. A change that names its plan is made as that showed it, or not at all.
    """
    drafts = await _parse_plan_drafts(control, call.caller, call.body)
    planned = await plan_changes(control, call.caller, drafts, prune=call.body.prune)
    edits = planned.plan.edits
    modules = await list_needed_modules(control, edits)
    missing = [
        f"task `{edit.change.id}`, `workload.module`: `{edit.new_module}` is not uploaded yet"
        for edit in edits
        if edit.new_module not in {None, *modules}
    ]
    warnings = [*missing, *planned.warnings]
    return RestResponse(await show_plan(planned.plan, revision=planned.revision, warnings=warnings))


async def _parse_plan_drafts(control: Control, actor: Principal, sent: PlanSent) -> list[PendingChange]:
    if sent.changes is not None:
        return _parse_drafts(sent.changes)
    assert sent.kind is not None
    assert sent.id is not None
    record_id = parse_id(sent.kind, sent.id)
    if sent.revision is not None:
        key = RecordKey(sent.kind, record_id)
        return [await build_rollback(control, actor, key, revision=sent.revision, if_revision=None)]
    if sent.body is None:
        await find_record_within(control, actor, sent.kind, record_id)
    return [PendingChange(kind=sent.kind, id=record_id, sent=sent.body)]


@post(
    "/admin/api/apply",
    "publisher",
    "Make several changes at once",
    ApplyAnswer,
    body=validate_as(ApplySent),
    headers=(PLAN_HEADER,),
    errors=WRITE_ERRORS,
)
async def apply_changes(control: Control, call: RestCall[ApplySent]) -> RestResponse:
    """Make records what they shall be: all of them or none, and nothing where everything is so already."""
    sent = call.body
    done = await commit_changes(
        control,
        call.caller,
        _parse_drafts(sent.changes),
        plan_id=sent.plan if sent.plan is not None else call.plan_id,
        prune=sent.prune,
    )
    changes = await asyncio.to_thread(show_edits, done.edits)
    return RestResponse(ApplyAnswer(revision=done.revision, changes=changes, warnings=done.warnings))


def _parse_drafts(changes: Iterable[ChangeSent]) -> list[PendingChange]:
    return [
        PendingChange(kind=one.kind, id=parse_id(one.kind, one.id), sent=one.body, is_declared=True)
        for one in changes
    ]


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (show_change_plan, apply_changes)
