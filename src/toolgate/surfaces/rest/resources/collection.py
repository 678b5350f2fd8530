"""The endpoints that most kinds of records share: list, read, write, delete, history, diff and rollback.

Bodies are plain data, as the registry shows a record; the shapes only document them. The registry alone
decides what it stores.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from pydantic import BaseModel, Field, create_model

from toolgate.errors import Compacted, InvalidRequest
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.history import MAX_HISTORY, build_rollback, diff_revisions, read_history
from toolgate.govern.changes.permissions import WRITER_ROLES
from toolgate.govern.changes.records import PendingChange, find_record, parse_sent_id, show_record
from toolgate.govern.control import Control
from toolgate.model.revisions import Kind, Operation, StoredRecord, describe_kind
from toolgate.model.servers import EMPTY
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.codec import ID_FIELDS, FieldDiff, diff_fields
from toolgate.registry.records.transaction import RecordKey
from toolgate.surfaces.rest.framework.request import PAGING, PLAN_HEADER, Parameter, RestCall, accept_as
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, delete, get, post, put
from toolgate.surfaces.rest.resources.changes import WRITE_ERRORS

ENTRIES: Final = 50
"""Default number of changes in a history: one screen of the console."""
DIFF_QUERY: Final = (
    Parameter("since", "The registry revision to compare from.", "number"),
    Parameter("upto", "The registry revision to compare to. Default: the current one.", "number"),
)

ID: Final = Field(description="The id of the record. Optional if the path contains it.")
Ignored = Annotated[
    Any, Field(description="Ignored, so that clients can send back a record as they read it.")
]
_DIGEST: Final = (
    "The digest of the change log up to `revision`. Send it to `watch` to detect a restored registry."
)
Digest = Annotated[str, Field(description=_DIGEST)]
Warnings = Annotated[list[str], Field(description="Problems of the record, and of records that refer to it.")]


class RollbackSent(StrictBody):
    """The target of a rollback."""

    revision: Annotated[int, Field(ge=0)]
    """The registry revision whose state the record returns to."""


class Deleted(ResponseShape, frozen=True, kw_only=True):
    """A deleted record."""

    revision: Revision
    """The registry revision of the deletion."""
    warnings: list[str]
    """References that point to nothing now."""


class EntryShown(ResponseShape, frozen=True, kw_only=True):
    """One change of a record, without its secrets."""

    revision: Revision
    operation: Operation
    actor: str
    """The principal that made the change."""
    at_ms: int
    fields: list[FieldDiff]


class HistoryResponse(ResponseShape, frozen=True, kw_only=True):
    """The changes of a record that the log still holds, newest first."""

    revision: Revision
    """The current registry revision."""
    entries: list[EntryShown]


class DiffResponse(ResponseShape, frozen=True, kw_only=True):
    """The differences of a record between two registry revisions."""

    revision: Revision
    """The current registry revision."""
    fields: list[FieldDiff]


class RecordShapes(NamedTuple):
    """The shapes around a record: as sent, shown, listed, and after a write."""

    sent: type[BaseModel]
    shown: type[object]
    listed: type[object]
    written: type[object]


def build_shapes(
    kind: Kind,
    body: type[BaseModel],
    id_type: Any,
    *,
    added: Mapping[str, Any] = EMPTY,
    sent: Mapping[str, Any] = EMPTY,
) -> RecordShapes:
    """The shapes of REST around `body`, the model of the record.

    `added`: members that REST shows, and ignores in requests. `sent`: members that requests have in another
    form.
    """
    name, prefix = describe_kind(kind), _prefix(kind)
    members: Any = {"revision": Revision, **added}
    ignored: Any = dict.fromkeys(members, (Ignored, None)) | dict(sent)
    ignored[ID_FIELDS[kind]] = (Annotated[id_type | None, ID], None)
    shown_members: Any = {member: (shape, ...) for member, shape in members.items()}
    masked, to_store = f"A {name}, with secrets masked.", f"A {name} to store."
    shown = create_model(f"{prefix}Shown", __base__=body, __doc__=masked, **shown_members)
    sent_shape = create_model(f"{prefix}Sent", __base__=body, __doc__=to_store, **ignored)
    fields = [("revision", Revision), (kind, shown), ("warnings", Warnings)]
    written = _build_shape(f"{prefix}Written", f"A {name} after the write.", fields)
    return RecordShapes(sent_shape, shown, build_list_shape(kind, shown), written)


def build_list_shape(kind: Kind, shown: type[object]) -> type[object]:
    """The shape of a page of records."""
    records = (f"{kind}s", list[shown])  # type: ignore[valid-type]
    fields = [("revision", Revision), ("digest", Digest, ""), records, ("next_cursor", NextCursor)]
    doc = f"A page of {describe_kind(kind)}s at one revision."
    return _build_shape(f"{_prefix(kind)}List", doc, fields)


def _prefix(kind: Kind) -> str:
    return describe_kind(kind).title().replace(" ", "")


def _build_shape(name: str, doc: str, fields: Sequence[Any]) -> type[object]:
    return msgspec.defstruct(
        name, fields, bases=(ResponseShape,), frozen=True, kw_only=True, namespace={"__doc__": doc}
    )


RecordBody = Mapping[str, Any]
ShowRecords = Callable[[Control, Sequence[StoredRecord]], Awaitable[list[dict[str, Any]]]]


async def show_records(_control: Control, records: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    """Records without added members. In a thread: a page takes longer than the loop may block."""
    return await asyncio.to_thread(lambda: [show_record(stored) for stored in records])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCollection:
    """All records of one kind, as a resource. Its methods are handlers."""

    kind: Kind
    path: str
    shapes: RecordShapes
    show: ShowRecords = show_records
    query: tuple[Parameter, ...] = ()
    """The parameters that filter the list."""
    matches_query: Callable[[Mapping[str, str], StoredRecord], bool] = lambda _query, _stored: True
    """Whether the filters of a query match a record."""

    @property
    def id_field(self) -> str:
        return ID_FIELDS[self.kind]

    @property
    def one_path(self) -> str:
        """The path of one record."""
        return f"{self.path}/{{{self.id_field}}}"

    async def list(self, control: Control, call: RestCall[None]) -> Mapping[str, Any]:
        """The records, sorted by id. Each page is at one revision. Secrets are masked."""
        page = call.page()
        listing = await control.store.list(self.kind)
        matching = [stored for stored in listing.records if self.matches_query(call.query, stored)]
        records, next_cursor = page.cut(matching, lambda stored: stored.id)
        return {
            "revision": listing.revision,
            "digest": listing.digest,
            f"{self.kind}s": await self.show(control, records),
            "next_cursor": next_cursor,
        }

    async def read(self, control: Control, call: RestCall[None]) -> RestResponse:
        """One record. Secrets are masked; the ETag is its revision."""
        stored = await find_record(control, self.kind, call.ids[self.id_field])
        return RestResponse((await self.show(control, [stored]))[0], revision=stored.revision)

    async def post(self, control: Control, call: RestCall[RecordBody]) -> RestResponse | Deleted:
        """Create the record, or replace the one with the same id."""
        return await self._commit(control, call, self._change(call, parse_sent_id(self.kind, call.body)))

    async def put(self, control: Control, call: RestCall[RecordBody]) -> RestResponse | Deleted:
        """Create or replace the record. A masked value (`***`) keeps its stored value."""
        return await self._commit(control, call, self._change(call, call.ids[self.id_field]))

    async def delete(self, control: Control, call: RestCall[None]) -> RestResponse | Deleted:
        """Delete the record. The warnings list the records that still refer to it."""
        return await self._commit(control, call, self._change(call, call.ids[self.id_field]))

    async def history(self, control: Control, call: RestCall[None]) -> HistoryResponse:
        """The changes of the record, newest first: who changed which fields, and when."""
        limit = call.count("limit", default=ENTRIES, most=MAX_HISTORY)
        revision = control.store.revision
        changes = await read_history(control, self.kind, call.ids[self.id_field], limit=limit)
        entries = [
            EntryShown.of(one, fields=diff_fields(self.kind, one.before, one.after)) for one in changes
        ]
        return HistoryResponse(revision=revision, entries=entries)

    async def diff(self, control: Control, call: RestCall[None]) -> DiffResponse:
        """The differences between the record at `since` and at `upto`."""
        since = call.number("since")
        if since is None:
            raise InvalidRequest("`since` is missing", hint="name the revision to compare with: `?since=7`")
        revision = control.store.revision
        record_id, upto = call.ids[self.id_field], call.number("upto")
        fields = await diff_revisions(control, self.kind, record_id, since=since, upto=upto)
        return DiffResponse.of(revision=revision, fields=fields)

    async def rollback(self, control: Control, call: RestCall[RollbackSent]) -> RestResponse | Deleted:
        """Restore the record as of a registry revision, or delete it if it did not exist then."""
        key, revision = RecordKey(self.kind, call.ids[self.id_field]), call.body.revision
        change = await build_rollback(
            control, call.caller, key, revision=revision, if_revision=call.if_revision
        )
        return await self._commit(control, call, change)

    def _change(self, call: RestCall[Any], record_id: str) -> PendingChange:
        return PendingChange(kind=self.kind, id=record_id, sent=call.body, if_revision=call.if_revision)

    async def _commit(
        self, control: Control, call: RestCall[Any], change: PendingChange
    ) -> RestResponse | Deleted:
        done = await commit_changes(control, call.caller, [change], plan_id=call.plan_id)
        if change.sent is None:
            return Deleted.of(done)
        shown = (await self.show(control, [done.stored]))[0]
        body = {"revision": done.revision, self.kind: shown, "warnings": done.warnings}
        return RestResponse(body, 201 if done.is_new else 200, revision=done.stored.revision)

    def endpoints(self, *handlers: str) -> tuple[RestEndpoint[Any], ...]:
        """The endpoints of the named handlers, or all."""
        name, role, shapes = describe_kind(self.kind), WRITER_ROLES[self.kind], self.shapes
        every, one = self.path, self.one_path
        limit = f"The maximum number of changes: 1 to {MAX_HISTORY}. Default: {ENTRIES}."
        history = (Parameter("limit", limit, "number"),)
        diff: dict[str, Any] = {"query": DIFF_QUERY, "errors": (Compacted,)}
        deletes: dict[str, Any] = {"headers": (PLAN_HEADER,), "is_conditional": True}
        puts = deletes | {"body": accept_as(shapes.sent), "statuses": (200, 201), "errors": WRITE_ERRORS}
        back = deletes | {"statuses": (200, 201), "errors": (Compacted, *WRITE_ERRORS)}
        back["response"] = shapes.written | Deleted
        rows: dict[str, Any] = {
            "list": get(every, "viewer", f"List the {name}s", shapes.listed, query=(*PAGING, *self.query)),
            "post": post(every, role, f"Create or replace a {name}", shapes.written, **puts),
            "read": get(one, "viewer", f"Read a {name}", shapes.shown),
            "put": put(one, role, f"Create or replace the {name} with this id", shapes.written, **puts),
            "delete": delete(one, role, f"Delete a {name}", Deleted, errors=WRITE_ERRORS, **deletes),
            "history": get(f"{one}/history", "viewer", f"Show the history of a {name}", query=history),
            "diff": get(f"{one}/diff", "viewer", f"Compare two revisions of a {name}", **diff),
            "rollback": post(f"{one}/rollback", role, f"Roll back a {name}", **back),
        }
        return tuple(rows[handler](getattr(self, handler)) for handler in handlers or rows)
