"""The one way in which this surface writes: check against the registry as it is, commit, take note.

A check that involves other records holds at the commit too: if anything was committed in between, it
is made again. Every write that was acknowledged stands in the audit log.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from toolgate.audit.events import AdminRecorded
from toolgate.errors import Conflict, InvalidRecord
from toolgate.model.principals import Principal
from toolgate.model.revisions import Kind, Listing, Stored, Write
from toolgate.model.servers import ServerRecord
from toolgate.model.snapshot import Snapshot
from toolgate.registry.records import Record, encode_record, namespace_of
from toolgate.registry.reload_plan import source_of
from toolgate.surfaces.rest.control import Control
from toolgate.surfaces.rest.drafts import Draft, parse_draft
from toolgate.surfaces.rest.foresight import warn_of, with_record, without_record
from toolgate.surfaces.rest.record_shapes import Deleted
from toolgate.surfaces.rest.records import find_record

MAX_RECORDS: Final = 5_000
"""Of each kind. More than a node can serve, and few enough for every list to stay quick."""
ATTEMPTS: Final = 8
"""How often a check is made again when others, who do not write over this surface, keep committing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A write that was acknowledged."""

    stored: Stored
    revision: int
    """Of the registry; that of the record is older when the write changed nothing."""
    is_new: bool
    warnings: list[str]


async def put_record(control: Control, actor: Principal, draft: Draft) -> Written:
    """Store a record, or raise what is wrong with it."""
    served = control.gateway.snapshot
    async with control.turn:
        before, record, revision = await _check_and_commit(control, actor, draft)
    return Written(
        stored=await find_record(control, draft.kind, draft.id),
        revision=revision,
        is_new=before is None,
        warnings=await _warnings(before, with_record(served, record), draft.kind, draft.id),
    )


async def _check_and_commit(
    control: Control, actor: Principal, draft: Draft
) -> tuple[Stored | None, Record, int]:
    """The record as it was, as it is now, and the revision at which it became that."""
    for _ in range(ATTEMPTS):
        listing = await control.store.list(draft.kind)
        before = next((one for one in listing.records if one.id == draft.id), None)
        record = parse_draft(draft, before)
        _check_beside(listing, record, is_new=before is None)
        write = Write(kind=draft.kind, id=draft.id, body=encode_record(record), if_revision=draft.if_revision)
        try:
            return before, record, await _commit(control, actor, write, seen=listing.revision)
        except Conflict:
            if control.store.revision == listing.revision:
                raise  # it is the record's own precondition that fails
    raise Conflict("the registry changes too fast to check this record against the others")


async def delete_record(
    control: Control, actor: Principal, *, kind: Kind, record_id: str, if_revision: int | None
) -> Deleted:
    """Remove a record."""
    served = control.gateway.snapshot
    before = await control.store.get(kind, record_id)
    write = Write(kind=kind, id=record_id, body=None, if_revision=if_revision)
    revision = await _commit(control, actor, write)
    after = without_record(served, kind, record_id)
    return Deleted(revision=revision, warnings=await _warnings(before, after, kind, record_id))


def note(control: Control, actor: Principal, *, operation: str, kind: Kind, record_id: str) -> None:
    """Take note of what was done, in the audit log."""
    control.gateway.audit.record(
        AdminRecorded(
            at_ms=control.clock_ms(),
            principal=actor.id,
            operation=operation,
            kind=kind,
            record_id=record_id,
            revision=control.store.revision,
        )
    )


async def _commit(control: Control, actor: Principal, write: Write, *, seen: int | None = None) -> int:
    """Write and take note. Raises Conflict, also when others have committed since the revision `seen`."""

    async def commit() -> int:
        revision = await control.store.write([write], actor=actor.id, if_store_revision=seen)
        operation = "delete" if write.body is None else "put"
        note(control, actor, operation=operation, kind=write.kind, record_id=write.id)
        return revision

    # Shielded: who goes away in the middle must not leave a write behind that nobody took note of.
    return await asyncio.shield(commit())


async def _warnings(before: Stored | None, after: Snapshot, kind: Kind, record_id: str) -> list[str]:
    """What whoever changed `before` should know. In a thread: rules are held against every tool there is."""
    found = await asyncio.to_thread(warn_of, after, kind=kind, record_id=record_id)
    file = source_of(before) if before is not None else None
    if file is not None:
        found.insert(0, f"`{record_id}` comes from `{file}`, which wins when the files are next read")
    return found


def _check_beside(listing: Listing, record: Record, *, is_new: bool) -> None:
    """Raises InvalidRecord when `record` cannot stand beside the others of its kind."""
    if is_new and len(listing.records) >= MAX_RECORDS:
        raise InvalidRecord(
            f"the registry holds {MAX_RECORDS} records of this kind, and takes no more",
            hint="delete what is not needed any more",
        )
    if isinstance(record, ServerRecord):
        for other in listing.records:
            if other.id != record.server_id and namespace_of(other) == record.tool_namespace:
                raise InvalidRecord(
                    f"`tool_namespace`: server `{other.id}` has `{record.tool_namespace}` already"
                )
