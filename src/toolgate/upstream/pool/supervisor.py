"""Supervises one server: keeps it connected, listed and watched, and closes it while no caller needs it."""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final, Literal

import msgspec

from toolgate.errors import ServerUnavailable
from toolgate.model.json_text import UNREADABLE
from toolgate.model.protocol import UPDATED
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ListKind, Pin, ServerTools
from toolgate.upstream.connection import contract
from toolgate.upstream.pool.admission import ServerGate
from toolgate.upstream.pool.discovery import CHANGED_LISTS, ListFailed, ListResult, ServerDiscovery, read_list
from toolgate.upstream.pool.health import ServerHealth, StderrTail, wall_ms
from toolgate.upstream.pool.kept_definitions import check_declared_tools
from toolgate.upstream.pool.managed_connection import ManagedConnection, PoolContext, Step
from toolgate.upstream.pool.sessions import DedicatedConnections, RevisionChoice, SessionBasedConnection

ListOutcome = tuple[ListKind, ListResult | ListFailed]

_logger: Final = logging.getLogger(__name__)


class _ResourceUpdate(msgspec.Struct):
    uri: str


_decode_updated = msgspec.json.Decoder(_ResourceUpdate).decode


class ServerSupervisor(ManagedConnection):
    """One server under supervision. If sessions or principals have dedicated connections, it only lists."""

    def __init__(
        self,
        record: ServerRecord,
        context: PoolContext,
        *,
        before: ServerTools | None = None,
        kept: ServerTools | None = None,
        verified_ms: int = 0,
    ) -> None:
        """`before` is the offer of an earlier version, `kept` that of an earlier run: a call connects it."""
        super().__init__(record, context, stderr=StderrTail())
        self.lister = self
        self.known_revision = None if kept is None else kept.era
        self.refuses_sessions = False
        """Since the last connect, the server responded to a request for a session as a stateless one."""
        jitter = context.services.jitter
        self.discovery = ServerDiscovery(record, context.limits, jitter, before=before, kept=kept)
        self.is_unverified = kept is not None or before is not None
        """Its offer is from an earlier run or version: no tool may be called until it was listed again."""
        self.verified_ms = verified_ms
        """Wall clock at which the server last listed its tools; 0: never."""
        self._is_listing = False
        self._may_be_declared = kept is None and before is None and record.package is not None
        self._watched: frozenset[str] = frozenset()
        self._refresh: asyncio.Event | None = None
        """Set when the requested refresh has ended; None if none is requested."""
        self._listed_by: contract.ServerConnection | None = None
        """The connection that listed the tools last."""
        self._session = 0
        """Counts the sessions of all connections: a list that began in one proves nothing about the next."""
        self._logged: HealthState | Literal[""] = ""
        """The last logged state of a server that is not connected."""
        self._list_ended = asyncio.Event()
        """Set, and replaced by a new one, whenever an attempt to list has ended."""

        self.began_s = context.clock()
        self.attempted = asyncio.Event()
        """The first attempt to list its tools has ended, or they are known from an earlier run."""
        if kept is not None:
            self.attempted.set()
        self.dedicated: DedicatedConnections | None = None
        """None if all callers share the one connection, and for a disabled server."""
        if record.enabled and (record.sharing == "per_session" or record.is_per_principal):
            self.dedicated = DedicatedConnections(self)
        self._session_based: SessionBasedConnection | None = None

    # For the pool

    @property
    def is_over(self) -> bool:
        return super().is_over and all(one.is_over for one in self._others)

    def start(self) -> None:
        """Start its task, once; a disabled server has none."""
        if self.record.enabled:
            super().start()
        else:
            self.attempted.set()

    def stop(self, *, drain_s: float = 0.0) -> None:
        super().stop(drain_s=drain_s)
        for one in self._others:
            one.stop(drain_s=drain_s)
        self.attempted.set()
        self._announce_list_ended()
        self._end_refresh()

    def replace_record(self, record: ServerRecord) -> None:
        """Another record with the same launch: its budgets apply to new calls, its rules from now on."""
        is_retry = self.state == "down" and record != self.record
        super().replace_record(record)
        self.discovery.replace_record(record)
        for one in self._others:
            one.replace_record(record)
        if is_retry:
            self._list_now()

    def select(
        self, session: str, client: contract.ClientChannel | None, method: str, params: contract.Params
    ) -> ManagedConnection:
        """The connection for a call. Only this method decides which callers share one."""
        if self.dedicated is not None:
            return self.dedicated.select(session, client)
        if self.revisions is None or not self.revisions.needs_session(client, method, params):
            return self
        if self._session_based is None:
            self._session_based = SessionBasedConnection(self)
            self._session_based.start()
        if self.connection is None and self.state == "degraded":
            self._is_demanded = True  # it was lost, and lists for both
            self._wake.set()
        return self._session_based

    def watch(self, uris: frozenset[str]) -> contract.Acknowledgement:
        """Subscribe to these resources, now and after every reconnect."""
        if uris == self._watched:
            return None
        self._watched = uris
        self._wake.set()
        return None if self.connection is None else self.connection.watch(uris)

    def reconnect(self, principal_id: str) -> None:
        """Close connections that show outdated credentials: of this principal, or of all if it is empty."""
        if self.dedicated is not None:
            self.dedicated.end_principal(principal_id)
        if not principal_id:
            self._end_session_based()
            self._drop_connection()
            self._list_now()

    async def refresh(self) -> None:
        """List again now, even if the server is down. Returns when the attempt has ended."""
        if self._is_stopped or self._task is None:
            return
        ended = self._refresh = self._refresh or asyncio.Event()
        self._list_now()
        await ended.wait()

    def _list_now(self) -> None:
        self._restarts.reset()
        self.discovery.request(self._clock())
        self._wake.set()

    async def verify(self, until_s: float) -> None:
        """Return once the tools were listed in this run. Raises as `connect` and `check_pin`."""
        await self.check_pin(await self.connect(until_s), until_s)

    async def check_pin(self, connection: contract.ServerConnection, until_s: float) -> bool:
        """Wait for the list of `connection`; the callbacks of the pool compare it with the pin."""
        if self._listed_by is connection:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._list_ended.wait()
        if self._listed_by is not connection:
            server_id = self.record.server_id
            raise ServerUnavailable(
                f"server `{server_id}` could not be listed since it was connected; nothing was sent"
            )
        return True

    def compare(self, pin: Pin) -> None:
        """Connect and list if the known offer is not what `pin` approves."""
        tools = self.discovery.tools.tools
        if any(name not in tools or tools[name].digest != digest for name, digest in pin.tools.items()):
            self.discovery.request(self._clock())
            self._wake.set()

    def on_session_replaced(self) -> bool:
        self._listed_by = None
        self._session += 1
        self.discovery.request(self._clock())
        self._wake.set()
        return self.record.server_id not in self.context.pins

    @property
    def _has_responded(self) -> bool:
        return super()._has_responded or (self.connection is not None and self._listed_by is self.connection)

    @property
    def connections(self) -> Collection[ManagedConnection]:
        """All connections to this server: its own, and those of sessions."""
        return (self, *self._others)

    @property
    def _others(self) -> Collection[ManagedConnection]:
        if self._session_based is not None:
            return (self._session_based,)
        return () if self.dedicated is None else tuple(self.dedicated)

    @property
    def in_flight(self) -> int:
        return sum(gate.in_flight + gate.outside for gate in self._gates)

    @property
    def queued(self) -> int:
        return sum(gate.queued for gate in self._gates)

    @property
    def _is_kept_open(self) -> bool:
        """Whether it stays connected without calls."""
        return self.record.prewarm or bool(self._watched)

    @property
    def _gates(self) -> Collection[ServerGate]:
        return {one.gate for one in self.connections}  # the session-based connection has the server's

    def health(self) -> ServerHealth:
        connection = self.connection
        info = connection.server_info if connection else None
        slots_hint = ""
        if self._slots.is_awaited_by(self):
            slots_hint = f"all {self._slots.capacity()} child processes are in use (`max_children`)"
        return ServerHealth(
            state=self.state,
            last_error=self.last_error,
            hint=self._hint or slots_hint,
            since_ms=self.since_ms,
            restarts=self._restarts.count,
            pid=connection.pid if connection else None,
            era=info.revision if info else self.known_revision,
            version=info.version if info else None,
            stderr_tail=str(self.stderr),
            in_flight=self.in_flight,
            queued=self.queued,
            tools=len(self.discovery.tools.tools),
            quarantined=len(self.discovery.tools.quarantined),
            calls=sum(one.calls for one in self.connections),
            last_list_ms=self.discovery.last_list_ms,
            verified_ms=self.verified_ms,
            session_links=sum(one.connection is not None for one in self._others),
        )

    # From connections

    def on_notification(self, method: str, params: bytes) -> None:
        if method == UPDATED:
            with suppress(*UNREADABLE):
                uri = _decode_updated(params).uri
                if uri in self._watched:
                    self.context.on_updated(self.record.server_id, uri)
        elif method in CHANGED_LISTS:
            self.discovery.on_list_changed(method, self._clock())
            self._wake.set()

    def on_session_opened(self) -> None:
        # The connection that lists may be closed as idle; no call uses it, so nothing else opens it.
        self.discovery.on_used()
        self._wake.set()

    def on_session_refused(self, reason: str) -> None:
        _logger.info("server `%s` is stateless only: %s", self.record.server_id, reason)
        self.revisions = None
        self._end_session_based()

    # The task

    def _next(self) -> tuple[float, Step]:
        if self._may_be_declared:
            return 0.0, self._restore_declared
        if self.connection is None:
            is_wanted = self._is_demanded or (self._is_kept_open and not self._restarts.is_fatal)
            wanted_s = 0.0 if is_wanted else self.discovery.due_s
            return max(wanted_s, self._restarts.not_before_s), self._start
        timeout_s = self.record.idle_timeout_s
        idle_s = math.inf if timeout_s <= 0 or self._is_kept_open else self._idle_at_s(timeout_s)
        if self.discovery.due_s <= idle_s:
            return self.discovery.due_s, self._list
        return idle_s, self.evict

    async def _restore_declared(self) -> None:
        """Offer the approved tools that a package declares while its server has never run here."""
        self._may_be_declared, pin = False, self.context.pins.get(self.record.server_id)
        raws = () if pin is None else await self.context.services.declared(self.record)
        offer = await asyncio.to_thread(check_declared_tools, self.record, raws)
        if pin is None or not offer.tools or self._refresh:  # a refresh lists the server itself
            return
        self.is_unverified = True
        self.discovery.restore(offer)
        if self.context.services.kept is not None:
            self.context.services.kept.save(self.discovery.tools, is_verified=False)
        self.compare(pin)
        self.attempted.set()
        self.context.on_change(self.record.server_id)

    def _on_started(self, connection: contract.ServerConnection) -> None:
        info = connection.server_info
        self.discovery.on_connected(info, self._clock())
        # `server/discover` names stateless revisions only: the first call finds out whether there are
        # sessions.
        self.refuses_sessions = False
        may_support_both = info.revision == "modern" and self.record.protocol == "auto"
        if not may_support_both:
            self.revisions = None
        elif self.revisions is None:
            self.revisions = RevisionChoice(self.record.server_id)
        else:
            self.revisions.forget()
        if self._watched:
            connection.watch(self._watched)
        super()._on_started(connection)

    def _on_start_failed(self, failure: contract.StartFailed) -> None:
        super()._on_start_failed(failure)
        due_s = math.inf if failure.fatal else self._restarts.not_before_s
        self.discovery.on_start_failed(failure, due_s=due_s)
        self._publish()
        self.attempted.set()
        self._end_refresh()

    def _on_slow_start(self) -> None:
        super()._on_slow_start()
        awaited = f": {self._awaited}" if self._awaited else ""
        _logger.info("server `%s` is still starting%s", self.record.server_id, awaited)
        self._logged = self._logged or "starting"
        self._end_refresh()

    async def _list(self) -> None:
        """Read the due lists at once; each is published without waiting long for the others."""
        connection = self.connection
        assert connection is not None  # `_next` lists only if there is one
        refresh, self._refresh = self._refresh, None
        session = self._session
        self._is_listing = True
        kinds = self.discovery.begin(self._clock())
        tasks = [self.context.tasks.create_task(self._read(kind, connection)) for kind in kinds]
        try:
            done, pending = await asyncio.wait(tasks, timeout=self.context.limits.list_together_s)
            self._on_lists_read(done, connection, session)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                self._on_lists_read(done, connection, session)
        finally:
            for task in tasks:
                task.cancel()
            self._is_listing = False
            if refresh is not None:
                refresh.set()
            self._slots.evict()

    async def _read(self, kind: ListKind, connection: contract.ServerConnection) -> ListOutcome:
        server_id, timeout_s = self.record.server_id, self.context.limits.list_timeout_s
        try:
            return kind, await read_list(kind, server_id, connection, timeout_s=timeout_s)
        except ListFailed as exc:
            return kind, exc
        except Exception as exc:
            # A bug in a transport costs its server this list, and the pool nothing.
            _logger.exception("server `%s`: unexpected failure", server_id)
            return kind, ListFailed(f"internal error: {exc!r}")

    def _on_lists_read(
        self, done: Iterable[asyncio.Task[ListOutcome]], connection: contract.ServerConnection, session: int
    ) -> None:
        now_s, was_unverified = self._clock(), self.is_unverified
        is_current, outcomes = session == self._session, dict(task.result() for task in done)
        for kind, outcome in outcomes.items():
            if isinstance(outcome, ListFailed):
                self.discovery.on_failed(kind, outcome, now_s)
                self._on_list_failed(kind, outcome)
            else:
                self.discovery.on_result(kind, outcome, now_s)
                if kind == "tools":
                    self._on_tools_listed(connection if is_current else None)
        self._publish()
        if self.discovery.has_tools and not self.is_unverified:
            kept = self.context.services.kept
            self.verified_ms = wall_ms() if kept is None else kept.save(self.discovery.tools)
        if was_unverified and not self.is_unverified:
            self.context.services.on_verified(self.record.server_id)
        if is_current and "tools" in outcomes:
            self._announce_list_ended()

    def _on_tools_listed(self, connection: contract.ServerConnection | None) -> None:
        self._listed_by = connection
        self.is_unverified = False
        if self.connection is not None:
            self._enter("connected")
        self.context.metrics.list_latency_ms[self.record.server_id].add(self.discovery.last_list_ms or 0)
        self.attempted.set()

    def _on_list_failed(self, kind: ListKind, failure: ListFailed) -> None:
        # Only the list of tools decides a server's state.
        if kind != "tools":
            self.last_error = str(failure)
            return
        if self.connection is not None:
            self._enter("degraded", error=str(failure))
        self.attempted.set()

    @property
    def is_evictable(self) -> bool:
        if self.connection is None or self._is_kept_open or self._is_listing or not self.gate.is_idle:
            return False
        return self.discovery.due_s > self._clock() and not any(self.dedicated or ())

    def evict(self) -> None:
        super().evict()
        if self.discovery.tools.state == "ready":
            self.discovery.suspend()

    # Helpers

    def _enter(self, state: HealthState, *, error: str = "", hint: str = "") -> None:
        """Change the state and log it, without the reason: that may quote the server's output."""
        before, server_id = self.state, self.record.server_id
        super()._enter(state, error=error, hint=hint)
        if state in {before, "starting"}:
            return
        if state in {"down", "degraded"}:
            hint = f"see `toolgate servers get {server_id}`"
            _logger.warning("server `%s` is %s: %s", server_id, state, hint)
            self._logged = state
        elif self._logged:
            again = "" if self._logged == "starting" else " again"
            _logger.info("server `%s` is %s%s", server_id, state, again)
            self._logged = ""

    def _publish(self) -> None:
        if self.discovery.publish():
            self.context.on_change(self.record.server_id)

    def _end_session_based(self) -> None:
        connection, self._session_based = self._session_based, None
        if connection is not None:
            connection.stop()

    def _announce_list_ended(self) -> None:
        self._list_ended.set()
        self._list_ended = asyncio.Event()

    def _end_refresh(self) -> None:
        refresh, self._refresh = self._refresh, None
        if refresh is not None:
            refresh.set()
