"""The one way in which a surface writes: check against the registry as it is, commit, take note.

A check that involves other records holds at the commit too: if anything was committed in between, it
is made again. Every write that was acknowledged stands in the audit log.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from toolgate.audit.events import AdminRecorded
from toolgate.errors import Conflict, Forbidden, InvalidRecord, NotFound, PlanOutdated
from toolgate.govern.changes.impact import lint_edits, plan_edits, predict_snapshot
from toolgate.govern.changes.pending import PendingChange, RecordEdit, parse_change
from toolgate.govern.changes.permissions import (
    check_grant,
    check_removal,
    check_writer_role,
    is_within_ceiling,
)
from toolgate.govern.changes.workloads import check_module_exists, list_needed_modules
from toolgate.govern.control import Control
from toolgate.govern.operator_policy import PLANNED_KINDS, check_operator_policy, check_plan
from toolgate.model.principals import Principal, make_choice_id
from toolgate.model.revisions import (
    ChangeBatch,
    Kind,
    RecordChange,
    RecordList,
    RecordWrite,
    StoredRecord,
    describe_kind,
)
from toolgate.model.servers import ServerRecord
from toolgate.model.snapshot import Snapshot
from toolgate.policy.admission import find_weakened_guards
from toolgate.redaction.records import HIDING, list_hidden_fields
from toolgate.registry.files.reload import source_of
from toolgate.registry.records.codec import namespace_of
from toolgate.registry.records.transaction import RecordKey, record_after

MAX_RECORDS: Final = 5_000
"""Of each kind. More than a node can serve, and few enough for every list to stay quick."""
MAX_COMMIT_ATTEMPTS: Final = 32
"""How often a check is made again when other control planes keep committing. Each attempt loses to a busy one
about every second time: with 8, one write of 256 was refused."""
_REFER: Final = "use `${ENV:NAME}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedChange:
    """Changes that were acknowledged, as one transaction."""

    revision: int
    """Of the registry; it is an older one where nothing had to be changed."""
    edits: tuple[RecordEdit, ...]
    changes: tuple[RecordChange, ...]
    """What the transaction changed; a record that was so already is not among them."""
    warnings: list[str]

    def stored(self, key: RecordKey) -> StoredRecord:
        """The record that one of `edits` has left there."""
        for change in self.changes:
            if (change.kind, change.id) == key and (stored := record_after(change)) is not None:
                return stored
        befores = (edit.before for edit in self.edits if (edit.change.kind, edit.change.id) == key)
        return next(before for before in befores if before is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRecord:
    """One record that was stored."""

    stored: StoredRecord
    revision: int
    is_new: bool
    warnings: list[str]


async def put_record(
    control: Control, actor: Principal, draft: PendingChange, *, plan_id: str | None = None
) -> WrittenRecord:
    """Store a record, or raise what is wrong with it.

    What is returned is what was committed. Never read it again: another control plane may have written since.
    """
    done = await commit_changes(control, actor, [draft], plan_id=plan_id)
    return WrittenRecord(
        stored=done.stored(RecordKey(draft.kind, draft.id)),
        revision=done.revision,
        is_new=done.edits[0].before is None,
        warnings=done.warnings,
    )


async def commit_changes(
    control: Control,
    actor: Principal,
    drafts: Sequence[PendingChange],
    *,
    plan_id: str | None = None,
    prune: bool = False,
) -> CommittedChange:
    """Store all of `drafts`, or none. With `plan_id`, only if they still do what that plan showed.

    `prune` also removes what is not among them; see `check_changes`.
    """
    served = control.gateway.snapshot
    async with control.write_lock:
        edits, batch = await _check_and_commit(control, actor, drafts, plan_id=plan_id, prune=prune)
    return CommittedChange(
        revision=batch.revision,
        edits=edits,
        changes=batch.changes,
        warnings=await collect_warnings(served, edits),
    )


async def check_commit(
    control: Control,
    actor: Principal,
    drafts: Sequence[PendingChange],
    *,
    plan_id: str | None = None,
    prune: bool = False,
) -> tuple[tuple[RecordEdit, ...], RecordList]:
    """As `check_changes`, for `actor` to store them: with its role, and the plan where one is demanded."""
    for draft in drafts:
        _check_allowed(control, actor, draft, plan_id)
    edits, listing = await check_changes(control, actor, drafts, prune=prune)
    kept = await list_needed_modules(control, edits)
    for edit in edits:
        _check_allowed(control, actor, edit.change, plan_id)  # of those that pruning has added
        with _naming_record(edit.change):
            check_module_exists(edit, kept)
    if plan_id is not None and (await plan_edits(control, edits)).id != plan_id:
        raise PlanOutdated("what the change would do is not what its plan showed")
    return edits, listing


async def check_changes(
    control: Control, actor: Principal, drafts: Sequence[PendingChange], *, prune: bool = False
) -> tuple[tuple[RecordEdit, ...], RecordList]:
    """What `drafts` would change, and in what. Raises whatever would keep them from being stored.

    With `prune` every record of a kind that plans show and that is not among them would go, except for those
    that the registry directory keeps, and those of packages.
    """
    kinds = {draft.kind for draft in drafts}
    listing = await control.store.list(kinds.pop() if len(kinds) == 1 and not prune else None)
    # In a thread: thousands of drafts take longer to check than the loop may stand still.
    return await asyncio.to_thread(_check_all, control, actor, listing, drafts, prune=prune), listing


async def select_valid_changes(
    control: Control, actor: Principal, drafts: Sequence[PendingChange]
) -> tuple[list[PendingChange], dict[str, str]]:
    """Those of `drafts` that could be stored each by itself; and what is wrong with the others, by id."""
    listing = await control.store.list()
    return await asyncio.to_thread(_select_valid, control, actor, listing, drafts)


def _select_valid(
    control: Control, actor: Principal, listing: RecordList, drafts: Sequence[PendingChange]
) -> tuple[list[PendingChange], dict[str, str]]:
    stored = {RecordKey(one.kind, one.id): one for one in listing.records}
    fit, wrong = [], {}
    for draft in drafts:
        try:
            _parse_checked(control, actor, draft, stored.get(RecordKey(draft.kind, draft.id)))
        except InvalidRecord as exc:
            wrong[draft.id] = f"{exc}; {exc.hint}" if exc.hint else str(exc)
        else:
            fit.append(draft)
    return fit, wrong


async def collect_warnings(served: Snapshot, edits: Sequence[RecordEdit]) -> list[str]:
    """What is amiss once `edits` are made in what is served, and which of them a file will undo."""
    return [
        *_warn_of_sources(edits),
        *_warn_of_secrets(edits),
        *await asyncio.to_thread(_warn_of_impact, served, edits),
    ]


def audit_change(
    control: Control,
    actor: Principal,
    *,
    operation: str,
    kind: Kind | Literal["registry", "module", "integration"],
    record_id: str,
    revision: int | None = None,
) -> None:
    """Take note of what was done, in the audit log. Without a `revision`: at the newest one."""
    control.gateway.audit.record(
        AdminRecorded(
            at_ms=control.clock_ms(),
            principal=actor.id,
            operation=operation,
            kind=kind,
            record_id=record_id,
            revision=control.store.revision if revision is None else revision,
        )
    )


def _check_allowed(control: Control, actor: Principal, draft: PendingChange, plan_id: str | None) -> None:
    check_writer_role(actor, draft.kind)
    check_plan(control.operator_policy, draft.kind, plan_id)


def _check_all(
    control: Control, actor: Principal, listing: RecordList, drafts: Sequence[PendingChange], *, prune: bool
) -> tuple[RecordEdit, ...]:
    stored = {RecordKey(one.kind, one.id): one for one in listing.records}
    asked = [*drafts, *_prune_changes(listing, drafts)] if prune else drafts
    edits = []
    for draft in asked:
        with _naming_record(draft):
            edit = _parse_checked(control, actor, draft, stored.get(RecordKey(draft.kind, draft.id)))
            if edit is not None:
                edits.append(edit)
    _check_together(listing, edits)
    return tuple(edits)


def _parse_checked(
    control: Control, actor: Principal, draft: PendingChange, before: StoredRecord | None
) -> RecordEdit | None:
    """What the draft makes of `before`; None where it is so already. Raises what keeps it out."""
    if draft.sent is None:  # first of all: what is outside of a key's bounds says nothing of itself
        check_removal(actor, draft.kind, draft.id)
    edit = parse_change(draft, before)
    if draft.is_declared and not edit.has_effect:
        return None
    _check_one(control, actor, edit)
    if before is not None and not is_within_ceiling(actor, before):
        # In the words that the store has for a record that is not there.
        missing = NotFound(f"there is no {RecordKey(draft.kind, draft.id)}")
        raise missing if draft.sent is None else _beyond_ceiling(draft)
    return edit


@contextmanager
def _naming_record(draft: PendingChange) -> Iterator[None]:
    """Where a draft is one of many, what is wrong with it says with which."""
    try:
        yield
    except InvalidRecord as exc:
        if not draft.is_declared:
            raise
        named = {**exc.data, "kind": draft.kind, "id": draft.id}
        raise InvalidRecord(
            f"{describe_kind(draft.kind)} `{draft.id}`: {exc}", hint=exc.hint, data=named
        ) from exc


def _check_one(control: Control, actor: Principal, edit: RecordEdit) -> None:
    if edit.record is not None:
        check_grant(actor, edit.record)
        check_operator_policy(control.operator_policy, edit.record)


def _beyond_ceiling(draft: PendingChange) -> Forbidden:
    return Forbidden(
        f"{describe_kind(draft.kind)} `{draft.id}` reaches further than your key, which cannot replace it",
        hint="use another id, or ask for a key that may write this one",
    )


def _prune_changes(listing: RecordList, drafts: Sequence[PendingChange]) -> list[PendingChange]:
    """The removals that leave nothing but `drafts` and what comes from files and packages."""
    kept = {RecordKey(draft.kind, draft.id) for draft in drafts}
    return [
        PendingChange(kind=one.kind, id=one.id, sent=None, is_declared=True)
        for one in listing.records
        if one.kind in PLANNED_KINDS
        and RecordKey(one.kind, one.id) not in kept
        and not _is_kept_elsewhere(one)
    ]


def _is_kept_elsewhere(stored: StoredRecord) -> bool:
    """Whether it comes from a file of the registry directory, or from a package."""
    return source_of(stored) is not None or stored.body.get("package") is not None


def _warn_of_impact(served: Snapshot, edits: Sequence[RecordEdit]) -> list[str]:
    foreseen = predict_snapshot(served, edits)
    return [*find_weakened_guards(served, foreseen), *lint_edits(foreseen, edits)]


async def _check_and_commit(
    control: Control, actor: Principal, drafts: Sequence[PendingChange], *, plan_id: str | None, prune: bool
) -> tuple[tuple[RecordEdit, ...], ChangeBatch]:
    """What was asked for, and what was committed."""
    for _ in range(MAX_COMMIT_ATTEMPTS):
        edits, listing = await check_commit(control, actor, drafts, plan_id=plan_id, prune=prune)
        try:
            also = await _choices_of_revoked(control, edits)
            return edits, await _commit(control, actor, edits, also, seen=listing.revision)
        except Conflict as exc:
            if "store_revision" not in exc.data:
                raise  # it is a record's own precondition that fails
    raise Conflict("the registry changes too fast to check this change against the other records")


async def _choices_of_revoked(control: Control, edits: Sequence[RecordEdit]) -> list[RecordWrite]:
    """The integrations that go with the keys that `edits` revoke: another key of that id begins without."""
    revoked = [edit.change.id for edit in edits if edit.change.kind == "key" and edit.record is None]
    found = [await control.store.get("choice", make_choice_id(f"key:{key_id}")) for key_id in revoked]
    return [RecordWrite(kind="choice", id=one.id, body=None) for one in found if one is not None]


async def _commit(
    control: Control, actor: Principal, edits: Sequence[RecordEdit], also: Sequence[RecordWrite], *, seen: int
) -> ChangeBatch:
    """Write and take note. Raises Conflict, also when others have committed since the revision `seen`."""
    writes = [
        RecordWrite(
            kind=edit.change.kind, id=edit.change.id, body=edit.body, if_revision=edit.change.if_revision
        )
        for edit in edits
    ]

    async def commit() -> ChangeBatch:
        batch = await control.store.commit([*writes, *also], actor=actor.id, if_store_revision=seen)
        for write in writes:
            operation = "delete" if write.body is None else "put"
            audit_change(
                control,
                actor,
                operation=operation,
                kind=write.kind,
                record_id=write.id,
                revision=batch.revision,
            )
        return batch

    # Shielded: who goes away in the middle must not leave a write behind that nobody took note of.
    return await asyncio.shield(commit())


def _warn_of_secrets(edits: Sequence[RecordEdit]) -> list[str]:
    """Which of the changes store a secret that should stand where nodes alone can read it."""
    return [
        f"{describe_kind(edit.change.kind)} `{edit.change.id}`, `{field}`: a secret stands here itself; "
        + ("let a server have it, whose tools the guest calls" if edit.change.kind == "task" else _REFER)
        for edit in edits
        if edit.change.kind in HIDING and edit.body is not None
        for field in list_hidden_fields(edit.change.kind, edit.body)
    ]


def _warn_of_sources(edits: Sequence[RecordEdit]) -> list[str]:
    """Which of the changes a file will undo."""
    return [
        f"`{edit.change.id}` comes from `{file}`, which wins when the files are next read"
        for edit in edits
        if edit.before is not None and (file := source_of(edit.before)) is not None
    ]


def _check_together(listing: RecordList, edits: Sequence[RecordEdit]) -> None:
    """Raises InvalidRecord when the records cannot stand beside each other and the others there are."""
    touched = {RecordKey(edit.change.kind, edit.change.id) for edit in edits}
    staying = [one for one in listing.records if RecordKey(one.kind, one.id) not in touched]
    counts = Counter(one.kind for one in staying) + Counter(
        edit.change.kind for edit in edits if edit.record is not None
    )
    for kind in {edit.change.kind for edit in edits if edit.before is None}:
        if counts[kind] > MAX_RECORDS:
            raise InvalidRecord(
                f"the registry holds {MAX_RECORDS} records of kind {describe_kind(kind)}, and takes no more",
                hint="delete what is not needed any more",
            )
    owners = {namespace_of(one): one.id for one in staying if one.kind == "server"}
    for edit in edits:
        if isinstance(edit.record, ServerRecord):
            namespace = edit.record.tool_namespace
            owner = owners.setdefault(namespace, edit.record.server_id)
            if owner != edit.record.server_id:
                raise InvalidRecord(f"`tool_namespace`: server `{owner}` has `{namespace}` already")
