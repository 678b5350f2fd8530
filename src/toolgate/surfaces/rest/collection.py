"""The five endpoints that servers, tasks and profiles have alike: list, read, post, put, delete."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.govern.changes import delete_record, put_record
from toolgate.govern.control import Control
from toolgate.govern.drafts import Draft, sent_id
from toolgate.govern.records import find_record, show_record
from toolgate.model.principals import Role
from toolgate.model.revisions import Kind, Stored
from toolgate.registry.records import ID_FIELDS
from toolgate.surfaces.rest.answers import Answer
from toolgate.surfaces.rest.record_shapes import Deleted
from toolgate.surfaces.rest.routing import Call, Endpoint, unchecked

Sent = Mapping[str, Any]
Show = Callable[[Control, Sequence[Stored]], list[dict[str, Any]]]


def show_plainly(_control: Control, records: Sequence[Stored]) -> list[dict[str, Any]]:
    """Records that have nothing beside them."""
    return [show_record(stored) for stored in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """All records of one kind, as a resource. Its methods are handlers."""

    kind: Kind
    path: str
    writer: Role
    """Who may write; every viewer may read."""
    sent: type[BaseModel]
    shown: type[object]
    listed: type[object]
    written: type[object]
    show: Show = show_plainly

    @property
    def id_field(self) -> str:
        return ID_FIELDS[self.kind]

    async def list(self, control: Control, _call: Call[None]) -> Answer:
        """All records, sorted by id, at one revision of the registry. Secrets are masked."""
        listing = await control.store.list(self.kind)
        shown = self.show(control, listing.records)
        return Answer({"revision": listing.revision, f"{self.kind}s": shown})

    async def read(self, control: Control, call: Call[None]) -> Answer:
        """One record. Secrets are masked; the ETag is its revision."""
        stored = await find_record(control, self.kind, call.ids[self.id_field])
        return Answer(self.show(control, [stored])[0], revision=stored.revision)

    async def post(self, control: Control, call: Call[Sent]) -> Answer:
        """Create the record, or replace the one of the same id."""
        return await self._put(control, call, sent_id(self.kind, call.body))

    async def put(self, control: Control, call: Call[Sent]) -> Answer:
        """Create or replace the record. A hidden value (`***`) that is sent back stays as it is stored."""
        return await self._put(control, call, call.ids[self.id_field])

    async def delete(self, control: Control, call: Call[None]) -> Answer:
        """Remove the record. Whatever still names it is told in the warnings."""
        draft = Draft(kind=self.kind, id=call.ids[self.id_field], sent=None, if_revision=call.if_revision)
        done = await delete_record(control, call.caller, draft)
        return Answer(Deleted(revision=done.revision, warnings=done.warnings))

    async def _put(self, control: Control, call: Call[Sent], record_id: str) -> Answer:
        draft = Draft(kind=self.kind, id=record_id, sent=call.body, if_revision=call.if_revision)
        written = await put_record(control, call.caller, draft)
        body = {
            "revision": written.revision,
            self.kind: self.show(control, [written.stored])[0],
            "warnings": written.warnings,
        }
        return Answer(body, 201 if written.is_new else 200, revision=written.stored.revision)


def collection_endpoints(collection: Collection) -> tuple[Endpoint[Any], ...]:
    """The rows of `collection`."""
    kind, every = collection.kind, collection.path
    one = f"{every}/{{{collection.id_field}}}"
    put = Endpoint(
        method="PUT",
        path=one,
        role=collection.writer,
        summary=f"Create or replace the {kind} of this id",
        handler=collection.put,
        body=unchecked(collection.sent),
        answer=collection.written,
        statuses=(200, 201),
        errors=(InvalidRecord, Conflict, StorageFailed),
        is_conditional=True,
    )
    return (
        Endpoint(
            method="GET",
            path=every,
            role="viewer",
            summary=f"List the {kind}s",
            handler=collection.list,
            answer=collection.listed,
        ),
        replace(
            put, method="POST", path=every, summary=f"Create or replace a {kind}", handler=collection.post
        ),
        Endpoint(
            method="GET",
            path=one,
            role="viewer",
            summary=f"Read a {kind}",
            handler=collection.read,
            answer=collection.shown,
            errors=(NotFound,),
        ),
        put,
        Endpoint(
            method="DELETE",
            path=one,
            role=collection.writer,
            summary=f"Delete a {kind}",
            handler=collection.delete,
            answer=Deleted,
            errors=(NotFound, Conflict, StorageFailed),
            is_conditional=True,
        ),
    )
