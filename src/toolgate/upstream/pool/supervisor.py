"""Keeps one server known: connected, listed, watched, and closed while nobody needs it."""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, Literal

import msgspec

from toolgate.errors import ServerUnavailable
from toolgate.model.json_text import UNREADABLE
from toolgate.model.protocol import LIST_CHANGED, UPDATED
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord
from toolgate.model.snapshot import Pin
from toolgate.model.tools import ListKind, ServerTools
from toolgate.upstream.connection.contract import (
    Acknowledgement,
    ClientChannel,
    Params,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.pool.admission import ServerGate
from toolgate.upstream.pool.discovery import FORMS, ListFailed, ListResult, ServerDiscovery, read_list
from toolgate.upstream.pool.health import ServerHealth, wall_ms
from toolgate.upstream.pool.kept_definitions import KeptOffer, check_declared_tools
from toolgate.upstream.pool.managed_connection import ManagedConnection, PoolContext, SharedServerState, Step
from toolgate.upstream.pool.revisions import RevisionChoice
from toolgate.upstream.pool.sessions import DedicatedConnections, SessionBasedConnection

CHANGED_LISTS: Final[Mapping[str, tuple[ListKind, ...]]] = {
    method: tuple(kind for kind, form in FORMS.items() if form.feature == feature)
    for feature, method in LIST_CHANGED.items()
}
"""Which lists are no longer what they were when a server says so."""

ListTask = asyncio.Task[ListResult | ListFailed]

_logger: Final = logging.getLogger(__name__)


class _ResourceUpdate(msgspec.Struct):
    uri: str


_decode_updated = msgspec.json.Decoder(_ResourceUpdate).decode


class ServerSupervisor(ManagedConnection):
    """One server under supervision. Where sessions or principals have links of their own, it only lists."""

    def __init__(
        self,
        record: ServerRecord,
        around: PoolContext,
        *,
        before: ServerTools | None = None,
        known: KeptOffer | None = None,
    ) -> None:
        """`before` is what an earlier version of the server offered.

        `known` is what it offered in an earlier run: it is connected by the first call.
        """
        super().__init__(
            record, around, common=SharedServerState(known_revision=known.offer.era if known else None)
        )
        offer = None if known is None else known.offer
        self._discovery = ServerDiscovery(record, around.limits, around.jitter, before=before, known=offer)
        self.is_unverified = known is not None or before is not None
        """What it offers is from an earlier run or version, and it was not listed since."""
        self.verified_ms = 0 if known is None else known.verified_ms
        """Wall clock at which the server last listed its tools; 0: never."""
        self._is_listing = False
        self._may_be_declared = known is None and before is None and record.package is not None
        self._watched: frozenset[str] = frozenset()
        self._refreshes: list[asyncio.Future[None]] = []
        self._listed_by: ServerConnection | None = None
        """The newest link by which the tools were listed."""
        self._session = 0
        """Counts the sessions of all links: a list that began in one says nothing of the next."""
        self._noted: HealthState | Literal[""] = ""
        """What the log says of a server that is not connected."""
        self._list_ended = asyncio.Event()
        """Set, and replaced by a new one, whenever an attempt to list has ended, well or not."""

        self.began_s = around.clock()
        self.attempted = asyncio.Event()
        """The first attempt to list its tools has ended, well or not; or what they were is known."""
        if known is not None:
            self.attempted.set()
        self.sessions: DedicatedConnections | None = None
        """None where all callers share the one link; nor has a disabled server any."""
        if record.enabled and (record.sharing == "per_session" or record.is_per_principal):
            self.sessions = DedicatedConnections(self, around)
        self._session_based: SessionBasedConnection | None = None

    # What the pool asks

    @property
    def tools(self) -> ServerTools:
        return self._discovery.tools

    @property
    def is_over(self) -> bool:
        is_over = self._session_based is None or self._session_based.is_over
        return super().is_over and is_over and (self.sessions is None or self.sessions.is_over)

    def start(self) -> None:
        """Begin, once; a disabled server is only kept in the picture."""
        if self.record.enabled:
            super().start()
        else:
            self.attempted.set()

    def stop(self, *, drain_s: float = 0.0) -> None:
        super().stop(drain_s=drain_s)
        if self.sessions is not None:
            self.sessions.stop(drain_s=drain_s)
        if self._session_based is not None:
            self._session_based.stop(drain_s=drain_s)
        self.attempted.set()
        self._announce_list_ended()
        _resolve_all(self._take_refreshes())

    def replace_record(self, record: ServerRecord) -> None:
        """Another record with the same launch: its budgets hold for new calls, its rules from now on."""
        is_retry = self._condition.state == "down" and record != self.record
        super().replace_record(record)
        self._discovery.replace_record(record)
        if self.sessions is not None:
            self.sessions.replace_record(record)
        if self._session_based is not None:
            self._session_based.replace_record(record)
        if is_retry:
            self._restarts.forgive()
            self._discovery.ask(self._clock())

    def serving(
        self, session: str, client: ClientChannel | None, method: str, params: Params
    ) -> ManagedConnection:
        """The connection for a call. The one place that knows who shares one."""
        if self.sessions is not None:
            return self.sessions.of(session, client)
        if self.revisions is None or not self.revisions.needs_session(client, method, params):
            return self
        if self._session_based is None:
            self._session_based = SessionBasedConnection(self, self._around)
            self._session_based.start()
        if self.link is None and self._condition.state == "degraded":
            self._is_demanded = True  # it was lost, and lists for both
            self._wake.set()
        return self._session_based

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        """Hear of changes to these resources, now and after every reconnect."""
        if uris == self._watched:
            return None
        self._watched = uris
        self._wake.set()
        return None if self.link is None else self.link.watch(uris)

    def reconnect(self, principal_id: str) -> None:
        """What links showed the server of this principal, or of all where it is empty, is good no more."""
        if self.sessions is not None:
            self.sessions.end_all(principal_id)
        if not principal_id:
            self._end_session_based()
            self._let_go()
            self._restarts.forgive()
            self._discovery.ask(self._clock())
            self._wake.set()

    async def refresh(self) -> None:
        """List again now, even where the server is down. Returns when that has ended, well or not."""
        if self._is_stopped or self._task is None:
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refreshes.append(ended)
        self._restarts.forgive()
        self._discovery.ask(self._clock())
        self._wake.set()
        await ended

    @property
    def needs_list(self) -> bool:
        return self.is_unverified

    async def verified(self, until_s: float) -> None:
        """Returns once the tools were listed on a connection of this run. Raises as `connected`, `listed`."""
        await self._listed(await self.connected(until_s), until_s)

    async def listed(self, link: ServerConnection, pin: Pin, until_s: float) -> bool:
        """As `Connection.listed`; those are told of the list who have to know."""
        del pin
        return await self._listed(link, until_s)

    async def _listed(self, link: ServerConnection, until_s: float) -> bool:
        if self._listed_by is link:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._list_ended.wait()
        if self._listed_by is not link:
            raise ServerUnavailable(
                f"server `{self.record.server_id}` could not be listed since it was connected; "
                "nothing was sent"
            )
        return True

    def compare(self, pin: Pin) -> None:
        """Connect to learn what it offers if what is known of it is not what `pin` approves."""
        tools = self.tools.tools
        if any(name not in tools or tools[name].digest != digest for name, digest in pin.tools.items()):
            self._discovery.ask(self._clock())
            self._wake.set()

    def on_session_replaced(self) -> bool:
        self._listed_by = None
        self._session += 1
        self._discovery.ask(self._clock())
        self._wake.set()
        return not self._is_pinned

    @property
    def _has_answered(self) -> bool:
        return super()._has_answered or (self.link is not None and self._listed_by is self.link)

    @property
    def connections(self) -> Collection[ManagedConnection]:
        """All to this server: its own, and those of sessions."""
        if self._session_based is not None:
            return (self, self._session_based)
        return (self,) if self.sessions is None else (self, *self.sessions)

    @property
    def in_flight(self) -> int:
        """Calls at the server, on any connection."""
        return sum(gate.in_flight + gate.outside for gate in self._gates)

    @property
    def queued(self) -> int:
        """Calls that wait for room."""
        return sum(gate.queued for gate in self._gates)

    @property
    def _gates(self) -> Collection[ServerGate]:
        return (self.gate,) if self.sessions is None else (self.gate, *(one.gate for one in self.sessions))

    @property
    def state(self) -> HealthState:
        return self._condition.state

    def health(self) -> ServerHealth:
        link, all_of_it = self.link, self.connections
        return ServerHealth(
            state=self._condition.state,
            last_error=self._condition.last_error,
            hint=self._condition.hint or self._place.hint,
            since_ms=self._condition.since_ms,
            restarts=self._restarts.count,
            pid=link.pid if link else None,
            era=link.server_info.revision if link else self.common.known_revision,
            version=link.server_info.version if link else None,
            stderr_tail=str(self.common.stderr),
            in_flight=self.in_flight,
            queued=self.queued,
            tools=len(self.tools.tools),
            quarantined=len(self.tools.quarantined),
            calls=sum(one.calls for one in all_of_it) if self.sessions is None else self.sessions.calls,
            last_list_ms=self._discovery.last_list_ms,
            verified_ms=self.verified_ms,
            session_links=sum(one.link is not None for one in all_of_it if one is not self),
        )

    # What links report

    def on_notification(self, method: str, params: bytes) -> None:
        if method == UPDATED:
            self._on_updated(params)
        elif kinds := CHANGED_LISTS.get(method):
            for kind in kinds:
                self._discovery.on_list_changed(kind, self._clock())
            self._wake.set()

    def on_session_opened(self) -> None:
        # The link that lists may have been closed as idle; nobody calls by it, so nothing else opens it.
        self._discovery.on_used()
        self._wake.set()

    def on_session_refused(self, reason: str) -> None:
        _logger.info("server `%s` is stateless only: %s", self.record.server_id, reason)
        self.revisions = None
        self._end_session_based()

    def on_session_failed(self, reason: str) -> None:
        self._condition.note(reason)

    def _on_updated(self, params: bytes) -> None:
        try:
            uri = _decode_updated(params).uri
        except UNREADABLE:
            return
        if uri in self._watched:
            self._around.on_updated(self.record.server_id, uri)

    # The task

    def _next(self) -> tuple[float, Step]:
        if self._may_be_declared:
            return 0.0, self._recall_declared
        if self.link is None:
            is_wanted = self._is_demanded or (self._is_kept and not self._restarts.is_fatal)
            wanted_s = 0.0 if is_wanted else self._discovery.due_s
            return max(wanted_s, self._restarts.not_before_s), self._start
        timeout_s = self.record.idle_timeout_s
        idle_s = math.inf if timeout_s <= 0 or self._is_kept else self._idle_s(timeout_s)
        if self._discovery.due_s <= idle_s:
            return self._discovery.due_s, self._list
        return idle_s, self._reap

    async def _recall_declared(self) -> None:
        """Take over what the package says of a server that never ran here, as far as it was approved."""
        self._may_be_declared, pin = False, self._around.pins().get(self.record.server_id)
        raws = () if pin is None else await self._around.declared(self.record)
        offer = await asyncio.to_thread(check_declared_tools, self.record, raws)
        if pin is None or not offer.tools or self._refreshes:  # a refresh lists the server itself
            return
        self.is_unverified = True
        self._discovery.recall(offer)
        if self._around.known is not None:
            self._around.known.save(self.tools, is_verified=False)
        self.compare(pin)
        self.attempted.set()
        self._around.on_change(self.record.server_id)

    @property
    def _is_kept(self) -> bool:
        """Whether it is to be connected though nobody calls."""
        return self.record.prewarm or bool(self._watched)

    def _on_started(self, link: ServerConnection) -> None:
        self._discovery.on_connected(link.server_info, self._clock())
        # `server/discover` names stateless revisions only: a call finds out whether there are sessions.
        self.common.refuses_sessions = False
        may_do_both = link.server_info.revision == "modern" and self.record.protocol == "auto"
        if not may_do_both:
            self.revisions = None
        elif self.revisions is None:
            self.revisions = RevisionChoice(self.record.server_id)
        else:
            self.revisions.forget()
        if self._watched:
            link.watch(self._watched)
        super()._on_started(link)

    def _on_start_failed(self, failure: StartFailed) -> None:
        super()._on_start_failed(failure)
        self._discovery.on_start_failed(
            failure, due_s=math.inf if failure.fatal else self._restarts.not_before_s
        )
        self._show()
        self.attempted.set()
        _resolve_all(self._take_refreshes())

    def _on_slow_start(self) -> None:
        super()._on_slow_start()
        awaited = f": {self._awaited}" if self._awaited else ""
        _logger.info("server `%s` is still starting%s", self.record.server_id, awaited)
        self._noted = self._noted or "starting"
        _resolve_all(self._take_refreshes())

    async def _list(self) -> None:
        """Read the lists that are due, at once; each is shown without waiting long for the others."""
        link = self.link
        assert link is not None  # `_next` lists only where there is a link
        refreshes, session = self._take_refreshes(), self._session
        self._is_listing = True
        readings: dict[ListTask, ListKind] = {
            self._around.tasks.create_task(self._read(kind, link)): kind
            for kind in self._discovery.begin(self._clock())
        }
        try:
            done, pending = await asyncio.wait(readings, timeout=self._around.limits.list_together_s)
            self._on_ended(done, readings, link, session)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                self._on_ended(done, readings, link, session)
        finally:
            for reading in readings:
                reading.cancel()
            self._is_listing = False
            _resolve_all(refreshes)
            self._place.settle()

    async def _read(self, kind: ListKind, link: ServerConnection) -> ListResult | ListFailed:
        server_id = self.record.server_id
        try:
            return await read_list(kind, server_id, link, timeout_s=self._around.limits.list_timeout_s)
        except ListFailed as exc:
            return exc
        except Exception as exc:
            # A bug in a transport costs its server this list, and the pool nothing.
            _logger.exception("server `%s`: unexpected failure", server_id)
            return ListFailed(f"internal error: {exc!r}")

    def _on_ended(
        self,
        done: Iterable[ListTask],
        readings: Mapping[ListTask, ListKind],
        link: ServerConnection,
        session: int,
    ) -> None:
        now_s, was_unverified = self._clock(), self.is_unverified
        for reading in done:
            kind, outcome = readings[reading], reading.result()
            if isinstance(outcome, ListFailed):
                self._discovery.on_failed(kind, outcome, now_s)
                self._on_list_failed(kind, outcome)
            else:
                self._discovery.on_read(kind, outcome, now_s)
                self._on_listed(kind, link if session == self._session else None)
        self._show()
        self._keep()
        if was_unverified and not self.is_unverified:
            self._around.on_verified(self.record.server_id)
        if session == self._session and any(readings[reading] == "tools" for reading in done):
            self._announce_list_ended()

    def _on_listed(self, kind: ListKind, link: ServerConnection | None) -> None:
        if kind != "tools":
            return
        self._listed_by = link
        self.is_unverified = False
        if self.link is not None:
            self._enter("connected")
        self._around.metrics.list_latency(self.record.server_id).add(self._discovery.last_list_ms or 0)
        self.attempted.set()

    def _on_list_failed(self, kind: ListKind, failure: ListFailed) -> None:
        # Its tools alone decide how a server fares.
        if kind != "tools":
            self._condition.note(str(failure))
            return
        if self.link is not None:
            self._enter("degraded", error=str(failure))
        self.attempted.set()

    async def _reap(self) -> None:
        self.evict()

    @property
    def is_evictable(self) -> bool:
        if self.link is None or self._is_kept or self._is_listing or not self.gate.is_idle:
            return False
        return self._discovery.due_s > self._clock() and not (self.sessions and self.sessions.is_used)

    def evict(self) -> None:
        super().evict()
        if self.tools.state == "ready":
            self._discovery.rest()

    # Small things

    def _keep(self) -> None:
        """Keep what was listed for the next run."""
        if self._discovery.has_tools and not self.is_unverified:
            known = self._around.known
            self.verified_ms = wall_ms() if known is None else known.save(self.tools)

    def _enter(self, state: HealthState, *, error: str = "", hint: str = "") -> None:
        """Another state, logged without its reason: that may quote what the server said."""
        before = self._condition.state
        super()._enter(state, error=error, hint=hint)
        if state in {before, "starting"}:
            return
        if state in {"down", "degraded"}:
            server_id = self.record.server_id
            _logger.warning(
                "server `%s` is %s: `toolgate servers get %s` says why", server_id, state, server_id
            )
            self._noted = state
        elif self._noted:
            again = "" if self._noted == "starting" else " again"
            _logger.info("server `%s` is %s%s", self.record.server_id, state, again)
            self._noted = ""

    def _show(self) -> None:
        if self._discovery.show():
            self.headers.clear()
            self._around.on_change(self.record.server_id)

    def _end_session_based(self) -> None:
        connection, self._session_based = self._session_based, None
        if connection is not None:
            connection.stop()

    def _announce_list_ended(self) -> None:
        self._list_ended.set()
        self._list_ended = asyncio.Event()

    def _take_refreshes(self) -> list[asyncio.Future[None]]:
        refreshes, self._refreshes = self._refreshes, []
        return refreshes


def _resolve_all(refreshes: Iterable[asyncio.Future[None]]) -> None:
    for ended in refreshes:
        if not ended.done():
            ended.set_result(None)
