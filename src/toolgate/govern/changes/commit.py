"""The only way in which surfaces write: check against the current registry, commit, audit.

Checks that involve other records are valid at the commit, too: if a transaction came in between, they run
again. Every acknowledged write is in the audit log. Never reads a record again after its commit.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from toolgate.audit.events import AdminRecorded
from toolgate.errors import Conflict, Forbidden, InvalidRecord, NotFound, PlanOutdated
from toolgate.govern.changes.impact import ChangePlan, lint_edits, plan_edits, predict_snapshot
from toolgate.govern.changes.permissions import (
    check_grant,
    check_removal,
    check_role,
    is_within_ceiling,
)
from toolgate.govern.changes.records import PendingChange, RecordEdit, parse_change
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
from toolgate.model.tools import Snapshot
from toolgate.policy.admission import find_weakened_guards
from toolgate.redaction.records import HIDING, list_hidden_fields
from toolgate.registry.files.reload import source_of
from toolgate.registry.records.codec import namespace_of
from toolgate.registry.records.transaction import RecordKey, record_after

MAX_RECORDS: Final = 5_000
"""Records of each kind: more than a node can serve, and few enough for fast lists."""
MAX_COMMIT_ATTEMPTS: Final = 32
"""How often a change is checked again while other control planes keep committing. On a busy registry about
every second attempt succeeds: with 8, one of 256 writes failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedChange:
    """Changes that were acknowledged, as one transaction."""

    revision: int
    """The registry's revision; an older one if nothing had to change."""
    edits: tuple[RecordEdit, ...]
    changes: tuple[RecordChange, ...]
    """The records that the transaction changed; without those that were equal already."""
    warnings: list[str]

    @property
    def is_new(self) -> bool:
        return self.edits[0].before is None

    @property
    def stored(self) -> StoredRecord:
        """The first record as committed. Never read it again: another control plane may have written
        since."""
        key = self.edits[0].change.key
        for change in self.changes:
            if (change.kind, change.id) == key and (stored := record_after(change)) is not None:
                return stored
        before = self.edits[0].before
        assert before is not None  # it was equal already
        return before


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedChange:
    revision: int
    """The registry's revision that it was checked against."""
    plan: ChangePlan
    warnings: list[str]


async def commit_changes(
    control: Control,
    actor: Principal,
    changes: Sequence[PendingChange],
    *,
    plan_id: str | None = None,
    prune: bool = False,
) -> CommittedChange:
    """Store all of `changes`, or none. With `plan_id`, only if they still have the planned effect.

    `prune` also removes other records; see `check_changes`.
    """
    served = control.gateway.snapshot
    async with control.write_lock:
        for _ in range(MAX_COMMIT_ATTEMPTS):
            edits, listing = await check_commit(control, actor, changes, plan_id=plan_id, prune=prune)
            try:
                batch = await _commit(control, actor, edits, listing.revision)
                break
            except Conflict as exc:
                if "store_revision" not in exc.data:
                    raise  # a record's own precondition failed
        else:
            raise Conflict("the registry changed during every check of this change", hint="send it again")
    warnings = await asyncio.to_thread(list, _list_warnings(served, edits))
    return CommittedChange(revision=batch.revision, edits=edits, changes=batch.changes, warnings=warnings)


async def plan_changes(
    control: Control, actor: Principal, changes: Sequence[PendingChange], *, prune: bool = False
) -> PlannedChange:
    """Plan `changes`. Changes nothing. Raises an error if they could not be stored."""
    served = control.gateway.snapshot
    edits, listing = await check_changes(control, actor, changes, prune=prune)
    return PlannedChange(
        revision=listing.revision,
        plan=await plan_edits(control, edits),
        warnings=await asyncio.to_thread(list, _list_warnings(served, edits)),
    )


async def check_commit(
    control: Control,
    actor: Principal,
    changes: Sequence[PendingChange],
    *,
    plan_id: str | None = None,
    prune: bool = False,
) -> tuple[tuple[RecordEdit, ...], RecordList]:
    """As `check_changes`, before `actor` stores them: also checks its role, and the plan if required."""

    def check_allowed(kind: Kind) -> None:
        check_role(actor, kind)
        check_plan(control.operator_policy, kind, plan_id)

    for change in changes:
        check_allowed(change.kind)
    edits, listing = await check_changes(control, actor, changes, prune=prune)
    modules = await list_needed_modules(control, edits)
    for edit in edits:
        check_allowed(edit.change.kind)  # pruning may have added it
        with _naming_record(edit.change):
            _require_uploaded_module(edit, modules)
    if plan_id is not None and (await plan_edits(control, edits)).id != plan_id:
        raise PlanOutdated("the change no longer has the effect that its plan showed")
    return edits, listing


async def check_changes(
    control: Control, actor: Principal, changes: Sequence[PendingChange], *, prune: bool = False
) -> tuple[tuple[RecordEdit, ...], RecordList]:
    """Check `changes`. Returns their edits and the records they change. Raises if they could not be stored.

    With `prune`, the edits also remove all other records of the kinds that plans show, except for records
    from the registry directory and from packages.
    """
    kinds = {change.kind for change in changes}
    listing = await control.store.list(kinds.pop() if len(kinds) == 1 and not prune else None)
    # In a thread: checking thousands of changes would block the event loop.
    return await asyncio.to_thread(_check_all, control, actor, listing, changes, prune=prune), listing


async def select_valid_changes(
    control: Control, actor: Principal, changes: Sequence[PendingChange]
) -> tuple[list[PendingChange], dict[str, str]]:
    """The `changes` that could be stored alone, and the errors of the others by id."""
    stored = {RecordKey(one.kind, one.id): one for one in (await control.store.list()).records}
    valid: list[PendingChange] = []
    errors: dict[str, str] = {}

    def select() -> None:
        for change in changes:
            try:
                _parse_checked(control, actor, change, stored.get(change.key))
            except InvalidRecord as exc:
                errors[change.id] = f"{exc}; {exc.hint}" if exc.hint else str(exc)
            else:
                valid.append(change)

    await asyncio.to_thread(select)
    return valid, errors


async def list_needed_modules(control: Control, edits: Sequence[RecordEdit]) -> set[str]:
    """Hashes of the uploaded modules; empty if `edits` need no new one."""
    if all(edit.new_module is None for edit in edits):
        return set()
    return {one.sha256 for one in await control.modules.list()}


def _list_warnings(served: Snapshot, edits: Sequence[RecordEdit]) -> Iterator[str]:
    """Warnings about the served snapshot after `edits`, and about edits that a file will undo."""
    for edit in edits:
        if edit.before is not None and (file := source_of(edit.before)) is not None:
            yield f"`{edit.change.id}` comes from `{file}`, which overwrites it when files are next loaded"
    for edit in edits:
        kind = edit.change.kind
        if kind in HIDING and edit.body is not None:
            advice = "use `${ENV:NAME}`"
            if kind == "task":
                advice = "give the secret to a server whose tools the guest calls"
            for field in list_hidden_fields(kind, edit.body):
                yield f"{edit.change.title}, `{field}`: the record contains a secret as plain text; {advice}"
    after = predict_snapshot(served, edits)
    yield from find_weakened_guards(served, after)
    yield from lint_edits(after, edits)


def audit_change(
    control: Control,
    actor: Principal,
    *,
    operation: str,
    kind: Kind | Literal["registry", "module", "integration"],
    record_id: str,
    revision: int | None = None,
) -> None:
    """Write a change to the audit log. Without a `revision`: at the newest one."""
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


def _check_all(
    control: Control, actor: Principal, listing: RecordList, changes: Sequence[PendingChange], *, prune: bool
) -> tuple[RecordEdit, ...]:
    stored = {RecordKey(one.kind, one.id): one for one in listing.records}
    edits = []
    for change in [*changes, *_prune_changes(listing, changes)] if prune else changes:
        with _naming_record(change):
            edit = _parse_checked(control, actor, change, stored.get(change.key))
            if edit is not None:
                edits.append(edit)
    _check_registry(listing, edits)
    return tuple(edits)


def _parse_checked(
    control: Control, actor: Principal, change: PendingChange, before: StoredRecord | None, /
) -> RecordEdit | None:
    """The edit of `before` by `change`; None if nothing changes. Raises as the checks."""
    if change.sent is None:  # before its record is read, which may lie beyond the ceiling
        check_removal(actor, change.kind, change.id)
    edit = parse_change(change, before)
    if change.is_declared and not edit.has_effect:
        return None
    if edit.record is not None:
        check_grant(actor, edit.record)
        check_operator_policy(control.operator_policy, edit.record)
    _replace_in_ceiling_only(actor, edit)
    return edit


def _replace_in_ceiling_only(actor: Principal, edit: RecordEdit) -> None:
    if edit.before is None or is_within_ceiling(actor, edit.before):
        return
    if edit.record is None:  # the same error as for a missing record
        raise NotFound(f"there is no {edit.change.key}")
    raise Forbidden(
        f"your key cannot replace {edit.change.title}, which is beyond the key's ceiling",
        hint="use another id, or ask an admin for a key with a wider `ceiling`",
    )


def _require_uploaded_module(edit: RecordEdit, uploaded: Collection[str]) -> None:
    """For a record that will be stored. A plan only warns about it."""
    if edit.new_module is not None and edit.new_module not in uploaded:
        raise InvalidRecord(
            f"`workload.module`: there is no module `{edit.new_module}`",
            hint="run `toolgate modules upload FILE`, or `toolgate tasks apply -f FILE`, which uploads it",
        )


def _check_registry(listing: RecordList, edits: Sequence[RecordEdit]) -> None:
    """Check all edits together, with the unchanged records: their number, and unique namespaces."""
    touched = {edit.change.key for edit in edits}
    staying = [one for one in listing.records if RecordKey(one.kind, one.id) not in touched]
    counts = Counter(one.kind for one in staying)
    counts.update(edit.change.kind for edit in edits if edit.record is not None)
    for kind in {edit.change.kind for edit in edits if edit.before is None}:
        if counts[kind] > MAX_RECORDS:
            raise InvalidRecord(
                f"the registry has reached its limit of {MAX_RECORDS} records of kind {describe_kind(kind)}",
                hint="delete records that you do not need",
            )
    owners = {namespace_of(one): one.id for one in staying if one.kind == "server"}
    for record in (edit.record for edit in edits):
        if isinstance(record, ServerRecord):
            owner = owners.setdefault(record.tool_namespace, record.server_id)
            if owner != record.server_id:
                raise InvalidRecord(
                    f"`tool_namespace`: server `{owner}` already uses `{record.tool_namespace}`"
                )


@contextmanager
def _naming_record(change: PendingChange) -> Iterator[None]:
    """Make an error about one of many changes name its record."""
    try:
        yield
    except InvalidRecord as exc:
        if not change.is_declared:
            raise
        data = {**exc.data, "kind": change.kind, "id": change.id}
        raise InvalidRecord(f"{change.title}: {exc}", hint=exc.hint, data=data) from exc


def _prune_changes(listing: RecordList, changes: Sequence[PendingChange]) -> list[PendingChange]:
    """Removals of all records but `changes` and those from files and packages."""
    kept = {change.key for change in changes}
    return [
        PendingChange(kind=one.kind, id=one.id, sent=None, is_declared=True)
        for one in listing.records
        if one.kind in PLANNED_KINDS
        and RecordKey(one.kind, one.id) not in kept
        and source_of(one) is None
        and one.body.get("package") is None
    ]


async def _commit(control: Control, actor: Principal, edits: Sequence[RecordEdit], seen: int) -> ChangeBatch:
    """Write and audit. Raises Conflict, also after a commit by others since the revision `seen`."""
    writes, also, audited = [], [], []
    for edit in edits:
        kind, record_id = edit.change.key
        writes.append(
            RecordWrite(kind=kind, id=record_id, body=edit.body, if_revision=edit.change.if_revision)
        )
        audited.append(AuditedStep("delete" if edit.body is None else "put", kind, record_id))
        if kind == "key" and edit.record is None:
            # A deleted key's integrations are deleted, too: a new key of that id starts without any.
            choice = await control.store.get("choice", make_choice_id(f"key:{record_id}"))
            also += [RecordWrite(kind="choice", id=choice.id, body=None)] if choice is not None else []
    return await store_audited(control, actor, [*writes, *also], audited, seen=seen)


class AuditedStep(NamedTuple):
    """The audit record of one change in a transaction."""

    operation: str
    kind: Kind | Literal["integration"]
    record_id: str


async def store_audited(
    control: Control,
    actor: Principal,
    writes: Sequence[RecordWrite],
    steps: Sequence[AuditedStep],
    *,
    seen: int | None = None,
) -> ChangeBatch:
    """Commit `writes`, and record `steps` in the audit log."""

    async def commit() -> ChangeBatch:
        batch = await control.store.commit(writes, actor=actor.id, if_store_revision=seen)
        for step in steps:
            audit_change(control, actor, **step._asdict(), revision=batch.revision)
        return batch

    # Shielded: if the caller disconnects in the middle, the write must still be audited.
    return await asyncio.shield(commit())
