"""All servers of a node behind one call: applies records, admits calls, and knows what the servers offer.

A call takes the hottest path there is: if its connection is open and there is room, it goes straight to the
connection, with no task, timer or lock. A call is sent at most once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Self

import msgspec

from toolgate.errors import NotFound, OutputTooLarge, ServerUnavailable, ToolgateError, UnknownTool
from toolgate.model.reports import HealthState
from toolgate.model.servers import EMPTY, ServerRecord, Transport
from toolgate.model.tools import Pin, Revision, ServerTools, ToolDefinition
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.contract import (
    DEFAULT_LIMITS,
    NO_CAPABILITIES,
    Acknowledgement,
    ClientChannel,
    Connector,
    Params,
    PoolLimits,
    RpcResponse,
    ServerConnection,
    SessionReplaced,
)
from toolgate.upstream.connection.messages import build_mcp_headers
from toolgate.upstream.pool.admission import ChildSlots, NodeSlots, YieldingClient
from toolgate.upstream.pool.connectors import Connectors, TrialReport, try_server
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.managed_connection import ManagedConnection, PoolContext, PoolServices
from toolgate.upstream.pool.result_cap import cap_result
from toolgate.upstream.pool.sessions import DedicatedConnections
from toolgate.upstream.pool.supervisor import ServerSupervisor

STARTS_PER_ITERATION: Final = 20  # a choice: 5,000 servers start in 250 iterations, between which calls run

_logger: Final = logging.getLogger(__name__)


class ServerResponse(msgspec.Struct, frozen=True):
    """A server's response, and the protocol revision that it follows."""

    rpc: RpcResponse
    revision: Revision


class CallOrigin(NamedTuple):
    """Where a call comes from, apart from its client."""

    session: str = ""
    """The session, for servers that keep state per session."""
    recheck: Callable[[], None] | None = None
    """Called before a request that had to wait is sent. Raises if policy now denies it."""
    principal_id: str = ""
    """The principal whose share of the node's calls it counts against."""


NO_ORIGIN: Final = CallOrigin()


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """The states of a node's servers, and the calls at each."""

    states: Mapping[str, HealthState]
    children: int = 0
    in_flight: Mapping[str, int] = field(default_factory=dict)
    queued: Mapping[str, int] = field(default_factory=dict)


class Pool:
    """The servers of a node. Enter it before anything else; leaving it stops them all."""

    is_first_hand: Final = True

    def __init__(
        self,
        connectors: Mapping[Transport, Connector],
        *,
        on_change: Callable[[str], None],
        limits: PoolLimits = DEFAULT_LIMITS,
        on_updated: Callable[[str, str], None] = lambda _server_id, _uri: None,
        metrics: Metrics | None = None,
        services: PoolServices = PoolServices(),  # noqa: B008 - frozen
    ) -> None:
        """Neither callback may raise.

        `on_change` gets the id of a server whose offer changed by itself, `on_updated` the id of a server and
        the URI of a watched resource that changed.
        """
        metrics = metrics or Metrics()
        self._context = PoolContext(
            connectors=Connectors(connectors, limits),
            limits=limits,
            services=services,
            on_change=on_change,
            on_updated=on_updated,
            metrics=metrics,
            child_slots=ChildSlots(services.max_children, on_evict=metrics.on_evicted),
        )
        self.slots = NodeSlots(limits.max_calls)
        """The node's cap on calls in flight at all servers together."""
        self._servers: dict[str, ServerSupervisor] = {}
        self._leaving: list[ServerSupervisor] = []
        self._unstarted: list[ServerSupervisor] = []
        self._dedicated: list[DedicatedConnections] = []
        self._watched: dict[str, frozenset[str]] = {}

    async def __aenter__(self) -> Self:
        self._context.clock = asyncio.get_running_loop().time
        await self._context.tasks.__aenter__()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._unstarted.clear()
        for server in (*self._servers.values(), *self._leaving):
            server.stop()
        self._servers.clear()
        drain_s = self._context.limits.drain_s
        try:
            async with asyncio.timeout(drain_s):
                # Without `exc`, which would cancel the orderly end of connections; that is bounded anyway.
                await self._context.tasks.__aexit__(None, None, None)
        except TimeoutError:
            _logger.warning("some servers did not stop within %g s", drain_s)

    # Records and offers

    def apply(self, records: Mapping[str, ServerRecord]) -> None:
        """Make the pool hold exactly `records`. Returns at once; `tools()` shows them all afterwards.

        Servers with kept definitions are connected by their first call; others start and are listed in the
        background. A server whose launch changed gets a new connection, while calls in flight finish on the
        old one. A package's offer stays visible until its next version was listed, so no caller sees an empty
        list in between. Removed and disabled servers are closed. `apply` does not call `on_change` for its
        own changes.
        """
        self._leaving = [server for server in self._leaving if not server.is_over]
        for server_id in self._servers.keys() - records.keys():
            self._retire(self._servers.pop(server_id), drain_s=0.0)
        for server_id, record in records.items():
            self._reconcile(server_id, record)
        self._dedicated = [one.dedicated for one in self._servers.values() if one.dedicated is not None]
        self._start_some()

    def _reconcile(self, server_id: str, record: ServerRecord) -> None:
        server = self._servers.get(server_id)
        is_same_launch = server is not None and server.record.launch == record.launch
        if server is not None and is_same_launch and server.record.enabled == record.enabled:
            if server.record != record:
                server.replace_record(record)
            return
        before = None
        if server is not None:
            old = server.record
            if old.package and record.package and old.enabled and record.enabled:  # another version of it
                before = server.discovery.tools
            self._retire(server, drain_s=self._context.limits.drain_s if record.enabled else 0.0)
        # After a change of launch, definitions kept under the same variable names may be of their old values.
        may_restore = record.enabled and (server is None or is_same_launch)
        kept, verified_ms = None, 0
        if may_restore and self._context.services.kept is not None:
            kept, verified_ms = self._context.services.kept.find(record)
        self._servers[server_id] = server = ServerSupervisor(
            record, self._context, before=before, kept=kept, verified_ms=verified_ms
        )
        server.watch(self._watched.get(server_id, frozenset()))
        self._unstarted.append(server)

    def _start_some(self) -> None:
        """A few in each loop iteration: thousands at once would block everything else."""
        for server in self._unstarted[:STARTS_PER_ITERATION]:
            server.start()
        del self._unstarted[:STARTS_PER_ITERATION]
        if self._unstarted:
            asyncio.get_running_loop().call_soon(self._start_some)

    def _retire(self, server: ServerSupervisor, *, drain_s: float) -> None:
        server.stop(drain_s=drain_s)
        self._leaving.append(server)

    def tools(self) -> Mapping[str, ServerTools]:
        """The known offer of each server, disabled ones included."""
        return {server_id: server.discovery.tools for server_id, server in self._servers.items()}

    def offer(self, server_id: str) -> ServerTools | None:
        server = self._servers.get(server_id)
        return None if server is None else server.discovery.tools

    def set_pins(self, pins: Mapping[str, Pin]) -> None:
        """Block calls of tools that changed since `pins` were approved, even calls that already wait.

        Calls to a pinned server wait until its new connection was listed: it may be another program.
        """
        self._context.pins = pins
        for server_id in self.unverified & pins.keys():
            self._servers[server_id].compare(pins[server_id])

    @property
    def unverified(self) -> AbstractSet[str]:
        """The servers whose visible offer they did not list themselves in this run."""
        return {server_id for server_id, server in self._servers.items() if server.is_unverified}

    def health(self) -> Mapping[str, ServerHealth]:
        return {server_id: server.health() for server_id, server in self._servers.items()}

    def load(self) -> PoolLoad:
        """The current load of all servers. Cheap, for gauges."""
        connections = (one.connection for server in self._servers.values() for one in server.connections)
        return PoolLoad(
            states={server_id: server.state for server_id, server in self._servers.items()},
            children=sum(one is not None and one.pid is not None for one in connections),
            in_flight={server_id: server.in_flight for server_id, server in self._servers.items()},
            queued={server_id: server.queued for server_id, server in self._servers.items()},
        )

    async def settled(self, server_ids: Iterable[str]) -> None:
        """Return once each server was listed, could not be listed, or has used up its time for that.

        The time runs from when the server was applied, so a queue of starts cannot make a caller wait longer.
        """
        for server_id in server_ids:
            server = self._servers.get(server_id)
            if server is None or server.attempted.is_set():
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(server.began_s + self._context.limits.first_list_wait_s):
                    await server.attempted.wait()

    async def refresh(self, server_id: str) -> None:
        """List a server again now, whatever its state. Returns when the attempt has ended."""
        server = self._servers.get(server_id)
        if server is None:
            raise NotFound(f"no server `{server_id}`")
        server.start()
        await server.refresh()

    async def test(self, record: ServerRecord) -> TrialReport:
        """Connect to the server of `record` and list it, next to the pool."""
        context = self._context
        slots = context.child_slots if record.transport == "stdio" else context.unlimited_slots
        await slots.take(None, is_urgent=True)
        try:
            return await try_server(record, context.connectors, context.limits)
        finally:
            slots.give_back()

    # Calls

    async def call(
        self,
        server_id: str,
        method: str,
        params: Params,
        *,
        tool: ToolDefinition | None = None,
        client: ClientChannel | None = None,
        origin: CallOrigin = NO_ORIGIN,
    ) -> ServerResponse:
        """Send a request, within its server's budgets. Queueing and connecting count against its time."""
        server = self._select(server_id, origin.session, client, method, params)
        clock, slots, principal_id = self._context.clock, self.slots, origin.principal_id
        until_s = clock() + server.timeout_s
        yielding: YieldingClient | None = None
        has_waited = not slots.try_take(principal_id)
        if has_waited:
            await slots.take(principal_id, until_s)
            server = self._select_again(server_id, method, params, client, origin)
        gate, connection = server.gate, server.connection
        if connection is None or not gate.try_enter():
            has_waited = True
            connection = await self._admit(server, tool, principal_id, until_s)
        server.calls += 1
        try:
            if tool is not None and (server.lister.is_unverified or server_id in self._context.pins):
                has_waited |= await self._verify(server, connection, tool, until_s)
            if has_waited and origin.recheck is not None:
                origin.recheck()
            revision = connection.server_info.revision
            headers = self._build_headers(server, connection, method, tool, params)
            # Only session-based servers send requests during a call.
            if revision == "legacy" and client is not None and client.capabilities != NO_CAPABILITIES:
                client = yielding = YieldingClient(client, gate, slots, principal_id)
            try:
                response = await connection.request(
                    method, params, timeout_s=until_s - clock(), headers=headers, client=client
                )
            except SessionReplaced:
                assert tool is not None  # only calls of tools are held
                await self._verify(server, connection, tool, until_s)
                response = await _send_again(
                    partial(connection.request, method, params, headers=headers, client=client),
                    origin,
                    until_s - clock(),
                )
        finally:
            server.last_used_s = clock()
            if yielding is not None:
                yielding.end()
            gate.leave()
            slots.release(principal_id)
            self._context.child_slots.evict()  # another server may need its child
        server.on_response(connection, method, params, response)
        if response.size > server.max_output_bytes:
            response = RpcResponse(
                result=_cap_response(method, response.result or b"", server.max_output_bytes)
            )
        return ServerResponse(response, revision)

    def _select_again(
        self, server_id: str, method: str, params: Params, client: ClientChannel | None, origin: CallOrigin, /
    ) -> ManagedConnection:
        """The connection for a call that waited for a node slot: its server may have been replaced."""
        try:
            return self._select(server_id, origin.session, client, method, params)
        except ToolgateError:
            self.slots.release(origin.principal_id)
            raise

    async def _admit(
        self, server: ManagedConnection, tool: ToolDefinition | None, principal_id: str, until_s: float, /
    ) -> ServerConnection:
        """Wait until the server has room and is connected, without the node's slot; then for a slot again.

        So a slow server uses up only its own places, and no two calls can wait for each other. Returns with
        both the place and the slot; raises with neither.
        """
        self.slots.release(principal_id)
        await server.gate.enter(until_s)
        try:
            connection = await server.connect(until_s)
            if tool is not None:
                await self._verify(server, connection, tool, until_s)
            await self.slots.take(principal_id, until_s, has_server_slot=True)
        except (ToolgateError, asyncio.CancelledError):
            server.calls += 1
            server.last_used_s = self._context.clock()
            server.gate.leave()
            self._context.child_slots.evict()
            raise
        return server.connection or connection

    def _build_headers(
        self,
        server: ManagedConnection,
        connection: ServerConnection,
        method: str,
        tool: ToolDefinition | None,
        params: Params,
        /,
    ) -> Mapping[str, str]:
        is_session = connection.server_info.revision == "legacy"
        headers = EMPTY if is_session else build_mcp_headers(method, tool, params)
        tracer = self._context.services.tracer
        if tracer is None:
            return headers
        span = tracer.current
        span.note("mcp.protocol.version", connection.server_info.version)
        span.note("network.transport", "pipe" if server.record.transport == "stdio" else "tcp")
        return {**headers, **tracer.carried()}

    async def _verify(
        self, server: ManagedConnection, connection: ServerConnection, tool: ToolDefinition, until_s: float, /
    ) -> bool:
        """Whether the call had to wait for a list: of its server, or of a pinned server's `connection`.

        Raises UnknownTool for a call that was admitted before its tool turned out to have changed.
        """
        has_waited = server.lister.is_unverified
        if has_waited:
            await server.lister.verify(until_s)
        if tool.ref.server_id not in self._context.pins:
            return has_waited
        has_waited |= await server.check_pin(connection, until_s)
        pin = self._context.pins.get(tool.ref.server_id)
        if pin is not None and tool.ref.name in pin.changed:
            raise UnknownTool(f"`{tool.ref}` changed while the call waited, and is not offered any more")
        return has_waited

    def end_session(self, session: str) -> None:
        for dedicated in self._dedicated:
            dedicated.end_session(session)

    def reconnect(self, server_id: str, principal_id: str) -> None:
        """Close connections after a login or logout of this principal (empty: all); their calls fail."""
        if server_id in self._servers:
            self._servers[server_id].reconnect(principal_id)

    def end_principal(self, principal_id: str) -> None:
        for dedicated in self._dedicated:
            dedicated.end_principal(principal_id)

    def watch(self, server_id: str, uris: frozenset[str]) -> Acknowledgement:
        """Subscribe to exactly these resources of a server.

        The pool remembers them, also for a server that does not exist yet, until `uris` is empty.
        """
        if uris:
            self._watched[server_id] = uris
        else:
            self._watched.pop(server_id, None)
        server = self._servers.get(server_id)
        return None if server is None else server.watch(uris)

    def _select(
        self, server_id: str, session: str, client: ClientChannel | None, method: str, params: Params, /
    ) -> ManagedConnection:
        try:
            server = self._servers[server_id]
        except KeyError:
            raise ServerUnavailable(f"server `{server_id}` is not registered") from None
        return server.select(session, client, method, params)


async def _send_again(
    send: Callable[..., Awaitable[RpcResponse]], origin: CallOrigin, timeout_s: float
) -> RpcResponse:
    """Send a call again that its server rejected unread, because it had ended the session."""
    if origin.recheck is not None:
        origin.recheck()
    try:
        return await send(timeout_s=timeout_s)
    except SessionReplaced as exc:
        raise ServerUnavailable("the server ends its sessions again and again; nothing was sent") from exc


def _cap_response(method: str, result: bytes, max_bytes: int) -> bytes:
    # Only the result of a tool can state that it was cut.
    if method != "tools/call":
        raise OutputTooLarge(f"the response to `{method}` has {len(result)} bytes, more than {max_bytes}")
    return cap_result(result, max_bytes)
