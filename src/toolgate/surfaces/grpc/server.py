"""The gRPC listener: which RPCs it has, what it bounds, how it closes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

from toolgate.errors import StartRefused
from toolgate.govern.control import Control
from toolgate.model.http import is_loopback, parse_address
from toolgate.surfaces.grpc.collection import RECORD_RPCS
from toolgate.surfaces.grpc.coordination import coordination_rpcs
from toolgate.surfaces.grpc.dispatch import RpcDispatcher
from toolgate.surfaces.grpc.invocations import INVOCATION_RPCS
from toolgate.surfaces.grpc.node_records import node_record_rpcs
from toolgate.surfaces.grpc.reports import MAX_REPORT_BYTES
from toolgate.surfaces.grpc.rpc import Rpc
from toolgate.surfaces.grpc.spear_tasks import SPEAR_TASK_RPCS
from toolgate.surfaces.grpc.standard_services import health_rpcs, reflection_rpc

DRAIN_S: Final = 5.0
"""How long answers under way may take once the listener closes."""
MAX_CALLS: Final = 20_000
"""At once, watches included; past that a call is refused with RESOURCE_EXHAUSTED."""
MAX_CALLS_PER_CONNECTION: Final = 2_000

_IDENTITY_ONLY: Final = 1
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_REPORT_BYTES),
    ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
    # A message is as large as it looks: no client can send a small one that unpacks to a huge one.
    ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
    # Two processes on one port would share its callers between them.
    ("grpc.so_reuseport", 0),
    # A watcher that has gone without a word is noticed, and nodes may look for us as often.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What a listener proves itself with, in PEM."""

    certificate: bytes
    private_key: bytes


@asynccontextmanager
async def open_grpc_server(control: Control, address: str, *, tls: Tls | None = None) -> AsyncIterator[str]:
    """Serve on `address` within the block, which gets it with the port that was bound. Raises StartRefused.

    `address` is `HOST:PORT` or `[IPV6]:PORT`; the port may be 0. Reflection, and trust in callers
    without a credential, end at loopback.
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
        await server.stop(DRAIN_S)


def list_rpcs(*, with_reflection: bool) -> tuple[Rpc, ...]:
    """Every RPC of a listener."""
    rows = (*RECORD_RPCS, *SPEAR_TASK_RPCS, *node_record_rpcs(), *INVOCATION_RPCS, *coordination_rpcs())
    rows += health_rpcs(sorted({one.service for one in rows}))
    return (*rows, reflection_rpc({one.service for one in rows})) if with_reflection else rows


def _bind(server: grpc.aio.Server, address: str, tls: Tls | None) -> int:
    try:
        if tls is None:
            return server.add_insecure_port(address)
        credentials = grpc.ssl_server_credentials([(tls.private_key, tls.certificate)])
        return server.add_secure_port(address, credentials)
    except RuntimeError as exc:
        raise StartRefused(
            f"cannot listen for gRPC on `{address}`",
            hint="choose a free port with `grpc.listen`, and a certificate that belongs to its key",
        ) from exc
