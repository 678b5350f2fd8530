"""The gRPC listener, its limits and its shutdown, and gRPC's standard services.

Those services are health, for load balancers, and reflection. A draining listener ends the watches of its
health. Reflection is never served beyond loopback.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2 as health
from grpc_reflection.v1alpha import reflection

from toolgate.errors import NotFound, SessionLimit, StartRefused
from toolgate.govern.control import Control
from toolgate.model.http import is_loopback, parse_address
from toolgate.surfaces.grpc.collection import RECORD_RPCS
from toolgate.surfaces.grpc.coordination import coordination_rpcs
from toolgate.surfaces.grpc.dispatch import Rpc, RpcCall, RpcDispatcher, rpc
from toolgate.surfaces.grpc.reports import MAX_REPORT_BYTES, report_rpcs
from toolgate.surfaces.grpc.spear_tasks import SPEAR_TASK_RPCS

DRAIN_S: Final = 5.0
"""How long responses in flight may take after the listener closes."""
MAX_CALLS: Final = 20_000
"""Concurrent calls, including watches. Beyond it, calls fail with RESOURCE_EXHAUSTED."""
MAX_CALLS_PER_CONNECTION: Final = 2_000  # a tenth of `MAX_CALLS`: one client leaves room for others

_IDENTITY_ONLY: Final = 1  # one bit for each algorithm; the first is no compression
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_REPORT_BYTES),
    ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
    # Without compression, no client can send a small message that unpacks to a huge one.
    ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
    # Otherwise two processes on one port would share its clients.
    ("grpc.so_reuseport", 0),
    # Detects clients that vanished silently, and allows nodes to ping as often.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The listener's certificate and key, in PEM."""

    certificate: bytes
    private_key: bytes


@asynccontextmanager
async def open_grpc_server(
    control: Control, address: str, *, tls: Tls | None = None, drain_s: float = DRAIN_S
) -> AsyncIterator[str]:
    """Serve on `address` within the block, which gets the address with the bound port. Raises StartRefused.

    `address` is `HOST:PORT` or `[IPV6]:PORT`; the port may be 0. Only on loopback does it serve reflection
    and trust callers without a credential.
    """
    is_local = is_loopback(parse_address(address)[0])
    dispatcher = RpcDispatcher(control, list_rpcs(with_reflection=is_local), is_local=is_local)
    server = grpc.aio.server(handlers=[dispatcher], options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    port = _bind(server, address, tls)
    await server.start()
    try:
        yield f"{address.rpartition(':')[0]}:{port}"
    finally:
        dispatcher.close()
        await server.stop(drain_s)


def list_rpcs(*, with_reflection: bool) -> tuple[Rpc, ...]:
    """All RPCs of a listener."""
    rows = (*RECORD_RPCS, *SPEAR_TASK_RPCS, *report_rpcs(), *coordination_rpcs())
    rows += HealthService({one.service for one in rows}).rpcs()
    return (*rows, reflection_rpc({one.service for one in rows})) if with_reflection else rows


def _bind(server: grpc.aio.Server, address: str, tls: Tls | None) -> int:
    try:
        if tls is None:
            return server.add_insecure_port(address)
        credentials = grpc.ssl_server_credentials([(tls.private_key, tls.certificate)])
        return server.add_secure_port(address, credentials)
    except RuntimeError as exc:
        raise StartRefused(
            f"cannot listen for gRPC on `{address}`: the port is in use, or certificate and key do not match",
            hint="set `grpc.listen` to a free port; check `grpc.cert_file` and `grpc.key_file`",
        ) from exc


MAX_WATCHES: Final = 1_000
"""The limit of health watches: they need no credential, and must not use up all calls."""

_SERVING: Final[Message] = health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING)
_UNKNOWN: Final[Message] = health.HealthCheckResponse(status=health.HealthCheckResponse.SERVICE_UNKNOWN)


class HealthService:
    """The health of the services of one listener."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(("", *services))  # the empty name: all services together
        self._watches = 0

    def rpcs(self) -> tuple[Rpc, ...]:
        """The rows of the service."""
        service = "grpc.health.v1.Health"
        return (
            rpc(service, "Check")(self.check),
            rpc(service, "List")(self.list),
            rpc(service, "Watch")(self.watch),
        )

    async def check(self, call: RpcCall[health.HealthCheckRequest]) -> Message:
        """Whether a service is serving; with an empty name, whether all are."""
        if call.request.service not in self._services:
            raise NotFound("the gateway has no such service", hint="list the services with `Health/List`")
        return _SERVING

    async def list(self, _call: RpcCall[health.HealthListRequest]) -> Message:
        """As `Check`, for all services."""
        response: Message = health.HealthListResponse(statuses=dict.fromkeys(self._services, _SERVING))
        return response

    async def watch(self, call: RpcCall[health.HealthCheckRequest]) -> AsyncGenerator[Message, None]:
        """As `Check`; then the stream stays open until the service ends."""
        if self._watches >= MAX_WATCHES:
            raise SessionLimit(f"the gateway has reached its limit of {MAX_WATCHES} health watches")
        self._watches += 1
        try:
            yield _SERVING if call.request.service in self._services else _UNKNOWN
            await asyncio.Event().wait()
        finally:
            self._watches -= 1


def reflection_rpc(services: Iterable[str]) -> Rpc:
    """The reflection RPC, by which tools find services and messages."""
    servicer = reflection.aio.ReflectionServicer((*services, reflection.SERVICE_NAME))

    @rpc(reflection.SERVICE_NAME, "ServerReflectionInfo", "agent")
    async def list_definitions(call: RpcCall[AsyncIterator[Message]]) -> AsyncGenerator[Message, None]:
        """The services and the definitions of their messages."""
        async with aclosing(servicer.ServerReflectionInfo(call.request, None)) as responses:
            async for response in responses:
                yield response

    return list_definitions
