"""Sets of changes: plan their effect, or apply all of them in one transaction.

`plan` changes nothing. `apply` makes all changes or none; with the id of a plan, only with the planned
effect.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from toolgate import errors
from toolgate.govern.changes.commit import (
    CommittedChange,
    PlannedChange,
    commit_changes,
    list_needed_modules,
    plan_changes,
)
from toolgate.govern.changes.history import build_rollback
from toolgate.govern.changes.permissions import find_record_within
from toolgate.govern.changes.records import PendingChange, RecordEdit
from toolgate.govern.control import Control
from toolgate.model.principals import Principal
from toolgate.model.revisions import Kind
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.codec import DiffOperation, FieldDiff, diff_fields, parse_id
from toolgate.registry.records.fields import field_error
from toolgate.registry.records.transaction import RecordKey
from toolgate.surfaces.rest.data_plane.scopes import RefusalShown
from toolgate.surfaces.rest.framework.request import PLAN_HEADER, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.surfaces.rest.framework.routing import post

WRITE_ERRORS: Final = (
    errors.InvalidRecord,
    errors.Conflict,
    errors.PlanRequired,
    errors.PlanOutdated,
    errors.StorageFailed,
)
WRITE: Final[dict[str, Any]] = {"headers": (PLAN_HEADER,), "errors": WRITE_ERRORS}
"""The options of endpoints that make changes and accept the id of a plan."""
MAX_CHANGES: Final = 5_000  # the maximum number of records of a kind

ChangedKind = Literal["server", "task", "profile", "pin", "chat_upstream"]
RecordSent = Annotated[
    dict[str, Any] | None, Field(description="The new body of the record. Null: delete the record.")
]


class ChangeSent(StrictBody):
    """The desired state of one record."""

    kind: ChangedKind
    id: str
    """The id of the record."""
    body: RecordSent


class ChangeSetSent(StrictBody):
    """The desired state of records. All of them are changed or none; records that match already stay."""

    changes: Annotated[list[ChangeSent], Field(max_length=MAX_CHANGES)]
    """Each record at most once."""
    prune: bool = False
    """Also delete every server, task, profile and chat upstream that is not listed and comes from no registry
    file and no package."""

    @model_validator(mode="after")
    def _each_once(self) -> "ChangeSetSent":
        _reject_duplicates(self.changes)
        return self


class ApplySent(ChangeSetSent):
    """Changes to make in one transaction."""

    plan: Annotated[str, Field(max_length=200)] | None = None
    """The id of a plan. The changes are made only if their effect equals the plan."""


class PlanSent(StrictBody):
    """Changes to plan: one record (`kind`, `id`, and `body` or `revision`), or a set of changes."""

    kind: ChangedKind | None = None
    id: str | None = None
    """The id of the record."""
    body: RecordSent = None
    revision: Annotated[int, Field(ge=0)] | None = None
    """Instead of `body`: plan the rollback of the record to this revision."""
    changes: Annotated[list[ChangeSent], Field(max_length=MAX_CHANGES)] | None = None
    """Each record at most once."""
    prune: bool = False
    """As in `apply`."""

    @model_validator(mode="after")
    def _one_or_many(self) -> "PlanSent":
        sent = self.model_fields_set
        what = "body" if self.revision is None else "revision"
        is_one = sent == {"kind", "id", what} and None not in (self.kind, self.id)
        is_set = self.changes is not None and sent <= {"changes", "prune"}
        if not (is_one or is_set):
            raise field_error("send `kind`, `id`, and `body` or `revision`; or `changes` and `prune`")
        _reject_duplicates(self.changes or [])
        return self


def _reject_duplicates(changes: list[ChangeSent]) -> None:
    if len({(one.kind, one.id) for one in changes}) < len(changes):
        raise field_error("`changes` has a duplicate record")


class ChangeShown(ResponseShape, frozen=True, kw_only=True):
    """One record that was or would be changed."""

    operation: DiffOperation
    kind: Kind
    id: str
    fields: list[FieldDiff]


def show_edits(edits: Iterable[RecordEdit]) -> list[ChangeShown]:
    """Changes as responses show them, sorted by kind and id."""
    found = sorted((edit for edit in edits if edit.has_effect), key=lambda edit: edit.change.key)
    return [
        ChangeShown.of(
            edit.change,
            operation="added" if edit.before is None else "removed" if edit.body is None else "changed",
            fields=diff_fields(edit.change.kind, edit.body_before, edit.body),
        )
        for edit in found
    ]


class TaskPlan(ResponseShape, frozen=True, kw_only=True):
    """The effect of a change on one task, or with null on callers without a task. Tools are `server/tool`."""

    task_id: str | None
    added: list[str]
    """For callers without a selection."""
    removed: list[str]
    reach_added: list[str]
    """What a request could newly reach by naming servers."""
    reach_removed: list[str]
    refusal: RefusalShown | None
    """Why requests would be denied as a whole after the change."""
    problem: str | None
    """Why the config of the task would be invalid after the change."""
    share: float
    """The percentage of the task's callers. During a rollout of the task's profile, a task may have several
    entries."""


class PlanResponse(ResponseShape, frozen=True, kw_only=True):
    """The effect of changes on each task. Nothing has been changed."""

    id: str
    """Identifies the changes and their effect. Send it with the change: if either differs, the change
    fails."""
    revision: Revision
    """The registry revision that the plan is based on."""
    changes: list[ChangeShown]
    tasks: list[TaskPlan]
    """The affected tasks."""
    unchanged: int
    """The number of unaffected tasks."""
    unlisted: list[str]
    """Servers among the changes whose tools are unknown: the plan cannot show what they add."""
    warnings: list[str]


async def show_plan(planned: PlannedChange) -> PlanResponse:
    """A plan as the API shows it. In a thread: it may have thousands of records."""
    plan, tasks = planned.plan, []
    for one in plan.tasks:
        names = ("added", "removed", "reach_added", "reach_removed")
        refs = {name: list(map(str, getattr(one, name))) for name in names}
        tasks.append(TaskPlan.of(one, **refs, refusal=one.refusal_after, problem=one.problem_after))
    changes = await asyncio.to_thread(show_edits, plan.edits)
    return PlanResponse.of(planned, plan, changes=changes, tasks=tasks)


class ApplyResponse(ResponseShape, frozen=True, kw_only=True):
    """The changes of one transaction. Empty if all records matched already."""

    revision: Revision
    changes: list[ChangeShown]
    warnings: list[str]


async def show_commit(done: CommittedChange) -> ApplyResponse:
    """A commit as the API shows it. In a thread: it may have thousands of records."""
    return ApplyResponse.of(done, changes=await asyncio.to_thread(show_edits, done.edits))


_PLAN_ERRORS: Final = (errors.InvalidRecord, errors.NotFound, errors.Compacted)


@post("/admin/api/plan", "viewer", "Plan changes", errors=_PLAN_ERRORS)
async def show_change_plan(control: Control, call: RestCall[PlanSent]) -> PlanResponse:
    """The effect that changes of records would have on each task: writes, rollbacks and, with a null body,
    deletions.

    Nothing is changed. A change with the id of its plan is made only with the planned effect.
    """
    drafts = await _parse_plan_drafts(control, call.caller, call.body)
    planned = await plan_changes(control, call.caller, drafts, prune=call.body.prune)
    modules = await list_needed_modules(control, planned.plan.edits)
    missing = [
        f"task `{edit.change.id}`, `workload.module`: module `{edit.new_module}` is not uploaded"
        for edit in planned.plan.edits
        if edit.new_module not in {None, *modules}
    ]
    return await show_plan(replace(planned, warnings=[*missing, *planned.warnings]))


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


@post("/admin/api/apply", "publisher", "Apply several changes", **WRITE)
async def apply_changes(control: Control, call: RestCall[ApplySent]) -> ApplyResponse:
    """Change records to their desired state: all of them or none."""
    sent, drafts = call.body, _parse_drafts(call.body.changes)
    plan_id = sent.plan if sent.plan is not None else call.plan_id
    return await show_commit(
        await commit_changes(control, call.caller, drafts, plan_id=plan_id, prune=sent.prune)
    )


def _parse_drafts(changes: Iterable[ChangeSent]) -> list[PendingChange]:
    return [
        PendingChange(kind=one.kind, id=parse_id(one.kind, one.id), sent=one.body, is_declared=True)
        for one in changes
    ]
