"""How nodes follow the registry: all records as they are stored, secrets included, for the role `node` only.

Also how they get archives of packages and modules of workloads.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Final

from google.protobuf.message import Message

from toolgate.errors import Compacted, NotFound
from toolgate.govern.control import Control
from toolgate.model.revisions import Body, ChangeBatch, Kind, RecordList
from toolgate.proto import node_pb2
from toolgate.registry.records.transaction import encode_body
from toolgate.registry.replication.sync import HistoryPosition
from toolgate.surfaces.grpc.collection import watch_batches
from toolgate.surfaces.grpc.reports import MAX_REPORT_BYTES, ReportReceiver
from toolgate.surfaces.grpc.rpc import Rpc, RpcCall, node_rpc

PART_BYTES: Final = 1024 * 1024
MAX_BATCH_BYTES: Final = 12 * 1024 * 1024
"""Nodes take messages of 16 MiB. A transaction of more than this is followed by listing."""
_MANY_CHANGES: Final = 100


@node_rpc("ListRecords")
async def list_records(
    control: Control, _call: RpcCall[node_pb2.ListRecordsRequest]
) -> AsyncGenerator[Message, None]:
    """All records of all kinds at one revision, in parts."""
    listing = await control.store.list()
    # Each part is made when the one before it was sent, so other calls have their turn in between.
    parts = _split_listing(listing)
    part = next(parts)
    for following in parts:
        yield part
        part = following
    part.is_last = True
    yield part


def _split_listing(listing: RecordList) -> Iterator[node_pb2.ListRecordsResponse]:
    """At least one; none is much larger than `PART_BYTES`, unless a single record is."""
    size = 0
    part = _new_part(listing)
    for stored in listing.records:
        record = _encode_record(stored.kind, stored.id, stored.body)
        if size and size + record.ByteSize() > PART_BYTES:
            yield part
            size = 0
            part = _new_part(listing)
        size += record.ByteSize()
        part.records.append(record)
    yield part


def _new_part(listing: RecordList) -> node_pb2.ListRecordsResponse:
    return node_pb2.ListRecordsResponse(epoch=listing.epoch, revision=listing.revision, digest=listing.digest)


@node_rpc("WatchRecords")
async def watch_records(
    control: Control, call: RpcCall[node_pb2.WatchRecordsRequest]
) -> AsyncGenerator[Message, None]:
    """Each transaction after `since_revision` whole, with the bodies it wrote, and then those to come."""
    asked = call.request
    batches = watch_batches(control.store, HistoryPosition(asked.epoch, asked.since_revision, asked.digest))
    async with aclosing(batches):
        async for batch in batches:
            if len(batch.changes) < _MANY_CHANGES:
                yield _encode_batch(batch)
            else:
                yield await asyncio.to_thread(_encode_batch, batch)


def _encode_batch(batch: ChangeBatch) -> node_pb2.WatchRecordsResponse:
    changes = [_encode_record(change.kind, change.id, change.after) for change in batch.changes]
    message = node_pb2.WatchRecordsResponse(revision=batch.revision, changes=changes, digest=batch.digest)
    if message.ByteSize() > MAX_BATCH_BYTES:
        raise Compacted(f"the transaction {batch.revision} is too large for one message")
    return message


def _encode_record(kind: Kind, record_id: str, body: Body | None) -> node_pb2.Record:
    raw = None if body is None else encode_body(body).encode()
    return node_pb2.Record(kind=kind, id=record_id, body=raw)


@node_rpc("ReadArtifact")
async def read_artifact(
    control: Control, call: RpcCall[node_pb2.ReadArtifactRequest]
) -> AsyncGenerator[Message, None]:
    """The archive of a package in pieces, for a node that is to start a server from it."""
    asked, artifacts = call.request, control.artifacts
    stored = await artifacts.get(asked.package_id, asked.version)
    if stored.sha256 != asked.sha256:
        raise NotFound("the version that is kept has another hash")
    async for piece in artifacts.read(asked.package_id, asked.version):
        yield node_pb2.ReadArtifactResponse(content=piece)


@node_rpc("ReadModule")
async def read_module(
    control: Control, call: RpcCall[node_pb2.ReadModuleRequest]
) -> AsyncGenerator[Message, None]:
    """A module in pieces, for a node that is to run it."""
    async for piece in control.modules.read(call.request.sha256):
        yield node_pb2.ReadModuleResponse(content=piece)


def node_record_rpcs() -> tuple[Rpc, ...]:
    """The rows of the service."""
    report = node_rpc("Report", max_bytes=MAX_REPORT_BYTES)(ReportReceiver().receive)
    return (list_records, watch_records, report, read_artifact, read_module)
