"""All servers of a node behind one call: reconciles records, admits calls, hands out the picture.

The way of a call is the hottest code there is: when the link is up and there is room it goes straight to the
link, with no task, timer or lock of its own. A call is sent at most once.
"""

import asyncio
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from toolgate.errors import NotFound, OutputTooLarge, ServerUnavailable, ToolgateError, UnknownTool
from toolgate.model.reports import HealthState
from toolgate.model.servers import EMPTY, ServerRecord, Transport
from toolgate.model.snapshot import Pin
from toolgate.model.tools import Revision, ServerTools, ToolDefinition
from toolgate.telemetry import Metrics
from toolgate.telemetry.spans import Tracer
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
from toolgate.upstream.pool.admission import NodeSlots, YieldingClient
from toolgate.upstream.pool.child_slots import ChildSlots
from toolgate.upstream.pool.connectors import Connectors, TrialReport, try_server
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.kept_definitions import DeclareTools, KeptDefinitions, declare_nothing
from toolgate.upstream.pool.managed_connection import ManagedConnection, PoolContext
from toolgate.upstream.pool.result_cap import cap_result
from toolgate.upstream.pool.sessions import DedicatedConnections
from toolgate.upstream.pool.supervisor import ServerSupervisor

STARTS_PER_ITERATION: Final = 20

_logger: Final = logging.getLogger(__name__)


def _ignore_update(_server_id: str, _uri: str) -> None:
    """For a pool that nobody watches resources through."""


def _ignore_verified(_server_id: str, /) -> None:
    """For a pool whose lists are not compared with anything."""


class ServerResponse(msgspec.Struct, frozen=True):
    """What a server answered, and in which era's terms."""

    reply: RpcResponse
    era: Revision


class CallOrigin(NamedTuple):
    """What a call comes from, besides its client."""

    session: str = ""
    """Whose state a server is to use that keeps some for each session."""
    recheck: Callable[[], None] | None = None
    """Called before a request is sent that had to wait. Raises what the request is refused with by then."""
    principal_id: str = ""
    """The principal whose share of the node's calls it counts against."""


NO_ORIGIN: Final = CallOrigin()


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """How a node's servers fare, and the calls at each."""

    states: Mapping[str, HealthState]
    children: int = 0
    in_flight: Mapping[str, int] = field(default_factory=dict)
    queued: Mapping[str, int] = field(default_factory=dict)


class LazyStart(NamedTuple):
    """What lets a pool start servers late and end them early."""

    known: KeptDefinitions | None = None
    """What servers offered in earlier runs. None: each is connected at once, to be listed."""
    declared: DeclareTools = declare_nothing
    """What packages say of their servers' tools, for servers that never ran."""
    on_verified: Callable[[str], None] = _ignore_verified
    """Told the id of a server that has listed, for the first time in this run, what was known of it."""
    max_children: Callable[[], int] = lambda: sys.maxsize
    """How many children there may be at once."""


class Pool:
    """The servers of a node. Enter it before anything else; leaving it stops them all."""

    is_first_hand: Final = True

    def __init__(
        self,
        openers: Mapping[Transport, Connector],
        *,
        on_change: Callable[[str], None],
        limits: PoolLimits = DEFAULT_LIMITS,
        on_updated: Callable[[str, str], None] = _ignore_update,
        metrics: Metrics | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Neither callback may raise.

        `on_change` is told the id of a server whose offer changed by itself, `on_updated` the id of a server
        and the URI of a watched resource that changed.
        """
        self._limits = limits
        self._openers = Connectors(openers, limits)
        self._jitter = jitter
        self._on_change = on_change
        self._on_updated = on_updated
        self._metrics = metrics or Metrics()
        self.slots = NodeSlots(limits.max_calls)
        """The node's cap on calls in flight at all servers together."""
        self._tasks = asyncio.TaskGroup()
        self._servers: dict[str, ServerSupervisor] = {}
        self._leaving: list[ServerSupervisor] = []
        self._unstarted: list[ServerSupervisor] = []
        self._sessions: list[DedicatedConnections] = []
        """Of the servers that have any."""
        self._watched: dict[str, frozenset[str]] = {}
        self._pins: Mapping[str, Pin] = {}
        self.lazy = LazyStart()
        """What lets servers start late and end early. To be set before the pool is entered."""
        self.tracing: Tracer | None = None
        """What calls are spans of: a server behind a URL gets the current one in its headers."""

    async def __aenter__(self) -> Self:
        self._clock = asyncio.get_running_loop().time
        await self._tasks.__aenter__()
        self._places = ChildSlots(self.lazy.max_children, on_evict=self._metrics.on_evicted)
        self._around = PoolContext(
            openers=self._openers,
            limits=self._limits,
            jitter=self._jitter,
            on_change=self._on_change,
            on_updated=self._on_updated,
            metrics=self._metrics,
            tasks=self._tasks,
            clock=self._clock,
            pins=lambda: self._pins,
            places=self._places,
            known=self.lazy.known,
            declared=self.lazy.declared,
            on_verified=self.lazy.on_verified,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unstarted.clear()
        for server in (*self._servers.values(), *self._leaving):
            server.stop()
        self._servers.clear()
        try:
            async with asyncio.timeout(self._limits.drain_s):
                # Not told of `exc`: it would cancel the links' orderly end, which is bounded anyway.
                await self._tasks.__aexit__(None, None, None)
        except TimeoutError:
            _logger.warning("some servers did not stop within %g s", self._limits.drain_s)

    # Records and what became of them

    def apply(self, records: Mapping[str, ServerRecord]) -> None:
        """Make the pool hold exactly `records`. Returns at once; `tools()` shows them all afterwards.

        Servers that are known from an earlier run are connected by their first call, others are started and
        listed in the background. One whose launch changed gets a new link, while
        calls in flight finish on the old; what a package's server offered is shown until its next version
        was listed, so that nobody sees an empty list in between. Removed and disabled ones are closed.
        `on_change` is not called for what `apply` itself changes.
        """
        self._leaving = [server for server in self._leaving if not server.is_over]
        for server_id in self._servers.keys() - records.keys():
            self._retire(self._servers.pop(server_id), drain_s=0.0)
        for server_id, record in records.items():
            self._reconcile(server_id, record)
        self._sessions = [one.sessions for one in self._servers.values() if one.sessions is not None]
        self._start_some()

    def _reconcile(self, server_id: str, record: ServerRecord) -> None:
        server = self._servers.get(server_id)
        if server is not None and _launch_key(server.record) == _launch_key(record):
            if server.record != record:
                server.replace_record(record)
            return
        before = None if server is None or not _is_upgrade(server.record, record) else server.tools
        if server is not None:
            self._retire(server, drain_s=self._limits.drain_s if record.enabled else 0.0)
        # With another launch, what was learned under the same names of variables may be of the old values.
        is_new = server is None or server.record.launch == record.launch
        kept = self.lazy.known
        known = kept.find(record) if kept is not None and record.enabled and is_new else None
        self._servers[server_id] = server = ServerSupervisor(record, self._around, before=before, known=known)
        server.watch(self._watched.get(server_id, frozenset()))
        self._unstarted.append(server)

    def _start_some(self) -> None:
        """A few in each turn of the loop: thousands at once would keep everybody else waiting."""
        for server in self._unstarted[:STARTS_PER_ITERATION]:
            server.start()
        del self._unstarted[:STARTS_PER_ITERATION]
        if self._unstarted:
            asyncio.get_running_loop().call_soon(self._start_some)

    def _retire(self, server: ServerSupervisor, *, drain_s: float) -> None:
        server.stop(drain_s=drain_s)
        self._leaving.append(server)

    def tools(self) -> Mapping[str, ServerTools]:
        """What each server offers, as far as known; disabled ones too."""
        return {server_id: server.tools for server_id, server in self._servers.items()}

    def offer(self, server_id: str) -> ServerTools | None:
        """What one server offers."""
        server = self._servers.get(server_id)
        return None if server is None else server.tools

    def hold_back(self, pins: Mapping[str, Pin]) -> None:
        """Send no call of a tool that one of `pins` says has changed, however long it has waited already.

        Nor any to a server with a pin before its new connection was listed: another program may be there.
        """
        self._pins = pins
        for server_id in self.unverified & pins.keys():
            self._servers[server_id].compare(pins[server_id])

    @property
    def unverified(self) -> AbstractSet[str]:
        """The servers that did not list themselves what is shown of them."""
        return {server_id for server_id, server in self._servers.items() if server.is_unverified}

    def health(self) -> Mapping[str, ServerHealth]:
        return {server_id: server.health() for server_id, server in self._servers.items()}

    def load(self) -> PoolLoad:
        """What servers keep busy. Cheap, for gauges."""
        links = (one.link for server in self._servers.values() for one in server.connections)
        return PoolLoad(
            states={server_id: server.state for server_id, server in self._servers.items()},
            children=sum(link is not None and link.pid is not None for link in links),
            in_flight={server_id: server.in_flight for server_id, server in self._servers.items()},
            queued={server_id: server.queued for server_id, server in self._servers.items()},
        )

    async def settled(self, server_ids: Iterable[str]) -> None:
        """Returns when each of these was listed, or failed to, once; or had its time to.

        The time runs from when the server was applied, so a queue of starts cannot make a caller wait longer.
        """
        for server_id in server_ids:
            server = self._servers.get(server_id)
            if server is None or server.attempted.is_set():
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(server.began_s + self._limits.first_list_wait_s):
                    await server.attempted.wait()

    async def refresh(self, server_id: str) -> None:
        """List a server again now, whatever its state. Returns when that has ended, well or not."""
        server = self._servers.get(server_id)
        if server is None:
            raise NotFound(f"no server `{server_id}`")
        server.start()
        await server.refresh()

    async def test(self, record: ServerRecord) -> TrialReport:
        """Connect to the server of `record` and list it, beside the pool."""
        if record.transport != "stdio":
            return await try_server(record, self._openers, self._limits)
        async with self._places.borrowed():
            return await try_server(record, self._openers, self._limits)

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
        """Ask a server, within its budgets. Queueing and connecting count against the call's own time."""
        server = self._serving(server_id, origin.session, client, method, params)
        clock, slots, principal_id = self._clock, self.slots, origin.principal_id
        until_s = clock() + server.timeout_s
        asked: YieldingClient | None = None
        has_waited = not slots.try_take(principal_id)
        if has_waited:
            await slots.take(principal_id, until_s)
            server = self._serving_again(server_id, method, params, client, origin)
        gate, link = server.gate, server.link
        if link is None or not gate.try_enter():
            has_waited = True
            link = await self._admit(server, tool, principal_id, until_s)
        server.calls += 1
        try:
            if tool is not None and (server.needs_list or server_id in self._pins):
                has_waited |= await self._vet(server, link, tool, until_s)
            if has_waited and origin.recheck is not None:
                origin.recheck()
            era = link.server_info.revision
            headers = self._headers(server, link, method, tool, params)
            # Only servers of the handshake era ask in the middle of a call.
            if era == "legacy" and client is not None and client.capabilities != NO_CAPABILITIES:
                client = asked = YieldingClient(client, gate, slots, principal_id)
            try:
                reply = await link.request(
                    method, params, timeout_s=until_s - clock(), headers=headers, client=client
                )
            except SessionReplaced:
                assert tool is not None  # only calls of tools are held
                send = partial(link.request, method, params, headers=headers, client=client)
                await self._vet(server, link, tool, until_s)
                reply = await _send_again(send, origin, until_s - clock())
        finally:
            server.last_used_s = clock()
            if asked is not None:
                asked.end()
            gate.leave()
            self._release(principal_id)
        server.on_answered(link, method, params, reply)
        if reply.size > server.max_output_bytes:
            reply = RpcResponse(result=_cap_response(method, reply.result or b"", server.max_output_bytes))
        return ServerResponse(reply, era)

    def _serving_again(
        self, server_id: str, method: str, params: Params, client: ClientChannel | None, origin: CallOrigin, /
    ) -> ManagedConnection:
        """The connection for a call that waited for a slot of the node: its server may have been replaced."""
        try:
            return self._serving(server_id, origin.session, client, method, params)
        except ToolgateError:
            self.slots.release(origin.principal_id)
            raise

    def _release(self, principal_id: str) -> None:
        """A call has ended: another may have its slot, and another server its child."""
        self.slots.release(principal_id)
        self._places.evict()

    async def _admit(
        self, server: ManagedConnection, tool: ToolDefinition | None, principal_id: str, until_s: float, /
    ) -> ServerConnection:
        """Wait until the server has room and is connected, without the node's slot; then for one again.

        So a slow server uses up slots at itself only, and no two calls can wait for each other. Returns with
        both slots; raises with neither.
        """
        self.slots.release(principal_id)
        await server.gate.enter(until_s)
        try:
            link = await server.connected(until_s)
            if tool is not None:
                await self._vet(server, link, tool, until_s)
            await self.slots.take(principal_id, until_s, has_server_slot=True)
        except (ToolgateError, asyncio.CancelledError):
            server.calls += 1
            server.last_used_s = self._clock()
            server.gate.leave()
            self._places.evict()
            raise
        return server.link or link

    def _headers(
        self,
        server: ManagedConnection,
        link: ServerConnection,
        method: str,
        tool: ToolDefinition | None,
        params: Params,
        /,
    ) -> Mapping[str, str]:
        headers = (
            EMPTY if link.server_info.revision == "legacy" else server.headers.build(method, tool, params)
        )
        if self.tracing is None:
            return headers
        return {**headers, **_build_trace_headers(self.tracing, server, link)}

    async def _vet(
        self, server: ManagedConnection, link: ServerConnection, tool: ToolDefinition, until_s: float, /
    ) -> bool:
        """Whether the call of a tool had to wait for a list: of its server, or of `link` if that has a pin.

        Raises UnknownTool for a call that was let in before its tool turned out to have changed.
        """
        has_waited = server.needs_list
        if has_waited:
            await server.verified(until_s)
        pin = self._pins.get(tool.ref.server_id)
        if pin is None:
            return has_waited
        has_waited |= await server.listed(link, pin, until_s)
        pin = self._pins.get(tool.ref.server_id)
        if pin is not None and tool.ref.name in pin.changed:
            raise UnknownTool(f"`{tool.ref}` changed while the call waited, and is not offered any more")
        return has_waited

    def end_session(self, session: str) -> None:
        """Whatever servers keep for this session is not needed any more."""
        for sessions in self._sessions:
            sessions.end(session)

    def reconnect(self, server_id: str, principal_id: str) -> None:
        """Somebody has logged in to a server or out of it: for itself, or for all callers where it is empty.

        Links that show what was good before are closed, with the calls in flight there.
        """
        if server_id in self._servers:
            self._servers[server_id].reconnect(principal_id)

    def end_principal(self, principal_id: str) -> None:
        """Close the links that are this principal's own: it will not come again."""
        for sessions in self._sessions:
            sessions.end_all(principal_id)

    def watch(self, server_id: str, uris: frozenset[str]) -> Acknowledgement:
        """Hear from a server when one of these resources changes, and no other.

        It is remembered, also for a server that is not there yet, until there is nothing more to watch.
        """
        if uris:
            self._watched[server_id] = uris
        else:
            self._watched.pop(server_id, None)
        server = self._servers.get(server_id)
        return None if server is None else server.watch(uris)

    def _serving(
        self, server_id: str, session: str, client: ClientChannel | None, method: str, params: Params, /
    ) -> ManagedConnection:
        try:
            server = self._servers[server_id]
        except KeyError:
            raise ServerUnavailable(f"server `{server_id}` is not registered") from None
        return server.serving(session, client, method, params)


async def _send_again(
    send: Callable[..., Awaitable[RpcResponse]], origin: CallOrigin, timeout_s: float
) -> RpcResponse:
    """Send a call once more that its server refused unread, because it had ended the session."""
    if origin.recheck is not None:
        origin.recheck()
    try:
        return await send(timeout_s=timeout_s)
    except SessionReplaced as exc:
        raise ServerUnavailable("the server ends its sessions again and again; nothing was sent") from exc


def _build_trace_headers(
    tracing: Tracer, server: ManagedConnection, link: ServerConnection
) -> Mapping[str, str]:
    """The headers by which a server goes on with the current span, which is told how that is reached."""
    span = tracing.current
    span.note("mcp.protocol.version", link.server_info.version)
    span.note("network.transport", "pipe" if server.record.transport == "stdio" else "tcp")
    return tracing.carried()


def _is_upgrade(before: ServerRecord, after: ServerRecord) -> bool:
    """Whether it is the same package, of another version: not just any program in place of another."""
    return None not in (before.package, after.package) and before.enabled and after.enabled


def _launch_key(record: ServerRecord) -> tuple[object, ...]:
    return (record.enabled, record.launch)


def _cap_response(method: str, result: bytes, max_bytes: int) -> bytes:
    # Only the result of a tool has a form that says it was cut.
    if method != "tools/call":
        raise OutputTooLarge(f"the answer to `{method}` has {len(result)} bytes, more than {max_bytes}")
    return cap_result(result, max_bytes)
