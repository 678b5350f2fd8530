"""The four RPCs that servers, tasks, profiles and pins share: list, watch, upsert, delete.

SPEAR's service for servers, and services that work like it for the others. A watch sends what was changed,
never what it is now, and a bookmark while nothing changes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from toolgate.errors import Compacted, StorageUnavailable
from toolgate.govern.changes.commit import commit_changes
from toolgate.govern.changes.permissions import WRITER_ROLES
from toolgate.govern.changes.records import PendingChange, fill_defaults, parse_sent_id, show_record
from toolgate.govern.control import Control
from toolgate.govern.watches import filter_batch
from toolgate.model.principals import Role
from toolgate.model.revisions import ChangeBatch, Kind, RecordList, StoredRecord
from toolgate.registry.records.codec import parse_id
from toolgate.registry.replication.sync import HistoryPosition
from toolgate.registry.store.sql_store import Store
from toolgate.surfaces.grpc.messages import encode_message, list_kept_members, parse_message
from toolgate.surfaces.grpc.rpc import Rpc, RpcCall, response_type, rpc

BOOKMARK_S: Final = 5.0
"""A watcher that gets nothing for much longer than this knows that it is cut off."""


async def watch_batches(
    store: Store, since: HistoryPosition, *, kind: Kind | None = None, idle_s: float = BOOKMARK_S
) -> AsyncGenerator[ChangeBatch, None]:
    """Batches after `since` that concern `kind` (None: all); see `Store.watch`.

    After the replay comes a bookmark, and then one whenever nothing was sent for `idle_s`. Raises Compacted
    when the epoch is not the store's, unless it is empty. Raises StorageUnavailable if a bookmark would say
    that the watcher is up to date but this process cannot know, because another replica may have committed.
    """
    if since.epoch and since.epoch != store.epoch:
        raise Compacted("the registry has another history than the one of this epoch")
    now_s = asyncio.get_running_loop().time
    due_s: float | None = None  # until the replay is over, a bookmark would say that it is
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
                raise StorageUnavailable("this control does not hear from its database")
            if is_bookmark or narrowed.changes or (due_s is not None and due_s <= now_s()):
                yield narrowed
                due_s = now_s() + idle_s if is_bookmark or due_s is not None else None


async def _next_batch(
    batches: AsyncIterator[ChangeBatch], due_s: float | None, *, idle: ChangeBatch
) -> ChangeBatch | None:
    """The next batch, or `idle` if nothing came by `due_s`. None: the store was closed.

    A watch loses nothing when it is cancelled while it waits: its cursor moves with what it returns.
    """
    try:
        async with asyncio.timeout_at(due_s):
            return await anext(batches, None)
    except TimeoutError:
        return idle


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordService:
    """All records of one kind, as a service. Its methods are handlers."""

    kind: Kind
    service: str
    noun: str
    """What the names of its RPCs end with."""
    sent: str
    """The field of an upsert that holds the record."""
    listed: str
    """The field of a listing that holds the records."""
    id_field: str
    """The field of a removal that holds the id."""
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

    async def list(self, control: Control, call: RpcCall[Any]) -> Message:
        """All records, sorted by id, at one revision. Secrets are masked, except for a node."""
        asked, store = call.request, control.store
        if asked.may_omit_unchanged and _is_newest(asked, store):
            members = {"revision": asked.since_revision, "epoch": asked.epoch, "digest": store.digest}
            return self._response(f"List{self.noun}s", **members, unchanged=True)
        listing = await store.list(self.kind)
        # In a thread: thousands of records take long enough for every caller to feel it.
        return await asyncio.to_thread(self._show, listing, is_masked=call.caller.role != "node")

    async def watch(self, control: Control, call: RpcCall[Any]) -> AsyncGenerator[Message, None]:
        """The ids that each transaction after `since_revision` wrote and removed, and then those to come."""
        asked, caller = call.request, call.caller
        # A node's key may be that of a whole fleet.
        place = nullcontext() if caller.role == "node" else control.watches.admit(caller)
        since = HistoryPosition(asked.epoch, asked.since_revision, asked.digest)
        batches = watch_batches(control.store, since, kind=self.kind)
        with place:
            async with aclosing(batches):
                async for batch in batches:
                    yield self._response(f"Watch{self.noun}s", event=_encode_batch(batch))

    async def upsert(self, control: Control, call: RpcCall[Any]) -> Message:
        """Create or replace the record. A hidden value (`***`) that is sent back stays as it is stored."""
        message = getattr(call.request, self.sent)
        body = parse_message(message)
        draft = PendingChange(
            kind=self.kind,
            id=parse_sent_id(self.kind, body),
            sent=body,
            if_revision=_if_revision(call.request),
            keeping=list_kept_members(message),
        )
        done = await commit_changes(control, call.caller, [draft], plan_id=call.request.plan or None)
        return self._response(f"Upsert{self.noun}", revision=done.revision, warnings=done.warnings)

    async def delete(self, control: Control, call: RpcCall[Any]) -> Message:
        """Remove the record. The warnings name what still refers to it."""
        draft = PendingChange(
            kind=self.kind,
            id=parse_id(self.kind, getattr(call.request, self.id_field)),
            sent=None,
            if_revision=_if_revision(call.request),
        )
        done = await commit_changes(control, call.caller, [draft], plan_id=call.request.plan or None)
        return self._response(f"Delete{self.noun}", revision=done.revision, warnings=done.warnings)

    def _show(self, listing: RecordList, *, is_masked: bool) -> Message:
        shown = [_encode_record(stored, is_masked=is_masked) for stored in listing.records]
        members = {"revision": listing.revision, "epoch": listing.epoch, "digest": listing.digest}
        return self._response(f"List{self.noun}s", **members, **{self.listed: shown})

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


def _is_newest(asked: Any, store: Store) -> bool:
    """Whether there is nothing to list for who has what a request names."""
    is_there = (asked.epoch, asked.since_revision) == (store.epoch, store.revision)
    return is_there and asked.digest in ("", store.digest)


def _if_revision(request: Any) -> int | None:
    return request.if_revision if request.HasField("if_revision") else None


def _encode_record(stored: StoredRecord, *, is_masked: bool) -> Message:
    shown: Any = encode_message(stored.kind, show_record(stored) if is_masked else fill_defaults(stored))
    shown.revision, shown.updated_at_ms = stored.revision, stored.updated_at_ms
    return shown  # type: ignore[no-any-return]


SERVERS: Final = RecordService(
    kind="server",
    service="sms.McpRegistryService",
    noun="McpServer",
    sent="record",
    listed="servers",
    id_field="server_id",
    readers=("viewer", "node"),
)


def _policy_service(kind: Kind) -> RecordService:
    noun = kind.capitalize()
    return RecordService(
        kind=kind,
        service=f"toolgate.v1.{noun}Service",
        noun=noun,
        sent=kind,
        listed=f"{kind}s",
        id_field="id",
    )


RECORD_RPCS: Final[tuple[Rpc, ...]] = (
    *SERVERS.rpcs(),
    *(row for kind in ("task", "profile", "pin") for row in _policy_service(kind).rpcs()),
)
