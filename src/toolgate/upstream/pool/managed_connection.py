"""Keeps one link to a server: opens it, opens it again after it was lost, and finally closes it.

One task per connection does all of that, one step at a time; a call takes the link and never waits for that
task while the link is up. A server's failures must never reach another server or the pool.
"""

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from toolgate.errors import CallTimedOut, LoginRequired, ServerBusy, ServerUnavailable
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord, describe_download, find_runner
from toolgate.model.snapshot import Pin
from toolgate.model.tools import Revision
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.contract import (
    CALL_CEILING_S,
    Params,
    PoolLimits,
    RpcResponse,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.connection.messages import McpHeaders
from toolgate.upstream.pool.admission import ServerGate
from toolgate.upstream.pool.child_slots import ChildSlot, ChildSlots
from toolgate.upstream.pool.connectors import Connectors
from toolgate.upstream.pool.discovery import PinCheck
from toolgate.upstream.pool.health import Condition, RestartBackoff, StderrTail, describe_slow_start
from toolgate.upstream.pool.kept_definitions import DeclareTools, KeptDefinitions, declare_nothing
from toolgate.upstream.pool.revisions import RevisionChoice

Step = Callable[[], Awaitable[None]]
RUNNING_HINT: Final = "it runs, and has not answered yet"

_logger: Final = logging.getLogger(__name__)


def _ignore_server(_server_id: str, /) -> None:
    """Where nothing depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContext:
    """What all connections of a pool have in common."""

    openers: Connectors
    limits: PoolLimits
    jitter: Callable[[], float]
    on_change: Callable[[str], None]
    on_updated: Callable[[str, str], None]
    metrics: Metrics
    tasks: asyncio.TaskGroup
    clock: Callable[[], float]
    pins: Callable[[], Mapping[str, Pin]]
    places: ChildSlots | None = None
    """None: children are not counted here."""
    known: KeptDefinitions | None = None
    """None: what servers offer is not kept."""
    declared: DeclareTools = declare_nothing
    on_verified: Callable[[str], None] = _ignore_server


@dataclass(slots=True)
class SharedServerState:
    """What all connections to one server have in common."""

    stderr: StderrTail = field(default_factory=StderrTail)
    headers: McpHeaders = field(default_factory=McpHeaders)
    known_revision: Revision | None = None
    refuses_sessions: bool = False
    """A link that asked for a session got a stateless one, since the server was last connected to."""


class _ConnectionEvents:
    """The listener of one link. What a link reports after it was replaced reaches nobody."""

    purpose: Final = "start"

    def __init__(self, connection: "ManagedConnection") -> None:
        self._connection = connection
        self.link: ServerConnection | None = None
        self.closed: str | None = None

    @property
    def _is_current(self) -> bool:
        return self.link is not None and self.link is self._connection.link

    def on_notification(self, method: str, params: bytes) -> None:
        if self._is_current:
            self._connection.on_notification(method, params)

    def on_session_replaced(self) -> bool:
        return not self._is_current or self._connection.on_session_replaced()

    def on_closed(self, reason: str) -> None:
        self.closed = reason
        if self._is_current:
            self._connection.on_lost(reason)

    def on_stderr(self, text: bytes) -> None:
        self._connection.common.stderr.add(text)

    def on_reading(self) -> None:
        self._connection.on_reading()


class ManagedConnection(ABC):
    """One link to one server, for as long as the server's `launch` stays the same.

    What it is for, and so when it opens and closes the link, is said by who derives from it.
    """

    def __init__(
        self,
        record: ServerRecord,
        around: PoolContext,
        *,
        common: SharedServerState,
        capabilities: bytes | None = None,
    ) -> None:
        """`capabilities` are those of the one client behind the link; None: it is no single client's."""
        self._around = around
        self._clock = around.clock
        self._capabilities = capabilities
        limits = around.limits
        max_wait_s = limits.backoff_max_s if record.transport == "stdio" else limits.reconnect_max_s
        self._restarts = RestartBackoff(limits, around.jitter, max_wait_s=max_wait_s)
        self._condition = Condition("idle" if record.enabled else "disabled")
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_demanded = False
        """A call waits for a link."""
        self._place = ChildSlot(around.places if record.transport == "stdio" else None, self)
        # The newest start failed for want of the caller's login.
        self._needs_login = False
        self._start_ended = asyncio.Event()
        """Set, and replaced by a new one, whenever a start has ended, well or not, or is a slow one."""
        self._started_s = 0.0
        """When the newest start began."""
        self._awaited = ""
        """What that start is waiting for, where it is known."""
        self._is_slow = False
        """The start that is under way takes longer than callers wait for one."""
        self._leaving: ServerConnection | None = None
        self._drain_s = 0.0
        self._draining: asyncio.Timeout | None = None
        self._is_stopped = False

        self.record = record
        self.common = common
        self.headers = common.headers
        self._vetting = PinCheck(record.server_id)
        # The link that answered the newest call.
        self._answered_by: ServerConnection | None = None
        self.revisions: RevisionChoice | None = None
        """How calls choose a revision; None if the server, as far as known, supports one only."""
        self.gate = ServerGate(record.server_id, limit=record.budgets.max_concurrency, queue=limits.queue)
        self.link: ServerConnection | None = None
        self.timeout_s = 0.0
        self.max_output_bytes = 0
        self.calls = 0
        self.last_used_s = around.clock()
        self._take_budgets()

    # What the pool asks

    @property
    def is_over(self) -> bool:
        """Nothing of it is left."""
        return self._task is None or self._task.done()

    def start(self) -> None:
        """Begin, once."""
        if not self._is_stopped and self._task is None:
            self._task = self._around.tasks.create_task(self._run(), name=f"server {self.record.server_id}")

    def stop(self, *, drain_s: float = 0.0) -> None:
        """End it for good. Calls in flight have `drain_s` to finish; a second stop without it ends them."""
        if not drain_s:
            self._leaving, self.link = self.link or self._leaving, None
            if self._draining is not None:
                self._draining.reschedule(self._clock())
        if self._is_stopped:
            return
        self._is_stopped = True
        self._drain_s = drain_s
        self._announce_start_ended()
        # One that ends itself, by a step of its task, must not cut its own winding down short.
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def replace_record(self, record: ServerRecord) -> None:
        """Another record with the same launch: its budgets hold for new calls."""
        self.record = record
        self._take_budgets()
        self._wake.set()

    def _take_budgets(self) -> None:
        budgets = self.record.budgets
        self.timeout_s = min(budgets.tool_timeout_ms / 1000, CALL_CEILING_S)
        self.max_output_bytes = budgets.max_tool_output_bytes
        self.gate.resize(budgets.max_concurrency)

    async def connected(self, until_s: float) -> ServerConnection:
        """The link, opened if need be. Fails at once while the server is down, else at `until_s`."""
        server_id = self.record.server_id
        while (link := self.link) is None:
            if not self.record.enabled:
                raise ServerUnavailable(f"server `{server_id}` is disabled")
            if self._is_stopped:
                raise ServerUnavailable(f"server `{server_id}` was changed meanwhile; nothing was sent")
            if self._condition.state == "down" and self._clock() < self._restarts.not_before_s:
                if self._needs_login:
                    raise LoginRequired(f"server `{server_id}`: {self._condition.last_error}")
                # Not why: the reason may quote the server's own output, which is for operators.
                raise ServerUnavailable(f"server `{server_id}` is down")
            if self._is_slow:
                raise describe_slow_start(server_id, self._clock() - self._started_s, self._awaited)
            await self._wait_for_start(until_s)
        return link

    @property
    @abstractmethod
    def needs_list(self) -> bool:
        """Whether no tool may be called until its server's tools were listed again."""

    @abstractmethod
    async def verified(self, until_s: float) -> None:
        """Returns once that was done. Raises ServerUnavailable, ServerBusy or CallTimedOut."""

    async def _wait_for_start(self, until_s: float) -> None:
        self._is_demanded = True
        self._place.waiting_calls += 1
        if self._place.is_awaited:
            self._place.hurry()
        self._wake.set()
        try:
            async with asyncio.timeout_at(until_s):
                await self._start_ended.wait()
        except TimeoutError as exc:
            if self._place.is_awaited:
                raise self._no_place() from exc
            raise CallTimedOut(
                f"server `{self.record.server_id}` did not connect within the call's time; nothing was sent"
            ) from exc
        finally:
            self._place.waiting_calls -= 1
            if self._place.is_awaited and not self._place.waiting_calls:
                self._is_demanded = False  # a child that becomes free is not started for no one

    @property
    def is_evictable(self) -> bool:
        """Whether its child may be ended: nothing needs it, and the next call starts it again."""
        return False

    def evict(self) -> None:
        """End the child of a connection that is idle, until the next call."""
        self._let_go()
        self._restarts.forgive()
        self._enter("idle")

    async def listed(self, link: ServerConnection, pin: Pin, until_s: float) -> bool:
        """Returns once the tools of a pinned server were listed by the link and compared.

        Says whether that took time. Raises ServerUnavailable or CallTimedOut where it could not be done.
        """
        return await self._vetting.check(link, pin, until_s)

    def on_session_replaced(self) -> bool:
        """Whether calls may be sent in the new session before it was listed."""
        self._vetting.renew()
        return not self._is_pinned

    # What the link reports

    @abstractmethod
    def on_notification(self, method: str, params: bytes) -> None:
        """The server says something that belongs to no call."""

    def on_reading(self) -> None:
        """The server that is being started runs by now; what a runner had to download is there."""
        self._awaited = RUNNING_HINT
        if self._condition.state == "starting":
            self._enter("starting", hint=RUNNING_HINT)

    def on_lost(self, reason: str) -> None:
        now_s = self._clock()
        if self.record.transport != "stdio" and self._has_answered:
            # A server behind a URL may close whenever it likes; a child that ends has crashed.
            self._restarts.forgive()
        self._let_go()
        self._restarts.on_lost(now_s)
        self._enter("down" if self._restarts.is_exhausted(now_s) else "degraded", error=reason)
        self._wake.set()

    def on_answered(self, link: ServerConnection, method: str, params: Params, reply: RpcResponse) -> None:
        """A call was answered. The link may have ended since."""
        self._answered_by = link
        if self.revisions is not None:
            self.revisions.learn(method, params, link.server_info.revision, reply)
        if self.link is None and self.record.transport != "stdio":
            self._restarts.forgive()
            if self._condition.state == "down":
                self._enter("degraded", error=self._condition.last_error)

    # The task

    async def _run(self) -> None:
        try:
            while not self._is_stopped:
                await self._step()
        finally:
            await self._wind_down()

    async def _step(self) -> None:
        due_s, act = self._next()
        if due_s > self._clock():
            await self._sleep(due_s)
            return
        try:
            await act()
        except Exception as exc:
            # A bug in a transport costs its server this attempt, and the pool nothing.
            _logger.exception("server `%s`: unexpected failure", self.record.server_id)
            if self.link is None:
                self._on_start_failed(StartFailed(f"internal error: {exc!r}"))
            else:
                self.on_lost(f"internal error: {exc!r}")

    @abstractmethod
    def _next(self) -> tuple[float, Step]:
        """What to do next, and the loop time at which."""

    async def _sleep(self, until_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if until_s == math.inf else until_s):
                await self._wake.wait()
        self._wake.clear()

    async def _start(self) -> None:
        await self._place.take(is_urgent=self._is_demanded)
        try:
            due_s, act = self._next()
            if act == self._start and due_s <= self._clock():  # still
                await self._open()
        finally:
            if self.link is None:
                self._place.on_unused()

    async def _open(self) -> None:
        reports = _ConnectionEvents(self)
        openers = self._around.openers
        try:
            async with openers.slot(self.record.transport):
                with self._starting():
                    link = await openers.open(
                        self.record,
                        reports,
                        known_revision=self._known_revision,
                        capabilities=self._capabilities,
                    )
        except StartFailed as exc:
            self._on_start_failed(exc)
            return
        self.link = reports.link = link
        self._place.hold()
        self._on_started(link)
        if reports.closed is not None:
            self.on_lost(reports.closed)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """A start under way. A server that was well is seen starting at once, another if that takes long.

        So one that crashes again and again is down all the while.
        """
        runner = find_runner(self.record)
        self._awaited = "" if runner is None else describe_download(runner)
        self._started_s = self._clock()
        self._restarts.on_start(self._started_s)
        if self._condition.state not in {"down", "degraded"}:
            self._enter("starting", hint=self._awaited)
        timer = asyncio.get_running_loop().call_later(self._around.limits.slow_start_s, self._on_slow_start)
        try:
            yield
        finally:
            timer.cancel()
            self._is_slow = False

    def _on_slow_start(self) -> None:
        self._is_slow = True
        if self._condition.state != "starting":
            self._enter("starting", hint=self._awaited)
        self._announce_start_ended()

    def _on_started(self, link: ServerConnection) -> None:
        self._known_revision = link.server_info.revision
        self.last_used_s = self._clock()
        self._enter("connected")
        self._around.metrics.connects[self.record.server_id, "success"] += 1
        self._announce_start_ended()

    def _on_start_failed(self, failure: StartFailed) -> None:
        self._known_revision = None
        self._needs_login = failure.needs_login
        self._restarts.on_failed(self._clock(), is_fatal=failure.fatal, asked_s=failure.retry_after_s or 0.0)
        self._enter("down", error=str(failure), hint=failure.hint)
        self._around.metrics.connects[self.record.server_id, "failed"] += 1
        self._announce_start_ended()

    async def _wind_down(self) -> None:
        if self.link is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._drain_s) as self._draining:
                    await self.gate.emptied()
            self._draining = None
        link, self.link = self.link or self._leaving, None
        if link is not None:
            self._place.begin_closing()
            await self._close(link)

    # Small things

    @property
    def _has_answered(self) -> bool:
        """Whether the link there is has shown that the server works."""
        return self.link is not None and self._answered_by is self.link

    @property
    def _is_pinned(self) -> bool:
        return self.record.server_id in self._around.pins()

    @property
    def _known_revision(self) -> Revision | None:
        """What to try first."""
        return self.common.known_revision

    @_known_revision.setter
    def _known_revision(self, era: Revision | None) -> None:
        self.common.known_revision = era

    def _enter(self, state: HealthState, *, error: str = "", hint: str = "") -> None:
        self._condition.enter(state, error=error, hint=hint)

    def _idle_s(self, timeout_s: float) -> float:
        """When nobody will have called for so long."""
        return (self.last_used_s if self.gate.is_empty else self._clock()) + timeout_s

    def _let_go(self) -> None:
        """Part with the link at once, and close it beside: stopping a child may take seconds."""
        link, self.link = self.link, None
        if link is not None:
            self._place.begin_closing()
            self._around.tasks.create_task(self._close(link))

    async def _close(self, link: ServerConnection) -> None:
        try:
            await link.aclose()
        except Exception:
            _logger.exception("server `%s`: its link did not close", self.record.server_id)
        finally:
            self._place.on_closed()

    def _no_place(self) -> ServerBusy:
        return ServerBusy(
            f"server `{self.record.server_id}` was not started: all {self._place.capacity} child processes "
            "that this node may run are in use; nothing was sent",
            hint="call again later; an operator can raise `max_children`",
        )

    def _announce_start_ended(self) -> None:
        self._is_demanded = False
        self._start_ended.set()
        self._start_ended = asyncio.Event()
