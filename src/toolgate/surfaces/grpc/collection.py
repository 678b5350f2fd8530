"""The four RPCs that servers, tasks, profiles and pins share, and the RPCs by which nodes follow all records.

List, watch, upsert and delete: SPEAR's service for servers, and equal services for the other kinds. A watch
sends the ids of changed records, never the records, and bookmarks while nothing changes. Nodes, with the role
`node` only, follow all records as stored, including secrets, and read archives and modules.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.message import Message

from toolgate.errors import Compacted, NotFound, StorageUnavailable
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import WRITER_ROLES
from toolgate.govern.changes.records import PendingChange, fill_defaults, parse_sent_id, show_record
from toolgate.govern.watches import filter_batch
from toolgate.model.principals import Role
from toolgate.model.revisions import Body, ChangeBatch, Kind, RecordList
from toolgate.proto import node_pb2
from toolgate.registry.records.codec import parse_id
from toolgate.registry.records.transaction import encode_body
from toolgate.registry.replication.sync import HistoryPosition
from toolgate.registry.store.sql_store import Store
from toolgate.surfaces.grpc.dispatch import Rpc, RpcCall, node_rpc, response_type, rpc
from toolgate.surfaces.grpc.messages import encode_message, list_kept_members, parse_message

BOOKMARK_S: Final = 5.0
"""The pause between bookmarks. A watcher that gets nothing for much longer has lost its connection."""


async def watch_batches(
    store: Store, since: HistoryPosition, *, kind: Kind | None = None, idle_s: float = BOOKMARK_S
) -> AsyncGenerator[ChangeBatch, None]:
    """Batches of `kind` after `since` (None: of all kinds); see `Store.watch`.

    A bookmark follows the replay, and later each `idle_s` without a batch. Raises Compacted if the epoch is
    neither the store's nor empty. Raises StorageUnavailable when a bookmark is due and this process cannot
    tell whether another replica has committed.
    """
    if since.epoch and since.epoch != store.epoch:
        raise Compacted("the epoch belongs to another history of the registry")
    now_s = asyncio.get_running_loop().time
    due_s: float | None = None  # no bookmark is due before the replay has ended
    idle = ChangeBatch(revision=since.revision, digest=since.digest)
    async with store.watch(since.revision, since.digest) as batches:
        while True:
            batch = await _next_batch(batches, due_s, idle=idle)
            if batch is None:
                return
            idle = ChangeBatch(revision=batch.revision, digest=batch.digest)
            narrowed = batch if kind is None else filter_batch(batch, (kind,))
            is_bookmark = not batch.changes
            if is_bookmark and not store.is_current:
                raise StorageUnavailable("the control plane has lost its database")
            if is_bookmark or narrowed.changes or (due_s is not None and due_s <= now_s()):
                yield narrowed
                due_s = now_s() + idle_s if is_bookmark or due_s is not None else None


async def _next_batch(
    batches: AsyncIterator[ChangeBatch], due_s: float | None, *, idle: ChangeBatch
) -> ChangeBatch | None:
    """The next batch, or `idle` if none arrived by `due_s`. None: the store was closed.

    Cancelling a watch while it waits loses nothing: its cursor moves only when it returns a batch.
    """
    try:
        async with asyncio.timeout_at(due_s):
            return await anext(batches, None)
    except TimeoutError:
        return idle


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordService:
    """The service for records of one kind. Its methods are handlers."""

    kind: Kind
    service: str
    noun: str
    """The last part of its RPCs' names."""
    sent: str
    """The field of an upsert with the record."""
    id_field: str
    """The field of a delete with the id."""
    readers: tuple[Role, ...] = ("viewer",)

    def rpcs(self) -> tuple[Rpc, Rpc, Rpc, Rpc]:
        """The rows of the service."""
        writer = WRITER_ROLES[self.kind]
        return (
            rpc(self.service, f"List{self.noun}s", *self.readers)(self.list),
            rpc(self.service, f"Watch{self.noun}s", *self.readers)(self.watch),
            rpc(self.service, f"Upsert{self.noun}", writer)(self.upsert),
            rpc(self.service, f"Delete{self.noun}", writer)(self.delete),
        )

    async def list(self, call: RpcCall[Any]) -> Message:
        """All records, sorted by id, at one revision. Secrets are masked, except for a node."""
        asked, store = call.request, call.control.store
        is_newest = (asked.epoch, asked.since_revision) == (store.epoch, store.revision)
        if asked.may_omit_unchanged and is_newest and asked.digest in ("", store.digest):
            members = {"revision": asked.since_revision, "epoch": asked.epoch, "digest": store.digest}
            return self._response(f"List{self.noun}s", **members, unchanged=True)
        listing = await store.list(self.kind)
        # In a thread: encoding thousands of records would block the event loop.
        return await asyncio.to_thread(self._show, listing, is_masked=call.caller.role != "node")

    async def watch(self, call: RpcCall[Any]) -> AsyncGenerator[Message, None]:
        """The ids that each transaction since `since_revision` wrote and removed, then those of new ones."""
        asked, caller = call.request, call.caller
        # Many nodes may share one key.
        place = nullcontext() if caller.role == "node" else call.control.watches.admit(caller)
        since = HistoryPosition(asked.epoch, asked.since_revision, asked.digest)
        batches = watch_batches(call.control.store, since, kind=self.kind)
        with place:
            async with aclosing(batches):
                async for batch in batches:
                    yield self._response(f"Watch{self.noun}s", event=_encode_batch(batch))

    async def upsert(self, call: RpcCall[Any]) -> Message:
        """Create or replace the record. A masked value (`***`) that is sent back keeps the stored secret."""
        message = getattr(call.request, self.sent)
        body = parse_message(message)
        draft = PendingChange(
            kind=self.kind,
            id=parse_sent_id(self.kind, body),
            sent=body,
            if_revision=_if_revision(call.request),
            keeping=list_kept_members(message),
        )
        done = await commit_changes(call.control, call.caller, [draft], plan_id=call.request.plan or None)
        return self._response(f"Upsert{self.noun}", revision=done.revision, warnings=done.warnings)

    async def delete(self, call: RpcCall[Any]) -> Message:
        """Delete the record. The warnings name the records that still refer to it."""
        draft = PendingChange(
            kind=self.kind,
            id=parse_id(self.kind, getattr(call.request, self.id_field)),
            sent=None,
            if_revision=_if_revision(call.request),
        )
        done = await commit_changes(call.control, call.caller, [draft], plan_id=call.request.plan or None)
        return self._response(f"Delete{self.noun}", revision=done.revision, warnings=done.warnings)

    def _show(self, listing: RecordList, *, is_masked: bool) -> Message:
        shown = []
        for stored in listing.records:
            body = show_record(stored) if is_masked else fill_defaults(stored)
            message: Any = encode_message(stored.kind, body)
            message.revision, message.updated_at_ms = stored.revision, stored.updated_at_ms
            shown.append(message)
        members = {"revision": listing.revision, "epoch": listing.epoch, "digest": listing.digest}
        return self._response(f"List{self.noun}s", **members, **{f"{self.kind}s": shown})

    def _response(self, method: str, **members: Any) -> Message:
        return response_type(self.service, method)(**members)


def _encode_batch(batch: ChangeBatch) -> dict[str, Any]:
    ids: dict[str, list[str]] = {"put": [], "delete": []}
    for change in batch.changes:
        ids[change.operation].append(change.id)
    return {
        "revision": batch.revision,
        "upserts": ids["put"],
        "deletes": ids["delete"],
        "digest": batch.digest,
    }


def _if_revision(request: Any) -> int | None:
    return request.if_revision if request.HasField("if_revision") else None


PART_BYTES: Final = 1024 * 1024  # far below the limit of a node, because a part may exceed it by one record
MAX_BATCH_BYTES: Final = 12 * 1024 * 1024
"""Nodes accept messages of 16 MiB. After a larger transaction they list all records."""
_MANY_CHANGES: Final = 100  # as `PARSED_AT_ONCE` of nodes: encoding more would delay all callers


@node_rpc("ListRecords")
async def list_records(call: RpcCall[node_pb2.ListRecordsRequest]) -> AsyncGenerator[Message, None]:
    """All records of all kinds at one revision, in parts."""
    listing = await call.control.store.list()
    # Each part is encoded after the one before it was sent, so other calls run in between.
    parts = _split_listing(listing)
    part = next(parts)
    for following in parts:
        yield part
        part = following
    part.is_last = True
    yield part


def _split_listing(listing: RecordList) -> Iterator[node_pb2.ListRecordsResponse]:
    """At least one part, none much larger than `PART_BYTES` unless a single record is."""
    new_part = partial(
        node_pb2.ListRecordsResponse, epoch=listing.epoch, revision=listing.revision, digest=listing.digest
    )
    size, part = 0, new_part()
    for stored in listing.records:
        record = _encode_stored(stored.kind, stored.id, stored.body)
        if size and size + record.ByteSize() > PART_BYTES:
            yield part
            size, part = 0, new_part()
        size += record.ByteSize()
        part.records.append(record)
    yield part


@node_rpc("WatchRecords")
async def watch_records(call: RpcCall[node_pb2.WatchRecordsRequest]) -> AsyncGenerator[Message, None]:
    """Each transaction since `since_revision`, complete with the bodies it wrote, then new ones."""
    asked = call.request
    since = HistoryPosition(asked.epoch, asked.since_revision, asked.digest)
    batches = watch_batches(call.control.store, since)
    async with aclosing(batches):
        async for batch in batches:
            if len(batch.changes) < _MANY_CHANGES:
                yield _encode_transaction(batch)
            else:
                yield await asyncio.to_thread(_encode_transaction, batch)


def _encode_transaction(batch: ChangeBatch) -> node_pb2.WatchRecordsResponse:
    changes = [_encode_stored(change.kind, change.id, change.after) for change in batch.changes]
    message = node_pb2.WatchRecordsResponse(revision=batch.revision, changes=changes, digest=batch.digest)
    if message.ByteSize() > MAX_BATCH_BYTES:
        raise Compacted(f"transaction {batch.revision} is too large for one message")
    return message


def _encode_stored(kind: Kind, record_id: str, body: Body | None) -> node_pb2.Record:
    raw = None if body is None else encode_body(body).encode()
    return node_pb2.Record(kind=kind, id=record_id, body=raw)


@node_rpc("ReadArtifact")
async def read_artifact(call: RpcCall[node_pb2.ReadArtifactRequest]) -> AsyncGenerator[Message, None]:
    """A package's archive in pieces, for a node that starts a server from it."""
    asked, artifacts = call.request, call.control.artifacts
    stored = await artifacts.get(asked.package_id, asked.version)
    if stored.sha256 != asked.sha256:
        raise NotFound("the stored version has another hash")
    async for piece in artifacts.read(asked.package_id, asked.version):
        yield node_pb2.ReadArtifactResponse(content=piece)


@node_rpc("ReadModule")
async def read_module(call: RpcCall[node_pb2.ReadModuleRequest]) -> AsyncGenerator[Message, None]:
    """A module in pieces, for a node that runs it."""
    async for piece in call.control.modules.read(call.request.sha256):
        yield node_pb2.ReadModuleResponse(content=piece)


_POLICY_KINDS: Final[Mapping[Kind, str]] = {"task": "Task", "profile": "Profile", "pin": "Pin"}
_SERVICES: Final = (
    RecordService(
        kind="server",
        service="sms.McpRegistryService",
        noun="McpServer",
        sent="record",
        id_field="server_id",
        readers=("viewer", "node"),
    ),
    *(
        RecordService(kind=kind, service=f"toolgate.v1.{noun}Service", noun=noun, sent=kind, id_field="id")
        for kind, noun in _POLICY_KINDS.items()
    ),
)
RECORD_RPCS: Final[tuple[Rpc, ...]] = (
    *(row for service in _SERVICES for row in service.rpcs()),
    *(list_records, watch_records, read_artifact, read_module),
)
