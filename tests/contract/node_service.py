"""`toolgate.v1.NodeService` over any store, as small as it can be, on a real gRPC server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio
import msgspec

from toolgate.errors import Compacted, WatchLagged
from toolgate.model.revisions import ChangeBatch
from toolgate.proto import node_pb2
from toolgate.registry.store.sql_store import Store

KEY: Final = "tg_node_0123456789abcdefghijklmnopqrstuvwxyz"
Context = grpc.aio.ServicerContext[Any, Any]


class NodeService:
    """What it does (set these), and what it saw (read those)."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.part_size = 2
        self.bookmark_s = 5.0
        self.wanted: Sequence[str] = ()
        self.extra_records: list[node_pb2.Record] = []
        """Listed next to those of the store."""
        self.reports: list[node_pb2.ReportRequest] = []
        self.lists = 0
        self.watches = 0

    async def list_records(
        self, _request: node_pb2.ListRecordsRequest, context: Context
    ) -> AsyncIterator[node_pb2.ListRecordsResponse]:
        await _authenticate(context)
        self.lists += 1
        listing = await self.store.list()
        records = [
            *(
                node_pb2.Record(kind=one.kind, id=one.id, body=msgspec.json.encode(one.body))
                for one in listing.records
            ),
            *self.extra_records,
        ]
        size = self.part_size
        parts = [records[at : at + size] for at in range(0, len(records), size)] or [[]]
        for number, part in enumerate(parts, start=1):
            yield node_pb2.ListRecordsResponse(
                epoch=listing.epoch,
                revision=listing.revision,
                records=part,
                is_last=number == len(parts),
            )

    async def watch_records(
        self, request: node_pb2.WatchRecordsRequest, context: Context
    ) -> AsyncIterator[node_pb2.WatchRecordsResponse]:
        await _authenticate(context)
        self.watches += 1
        if request.epoch != self.store.epoch:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the epoch is another")
        try:
            async with self.store.watch(request.since_revision) as batches:
                cursor = request.since_revision
                while True:
                    try:
                        batch = await asyncio.wait_for(anext(batches), self.bookmark_s)
                    except TimeoutError:
                        batch = ChangeBatch(revision=cursor)
                    cursor = batch.revision
                    yield _encode_batch(batch)
        except StopAsyncIteration:
            return
        except Compacted as exc:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(exc))
        except WatchLagged as exc:
            await context.abort(grpc.StatusCode.ABORTED, str(exc))

    async def report(self, request: node_pb2.ReportRequest, context: Context) -> node_pb2.ReportResponse:
        await _authenticate(context)
        self.reports.append(request)
        notified = {one.server_id for one in request.definitions}
        self.wanted = [one for one in self.wanted if one not in notified]
        return node_pb2.ReportResponse(wanted=self.wanted)


def _encode_batch(batch: ChangeBatch) -> node_pb2.WatchRecordsResponse:
    return node_pb2.WatchRecordsResponse(
        revision=batch.revision,
        changes=[
            node_pb2.Record(
                kind=one.kind,
                id=one.id,
                body=None if one.after is None else msgspec.json.encode(one.after),
            )
            for one in batch.changes
        ],
    )


async def _authenticate(context: Context) -> None:
    metadata = dict(context.invocation_metadata() or ())
    if metadata.get("authorization") != f"Bearer {KEY}":
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED, "the key is unknown, revoked or expired; Bearer abcdefghijkl"
        )


@asynccontextmanager
async def serving(
    node_service: NodeService, *, address: str = "127.0.0.1:0", credentials: Any = None
) -> AsyncIterator[str]:
    """The address it listens on."""
    server = grpc.aio.server(options=[("grpc.http2.min_recv_ping_interval_without_data_ms", 3_000)])
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "ListRecords": grpc.unary_stream_rpc_method_handler(
            node_service.list_records,
            request_deserializer=node_pb2.ListRecordsRequest.FromString,
            response_serializer=node_pb2.ListRecordsResponse.SerializeToString,
        ),
        "WatchRecords": grpc.unary_stream_rpc_method_handler(
            node_service.watch_records,
            request_deserializer=node_pb2.WatchRecordsRequest.FromString,
            response_serializer=node_pb2.WatchRecordsResponse.SerializeToString,
        ),
        "Report": grpc.unary_unary_rpc_method_handler(
            node_service.report,
            request_deserializer=node_pb2.ReportRequest.FromString,
            response_serializer=node_pb2.ReportResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("toolgate.v1.NodeService", handlers),)
    )
    port = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace=None)
