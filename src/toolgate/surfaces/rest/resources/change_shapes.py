"""The shapes of changes: those somebody wants, those that were made, and what they would do to tasks."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from toolgate.govern.changes.impact import ChangePlan
from toolgate.govern.changes.records import RecordEdit
from toolgate.model.revisions import Kind
from toolgate.model.revisions import Operation as Written
from toolgate.policy.plan import TaskChange
from toolgate.registry.records.diff import DiffOperation, FieldDiff, diff_fields
from toolgate.registry.records.fields import field_error
from toolgate.registry.records.server_bodies import StrictBody
from toolgate.surfaces.rest.data_plane.policy_shapes import RefusalShown, show_refusal
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision

MAX_CHANGES: Final = 5_000

ChangedKind = Literal["server", "task", "profile", "pin", "chat_upstream"]
RecordSent = Annotated[
    dict[str, Any] | None, Field(description="The record as it shall be; null: it shall be gone.")
]


class ChangeSent(StrictBody):
    """One record as it shall be."""

    kind: ChangedKind
    id: str
    """Its name."""
    body: RecordSent


class ChangeSetSent(StrictBody):
    """Records as they shall be, all of them or none. What is so already is no change."""

    changes: Annotated[list[ChangeSent], Field(max_length=MAX_CHANGES)]
    """Each record once."""
    prune: bool = False
    """Also remove every server, task, profile and chat upstream that is not among them and comes from no
    registry file and no package."""

    @model_validator(mode="after")
    def _each_once(self) -> "ChangeSetSent":
        _reject_duplicates(self.changes)
        return self


class ApplySent(ChangeSetSent):
    """Changes to be made in one transaction."""

    plan: Annotated[str, Field(max_length=200)] | None = None
    """The id of the plan that showed them: refuse any other effect."""


class PlanSent(StrictBody):
    """Changes to look at: one record (`kind`, `id`, and `body` or `revision`), or a set of them."""

    kind: ChangedKind | None = None
    id: str | None = None
    """The name of the one record."""
    body: RecordSent = None
    revision: Annotated[int, Field(ge=0)] | None = None
    """In place of `body`: the record would be taken back to what it was then."""
    changes: Annotated[list[ChangeSent], Field(max_length=MAX_CHANGES)] | None = None
    """Each record once."""
    prune: bool = False
    """As when they are applied."""

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
        raise field_error("`changes` names a record twice")


class RollbackSent(StrictBody):
    """Where to go back to."""

    revision: Annotated[int, Field(ge=0)]
    """Of the registry: the record becomes what it was then."""


class FieldShown(ResponseShape, frozen=True, kw_only=True):
    """One field of a record. A secret is masked on both sides."""

    field: str
    before: Any
    after: Any


def show_fields(fields: Iterable[FieldDiff]) -> list[FieldShown]:
    """Differences as answers hold them."""
    return [FieldShown(field=one.field, before=one.before, after=one.after) for one in fields]


class ChangeShown(ResponseShape, frozen=True, kw_only=True):
    """One record that was, or would be, changed."""

    operation: DiffOperation
    kind: Kind
    id: str
    fields: list[FieldShown]


def show_edits(edits: Iterable[RecordEdit]) -> list[ChangeShown]:
    """Changes as answers hold them, sorted by kind and id."""
    found = sorted(
        (edit for edit in edits if edit.has_effect), key=lambda edit: (edit.change.kind, edit.change.id)
    )
    return [
        ChangeShown(
            operation="added" if edit.before is None else "removed" if edit.body is None else "changed",
            kind=edit.change.kind,
            id=edit.change.id,
            fields=show_fields(diff_fields(edit.change.kind, edit.body_before, edit.body)),
        )
        for edit in found
    ]


class TaskPlan(ResponseShape, frozen=True, kw_only=True):
    """What a change does to one task, or, with null, to callers without one. Tools are `server/tool`."""

    task_id: str | None
    added: list[str]
    """For callers who ask for nothing in particular."""
    removed: list[str]
    reach_added: list[str]
    """What a request could newly get by naming servers."""
    reach_removed: list[str]
    refusal: RefusalShown | None
    """Why a request would be turned down as a whole after the change."""
    problem: str | None
    """Why the task could not be read after the change."""
    share: float
    """Percent of the task's callers it is about. While the task's profile is rolled out, a task may have
    several entries."""


class PlanAnswer(ResponseShape, frozen=True, kw_only=True):
    """What changes would do to each task. Nothing has been changed."""

    id: str
    """Names the change and its effect. Who makes the change with it has it refused when either is another."""
    revision: Revision
    """Of the registry that the changes were held against."""
    changes: list[ChangeShown]
    tasks: list[TaskPlan]
    """Those that would notice."""
    unchanged: int
    """How many tasks would not."""
    unlisted: list[str]
    """Servers among the changes whose tools nobody knows yet: what they add cannot be shown."""
    warnings: list[str]


async def show_plan(plan: ChangePlan, *, revision: int, warnings: list[str]) -> PlanAnswer:
    """A plan as answers hold it. In a thread: it may be of thousands of records."""
    return PlanAnswer(
        id=plan.id,
        revision=revision,
        changes=await asyncio.to_thread(show_edits, plan.edits),
        tasks=[_show_task(one) for one in plan.tasks],
        unchanged=plan.unchanged,
        unlisted=list(plan.unlisted),
        warnings=warnings,
    )


def _show_task(change: TaskChange) -> TaskPlan:
    return TaskPlan(
        task_id=change.task_id,
        added=list(map(str, change.added)),
        removed=list(map(str, change.removed)),
        reach_added=list(map(str, change.reach_added)),
        reach_removed=list(map(str, change.reach_removed)),
        refusal=show_refusal(change.refusal_after),
        problem=change.problem_after,
        share=change.share,
    )


class ApplyAnswer(ResponseShape, frozen=True, kw_only=True):
    """What was changed, in one transaction. Nothing, where everything was so already."""

    revision: Revision
    changes: list[ChangeShown]
    warnings: list[str]


class EntryShown(ResponseShape, frozen=True, kw_only=True):
    """One change of a record, without its secrets."""

    revision: Revision
    operation: Written
    actor: str
    """Who made it."""
    at_ms: int
    fields: list[FieldShown]


class HistoryAnswer(ResponseShape, frozen=True, kw_only=True):
    """The changes of a record, newest first, as far as the log reaches."""

    revision: Revision
    """Of the registry."""
    entries: list[EntryShown]


class DiffAnswer(ResponseShape, frozen=True, kw_only=True):
    """How a record differs between two revisions of the registry."""

    revision: Revision
    """Of the registry now."""
    fields: list[FieldShown]
