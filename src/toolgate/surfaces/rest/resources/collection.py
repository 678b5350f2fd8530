"""The endpoints that most kinds of records have alike: list, read, write, and what they were."""

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
    NotFound,
    PlanOutdated,
    PlanRequired,
    StorageFailed,
    StorageUnavailable,
)
from toolgate.govern.changes.commit import commit_drafts, put_record
from toolgate.govern.changes.history import draft_rollback
from toolgate.govern.changes.pending import Draft, sent_id
from toolgate.govern.changes.permissions import WRITERS
from toolgate.govern.changes.records import find_record, show_record
from toolgate.govern.control import Control
from toolgate.model.reports import NodeReport
from toolgate.model.revisions import Kind, Stored, spoken
from toolgate.registry.records.codec import ID_FIELDS
from toolgate.registry.records.transaction import RecordKey
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import PLAN, Call, Endpoint, Parameter, checked, unchecked
from toolgate.surfaces.rest.histories import Past, diff_endpoint, history_endpoint
from toolgate.surfaces.rest.resources.change_shapes import RollbackSent
from toolgate.surfaces.rest.resources.record_shapes import Deleted

Sent = Mapping[str, Any]
Show = Callable[[Control, Sequence[NodeReport], Sequence[Stored]], list[dict[str, Any]]]
"""Records as they are answered with, next to what nodes report. Called in a thread, too."""

WRITE_ERRORS: Final = (InvalidRecord, Conflict, PlanRequired, PlanOutdated, StorageFailed)


def show_plainly(
    _control: Control, _reports: Sequence[NodeReport], records: Sequence[Stored]
) -> list[dict[str, Any]]:
    """Records that have nothing beside them."""
    return [show_record(stored) for stored in records]


def keep_all(_query: Mapping[str, str], _stored: Stored) -> bool:
    """Lists that cannot be narrowed."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """All records of one kind, as a resource. Its methods are handlers."""

    kind: Kind
    path: str
    sent: type[BaseModel]
    shown: type[object]
    listed: type[object]
    written: type[object]
    show: Show = show_plainly
    query: tuple[Parameter, ...] = ()
    """What narrows the list."""
    keeps: Callable[[Mapping[str, str], Stored], bool] = keep_all
    """Whether a record stays in the list that a query asks for."""

    @property
    def id_field(self) -> str:
        return ID_FIELDS[self.kind]

    async def list(self, control: Control, call: Call[None]) -> Answer:
        """The records, sorted by id, page by page; each page is of one revision. Secrets are masked."""
        page = parse_page(call.query)
        listing = await control.store.list(self.kind)
        kept = [stored for stored in listing.records if self.keeps(call.query, stored)]
        records, next_cursor = page.cut(kept, lambda stored: stored.id)
        shown = await self._show(control, records)
        return Answer(
            {
                "revision": listing.revision,
                "digest": listing.digest,
                f"{self.kind}s": shown,
                "next_cursor": next_cursor,
            }
        )

    async def read(self, control: Control, call: Call[None]) -> Answer:
        """One record. Secrets are masked; the ETag is its revision."""
        stored = await find_record(control, self.kind, call.ids[self.id_field])
        return Answer((await self._show(control, [stored]))[0], revision=stored.revision)

    async def post(self, control: Control, call: Call[Sent]) -> Answer:
        """Create the record, or replace the one of the same id."""
        return await self._put(control, call, self._draft(call, sent_id(self.kind, call.body), call.body))

    async def put(self, control: Control, call: Call[Sent]) -> Answer:
        """Create or replace the record. A hidden value (`***`) that is sent back stays as it is stored."""
        return await self._put(control, call, self._draft(call, call.ids[self.id_field], call.body))

    async def delete(self, control: Control, call: Call[None]) -> Answer:
        """Remove the record. Whatever still names it is told in the warnings."""
        return await self._delete(control, call, self._draft(call, call.ids[self.id_field], None))

    async def rollback(self, control: Control, call: Call[RollbackSent]) -> Answer:
        """Make the record what it was at a revision of the registry, or remove it if it was not there."""
        draft = await draft_rollback(
            control,
            call.caller,
            RecordKey(self.kind, call.ids[self.id_field]),
            revision=call.body.revision,
            if_revision=call.if_revision,
        )
        return await (self._delete if draft.sent is None else self._put)(control, call, draft)

    def _draft(self, call: Call[Any], record_id: str, sent: Sent | None) -> Draft:
        return Draft(kind=self.kind, id=record_id, sent=sent, if_revision=call.if_revision)

    async def _delete(self, control: Control, call: Call[Any], draft: Draft) -> Answer:
        done = await commit_drafts(control, call.caller, [draft], plan_id=call.plan_id)
        return Answer(Deleted(revision=done.revision, warnings=done.warnings))

    async def _put(self, control: Control, call: Call[Any], draft: Draft) -> Answer:
        written = await put_record(control, call.caller, draft, plan_id=call.plan_id)
        body = {
            "revision": written.revision,
            self.kind: (await self._show(control, [written.stored]))[0],
            "warnings": written.warnings,
        }
        return Answer(body, 201 if written.is_new else 200, revision=written.stored.revision)

    async def _show(self, control: Control, records: Sequence[Stored]) -> Sequence[dict[str, Any]]:
        reports = await _reports(control) if self.kind == "server" else ()
        # In a thread: a page of records takes longer to fill in than the loop may stand still.
        return await asyncio.to_thread(self.show, control, reports, records)


async def _reports(control: Control) -> Sequence[NodeReport]:
    """What nodes report; nothing while that cannot be read: a write is acknowledged all the same."""
    try:
        return await control.store.reports.list_reports()
    except StorageUnavailable:
        return ()


def collection_endpoints(collection: Collection) -> tuple[Endpoint[Any], ...]:
    """The rows of `collection`."""
    kind, every, name = collection.kind, collection.path, spoken(collection.kind)
    one = f"{every}/{{{collection.id_field}}}"
    past = Past(kind)
    writes = partial(Endpoint, role=WRITERS[kind], headers=(PLAN,), is_conditional=True)
    put: Endpoint[Any] = writes(
        method="PUT",
        path=one,
        summary=f"Create or replace the {name} of this id",
        handler=collection.put,
        body=unchecked(collection.sent),
        answer=collection.written,
        statuses=(200, 201),
        errors=WRITE_ERRORS,
    )
    return (
        Endpoint(
            method="GET",
            path=every,
            role="viewer",
            summary=f"List the {name}s",
            handler=collection.list,
            query=(*PAGING, *collection.query),
            answer=collection.listed,
        ),
        replace(
            put, method="POST", path=every, summary=f"Create or replace a {name}", handler=collection.post
        ),
        Endpoint(
            method="GET",
            path=one,
            role="viewer",
            summary=f"Read a {name}",
            handler=collection.read,
            answer=collection.shown,
            errors=(NotFound,),
        ),
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
            body=checked(RollbackSent),
            answer=collection.written | Deleted,
            statuses=(200, 201),
            errors=(NotFound, Compacted, *WRITE_ERRORS),
        ),
    )
