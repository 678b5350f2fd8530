"""The four RPCs that servers, tasks, profiles and pins have alike: list, watch, upsert, delete."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from toolgate.govern.changes.commit import commit_drafts
from toolgate.govern.changes.pending import Draft, sent_id
from toolgate.govern.changes.permissions import WRITERS
from toolgate.govern.changes.records import fill_in, show_record
from toolgate.govern.control import Control
from toolgate.model.principals import Role
from toolgate.model.revisions import Batch, Kind, Listing, Stored
from toolgate.registry.records.codec import parse_id
from toolgate.registry.replication.sync import Position
from toolgate.registry.store.contract import Store
from toolgate.surfaces.grpc.messages import encode_message, kept_members, parse_message
from toolgate.surfaces.grpc.rpc import Call, Rpc
from toolgate.surfaces.grpc.watching import watch_batches

MakeMessage = Callable[..., Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
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
    listing: MakeMessage
    watched: MakeMessage
    event: MakeMessage
    written: MakeMessage
    deleted: MakeMessage
    readers: tuple[Role, ...] = ("viewer",)

    async def list(self, control: Control, call: Call[Any]) -> Message:
        """All records, sorted by id, at one revision. Secrets are masked, except for a node."""
        asked, store = call.request, control.store
        if asked.may_omit_unchanged and _is_newest(asked, store):
            return self.listing(
                revision=asked.since_revision, epoch=asked.epoch, digest=store.digest, unchanged=True
            )
        listing = await store.list(self.kind)
        # In a thread: thousands of records take long enough for every caller to feel it.
        return await asyncio.to_thread(self._show, listing, is_masked=call.caller.role != "node")

    async def watch(self, control: Control, call: Call[Any]) -> AsyncGenerator[Message, None]:
        """The ids that each transaction after `since_revision` wrote and removed, and then those to come."""
        asked, caller = call.request, call.caller
        # A node's key may be that of a whole fleet.
        place = nullcontext() if caller.role == "node" else control.watches.admit(caller)
        since = Position(asked.epoch, asked.since_revision, asked.digest)
        batches = watch_batches(control.store, since, kind=self.kind)
        with place:
            async with aclosing(batches):
                async for batch in batches:
                    yield self.watched(event=self._event(batch))

    async def upsert(self, control: Control, call: Call[Any]) -> Message:
        """Create or replace the record. A hidden value (`***`) that is sent back stays as it is stored."""
        message = getattr(call.request, self.sent)
        body = parse_message(message)
        draft = Draft(
            kind=self.kind,
            id=sent_id(self.kind, body),
            sent=body,
            if_revision=_if_revision(call.request),
            keeping=kept_members(message),
        )
        done = await commit_drafts(control, call.caller, [draft], plan_id=call.request.plan or None)
        return self.written(revision=done.revision, warnings=done.warnings)

    async def delete(self, control: Control, call: Call[Any]) -> Message:
        """Remove the record. Whatever still names it is told in the warnings."""
        draft = Draft(
            kind=self.kind,
            id=parse_id(self.kind, getattr(call.request, self.id_field)),
            sent=None,
            if_revision=_if_revision(call.request),
        )
        done = await commit_drafts(control, call.caller, [draft], plan_id=call.request.plan or None)
        return self.deleted(revision=done.revision, warnings=done.warnings)

    def _show(self, listing: Listing, *, is_masked: bool) -> Message:
        shown = [_show(stored, is_masked=is_masked) for stored in listing.records]
        return self.listing(
            revision=listing.revision,
            epoch=listing.epoch,
            digest=listing.digest,
            **{self.listed: shown},
        )

    def _event(self, batch: Batch) -> Message:
        ids: dict[str, list[str]] = {"put": [], "delete": []}
        for change in batch.changes:
            ids[change.operation].append(change.id)
        return self.event(
            revision=batch.revision, upserts=ids["put"], deletes=ids["delete"], digest=batch.digest
        )


def _is_newest(asked: Any, store: Store) -> bool:
    """Whether there is nothing to list for who has what a request names."""
    is_there = (asked.epoch, asked.since_revision) == (store.epoch, store.revision)
    return is_there and asked.digest in ("", store.digest)


def _if_revision(request: Any) -> int | None:
    return request.if_revision if request.HasField("if_revision") else None


def _show(stored: Stored, *, is_masked: bool) -> Message:
    shown: Any = encode_message(stored.kind, show_record(stored) if is_masked else fill_in(stored))
    shown.revision, shown.updated_at_ms = stored.revision, stored.updated_at_ms
    return shown  # type: ignore[no-any-return]


def collection_rpcs(collection: Collection) -> tuple[Rpc, ...]:
    """The rows of `collection`."""
    service, noun = collection.service, collection.noun
    writers = (WRITERS[collection.kind],)
    return (
        Rpc(service=service, method=f"List{noun}s", roles=collection.readers, handler=collection.list),
        Rpc(service=service, method=f"Watch{noun}s", roles=collection.readers, handler=collection.watch),
        Rpc(service=service, method=f"Upsert{noun}", roles=writers, handler=collection.upsert),
        Rpc(service=service, method=f"Delete{noun}", roles=writers, handler=collection.delete),
    )
