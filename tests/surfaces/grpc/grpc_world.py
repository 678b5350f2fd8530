"""A gateway in memory with both its REST and its gRPC surface, the latter over real connections."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.surfaces.rest_world import RestWorld, open_rest, secret_of
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.revisions import ChangeBatch, RecordChange
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.registry.store.sql_store import Store
from toolgate.surfaces.grpc.dispatch import Rpc
from toolgate.surfaces.grpc.server import list_rpcs, open_grpc_server

DEADLINE_S: Final = 240
"""Of every call in a test; those that stream have it as a whole."""
TABLE: Final = {rpc.path.removeprefix("/"): rpc for rpc in list_rpcs(with_reflection=True)}
SERVERS: Final = "sms.McpRegistryService"


@dataclass
class GrpcWorld:
    """Everything a gRPC test looks at."""

    rest: RestWorld
    address: str
    channel: Any
    """A `grpc.aio.Channel`, which the checker would have typed for each message."""
    streams: list[Any] = field(default_factory=list)

    async def request(self, rpc: str, request: Message, *, key: str | None = None, **options: Any) -> Any:
        """The answer of a unary RPC, `Service/Method`."""
        row = TABLE[rpc]
        call = self.channel.unary_unary(
            row.path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=_response_type(row).FromString,
        )
        return await call(request, metadata=credential(key), timeout=DEADLINE_S, **options)

    def stream(
        self, rpc: str, request: Message, *, key: str | None = None, timeout_s: float | None = DEADLINE_S
    ) -> Any:
        """The call of a streaming RPC: iterate over it, and cancel it."""
        row = TABLE[rpc]
        call = self.channel.unary_stream(
            row.path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=_response_type(row).FromString,
        )
        self.streams.append(call(request, metadata=credential(key), timeout=timeout_s))
        return self.streams[-1]

    async def upsert(self, record: sms.McpServerRecord, *, key: str | None = None, **fields: Any) -> int:
        """The revision at which a server was stored."""
        request = sms.UpsertMcpServerRequest(record=record, **fields)
        revision: int = (await self.request(f"{SERVERS}/UpsertMcpServer", request, key=key)).revision
        return revision

    async def servers(self, *, key: str | None = None) -> dict[str, sms.McpServerRecord]:
        """All servers, by id."""
        listing = await self.request(f"{SERVERS}/ListMcpServers", sms.ListMcpServersRequest(), key=key)
        return {one.server_id: one for one in listing.servers}

    @property
    def store(self) -> Store:
        return self.rest.store


def credential(key: str | None) -> tuple[tuple[str, str], ...]:
    return () if key is None else (("authorization", f"Bearer {key}"),)


def server_message(server_id: str, **fields: Any) -> sms.McpServerRecord:
    """A server that is started by a command; all its tools are allowed."""
    needed: dict[str, Any] = {
        "server_id": server_id,
        "transport": sms.MCP_TRANSPORT_STDIO,
        "stdio": sms.McpStdioConfig(command="serve"),
        "allowed_tools": ["*"],
    }
    return sms.McpServerRecord(**needed | fields)


def refusal_of(exc: grpc.aio.AioRpcError) -> tuple[str, str]:
    """Status, and the code in the trailing metadata."""
    metadata = dict(exc.trailing_metadata() or ())
    return exc.code().name, str(metadata.get("toolgate-code", ""))


def error_data(exc: grpc.aio.AioRpcError) -> Any:
    """The error in full, as JSON in the trailing metadata."""
    return json.loads(dict(exc.trailing_metadata())["toolgate-error-bin"])


@asynccontextmanager
async def open_grpc_world(*, address: str = "127.0.0.1:0", **options: Any) -> AsyncIterator[GrpcWorld]:
    """A world with a key for each role, that of nodes included, and nothing else in its registry."""
    async with open_rest(**options) as rest:
        if await rest.store.get("key", "node") is None:
            key = {"key_id": "node", "role": "node", "sha256": hash_key(secret_of("node"))}
            await rest.seed(key=[key])
        async with (
            open_grpc_server(rest.control, address) as bound,
            grpc.aio.insecure_channel(bound.replace("0.0.0.0", "127.0.0.1")) as channel,
        ):
            world = GrpcWorld(rest, bound, channel)
            yield world
            for stream in world.streams:
                stream.cancel()
                await stream.code()


def _response_type(rpc: Rpc) -> type[Message]:
    return GetMessageClass(rpc.descriptor.output_type)


def batch_of(message: Any) -> ChangeBatch:
    """A light event or a whole transaction as the batch it means, as far as it says."""
    if hasattr(message, "event"):
        event = message.event
        pairs = [(one, "put") for one in event.upserts] + [(one, "delete") for one in event.deletes]
        changes = [
            _change(event.revision, "server", record_id, {} if how == "put" else None)
            for record_id, how in pairs
        ]
        return ChangeBatch(revision=event.revision, changes=tuple(changes))
    changes = [
        _change(message.revision, one.kind, one.id, json.loads(one.body) if one.HasField("body") else None)
        for one in message.changes
    ]
    return ChangeBatch(revision=message.revision, changes=tuple(changes))


def _change(revision: int, kind: Any, record_id: str, after: Any) -> RecordChange:
    return RecordChange(
        revision=revision,
        kind=kind,
        id=record_id,
        operation="delete" if after is None else "put",
        actor="",
        at_ms=0,
        before=None,
        after=after,
    )
