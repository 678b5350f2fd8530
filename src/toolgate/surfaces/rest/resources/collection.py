"""What records were before: their history, and how two revisions of one differ. Secrets are masked.

The endpoints that most kinds of records have alike: list, read, write, and what they were.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from toolgate.errors import (
    Compacted,
    Conflict,
    InvalidRecord,
    InvalidRequest,
    NotFound,
    PlanOutdated,
    PlanRequired,
    StorageFailed,
    StorageUnavailable,
)
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.history import (
    MAX_HISTORY,
    HistoryEntry,
    build_rollback,
    diff_revisions,
    read_history,
)
from toolgate.govern.changes.permissions import WRITER_ROLES
from toolgate.govern.changes.records import PendingChange, find_record, parse_sent_id, show_record
from toolgate.govern.control import Control
from toolgate.model.reports import NodeReport
from toolgate.model.revisions import Kind, StoredRecord, describe_kind
from toolgate.registry.records.codec import ID_FIELDS
from toolgate.registry.records.transaction import RecordKey
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.request import PLAN_HEADER, Parameter, RestCall, accept_as, validate_as
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.resources.change_shapes import (
    DiffAnswer,
    EntryShown,
    HistoryAnswer,
    RollbackSent,
    show_fields,
)
from toolgate.surfaces.rest.resources.record_shapes import Deleted

ENTRIES: Final = 50


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """What the records of one kind were. Its methods are handlers."""

    kind: Kind

    @property
    def id_field(self) -> str:
        return ID_FIELDS[self.kind]

    async def history(self, control: Control, call: RestCall[None]) -> RestResponse:
        """The changes of the record, newest first: who made each, when, and in which fields."""
        limit = call.count("limit", default=ENTRIES, most=MAX_HISTORY)
        revision = control.store.revision
        record_id = call.ids[self.id_field]
        entries = await read_history(control, self.kind, record_id, limit=limit)
        return RestResponse(HistoryAnswer(revision=revision, entries=[_show_entry(one) for one in entries]))

    async def diff(self, control: Control, call: RestCall[None]) -> RestResponse:
        """How the record at one revision of the registry differs from the record at another, or now."""
        since = call.number("since")
        if since is None:
            raise InvalidRequest("`since` is missing", hint="name the revision to compare with: `?since=7`")
        revision = control.store.revision
        fields = await diff_revisions(
            control, self.kind, call.ids[self.id_field], since=since, upto=call.number("upto")
        )
        return RestResponse(DiffAnswer(revision=revision, fields=show_fields(fields)))


def _show_entry(entry: HistoryEntry) -> EntryShown:
    return EntryShown(
        revision=entry.revision,
        operation=entry.operation,
        actor=entry.actor,
        at_ms=entry.at_ms,
        fields=show_fields(entry.fields),
    )


def history_endpoint(past: RecordHistory, one: str) -> RestEndpoint[Any]:
    """The row for the history of the record whose path is `one`."""
    return get(
        f"{one}/history",
        "viewer",
        f"Show what changed a {describe_kind(past.kind)}",
        HistoryAnswer,
        query=(
            Parameter("limit", f"How many at most: 1 to {MAX_HISTORY}, {ENTRIES} by default.", form="number"),
        ),
        errors=(NotFound,),
    )(past.history)


def diff_endpoint(past: RecordHistory, one: str) -> RestEndpoint[Any]:
    """The row for the differences of the record whose path is `one`."""
    return get(
        f"{one}/diff",
        "viewer",
        f"Compare two revisions of a {describe_kind(past.kind)}",
        DiffAnswer,
        query=(
            Parameter("since", "The revision of the registry to compare with.", form="number"),
            Parameter("upto", "The revision to compare it to. Without it, now.", form="number"),
        ),
        errors=(NotFound, Compacted),
    )(past.diff)


RecordBody = Mapping[str, Any]
ShowRecords = Callable[[Control, Sequence[NodeReport], Sequence[StoredRecord]], list[dict[str, Any]]]
"""Records as they are answered with, next to what nodes report. Called in a thread, too."""

WRITE_ERRORS: Final = (InvalidRecord, Conflict, PlanRequired, PlanOutdated, StorageFailed)


def show_records(
    _control: Control, _reports: Sequence[NodeReport], records: Sequence[StoredRecord]
) -> list[dict[str, Any]]:
    """Records that have nothing beside them."""
    return [show_record(stored) for stored in records]


def match_all(_query: Mapping[str, str], _stored: StoredRecord) -> bool:
    """Lists that cannot be narrowed."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCollection:
    """All records of one kind, as a resource. Its methods are handlers."""

    kind: Kind
    path: str
    sent: type[BaseModel]
    shown: type[object]
    listed: type[object]
    written: type[object]
    show: ShowRecords = show_records
    query: tuple[Parameter, ...] = ()
    """What narrows the list."""
    matches_query: Callable[[Mapping[str, str], StoredRecord], bool] = match_all
    """Whether a record stays in the list that a query asks for."""

    @property
    def id_field(self) -> str:
        return ID_FIELDS[self.kind]

    async def list(self, control: Control, call: RestCall[None]) -> RestResponse:
        """The records, sorted by id, page by page; each page is of one revision. Secrets are masked."""
        page = parse_page(call)
        listing = await control.store.list(self.kind)
        kept = [stored for stored in listing.records if self.matches_query(call.query, stored)]
        records, next_cursor = page.cut(kept, lambda stored: stored.id)
        shown = await self._show(control, records)
        return RestResponse(
            {
                "revision": listing.revision,
                "digest": listing.digest,
                f"{self.kind}s": shown,
                "next_cursor": next_cursor,
            }
        )

    async def read(self, control: Control, call: RestCall[None]) -> RestResponse:
        """One record. Secrets are masked; the ETag is its revision."""
        stored = await find_record(control, self.kind, call.ids[self.id_field])
        return RestResponse((await self._show(control, [stored]))[0], revision=stored.revision)

    async def post(self, control: Control, call: RestCall[RecordBody]) -> RestResponse:
        """Create the record, or replace the one of the same id."""
        return await self._put(
            control, call, self._draft(call, parse_sent_id(self.kind, call.body), call.body)
        )

    async def put(self, control: Control, call: RestCall[RecordBody]) -> RestResponse:
        """Create or replace the record. A hidden value (`***`) that is sent back stays as it is stored."""
        return await self._put(control, call, self._draft(call, call.ids[self.id_field], call.body))

    async def delete(self, control: Control, call: RestCall[None]) -> RestResponse:
        """Remove the record. Whatever still names it is told in the warnings."""
        return await self._delete(control, call, self._draft(call, call.ids[self.id_field], None))

    async def rollback(self, control: Control, call: RestCall[RollbackSent]) -> RestResponse:
        """Make the record what it was at a revision of the registry, or remove it if it was not there."""
        draft = await build_rollback(
            control,
            call.caller,
            RecordKey(self.kind, call.ids[self.id_field]),
            revision=call.body.revision,
            if_revision=call.if_revision,
        )
        return await (self._delete if draft.sent is None else self._put)(control, call, draft)

    def _draft(self, call: RestCall[Any], record_id: str, sent: RecordBody | None) -> PendingChange:
        return PendingChange(kind=self.kind, id=record_id, sent=sent, if_revision=call.if_revision)

    async def _delete(self, control: Control, call: RestCall[Any], draft: PendingChange) -> RestResponse:
        done = await commit_changes(control, call.caller, [draft], plan_id=call.plan_id)
        return RestResponse(Deleted(revision=done.revision, warnings=done.warnings))

    async def _put(self, control: Control, call: RestCall[Any], draft: PendingChange) -> RestResponse:
        written = await commit_changes(control, call.caller, [draft], plan_id=call.plan_id)
        body = {
            "revision": written.revision,
            self.kind: (await self._show(control, [written.stored]))[0],
            "warnings": written.warnings,
        }
        return RestResponse(body, 201 if written.is_new else 200, revision=written.stored.revision)

    async def _show(self, control: Control, records: Sequence[StoredRecord]) -> Sequence[dict[str, Any]]:
        reports = await _read_reports(control) if self.kind == "server" else ()
        # In a thread: a page of records takes longer to fill in than the loop may stand still.
        return await asyncio.to_thread(self.show, control, reports, records)


async def _read_reports(control: Control) -> Sequence[NodeReport]:
    """What nodes report; nothing while that cannot be read: a write is acknowledged all the same."""
    try:
        return await control.store.reports.list_reports()
    except StorageUnavailable:
        return ()


def collection_endpoints(collection: RecordCollection) -> tuple[RestEndpoint[Any], ...]:
    """The rows of `collection`."""
    kind, every, name = collection.kind, collection.path, describe_kind(collection.kind)
    one = f"{every}/{{{collection.id_field}}}"
    past = RecordHistory(kind)
    writes = partial(RestEndpoint, role=WRITER_ROLES[kind], headers=(PLAN_HEADER,), is_conditional=True)
    put: RestEndpoint[Any] = writes(
        method="PUT",
        path=one,
        summary=f"Create or replace the {name} of this id",
        handler=collection.put,
        body=accept_as(collection.sent),
        answer=collection.written,
        statuses=(200, 201),
        errors=WRITE_ERRORS,
    )
    return (
        get(every, "viewer", f"List the {name}s", collection.listed, query=(*PAGING, *collection.query))(
            collection.list
        ),
        replace(
            put, method="POST", path=every, summary=f"Create or replace a {name}", handler=collection.post
        ),
        get(one, "viewer", f"Read a {name}", collection.shown, errors=(NotFound,))(collection.read),
        put,
        writes(
            method="DELETE",
            path=one,
            summary=f"Delete a {name}",
            handler=collection.delete,
            answer=Deleted,
            errors=(NotFound, *WRITE_ERRORS),
        ),
        history_endpoint(past, one),
        diff_endpoint(past, one),
        writes(
            method="POST",
            path=f"{one}/rollback",
            summary=f"Take a {name} back to what it was",
            handler=collection.rollback,
            body=validate_as(RollbackSent),
            answer=collection.written | Deleted,
            statuses=(200, 201),
            errors=(NotFound, Compacted, *WRITE_ERRORS),
        ),
    )
