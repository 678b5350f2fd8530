"""Keeps one connection to a server: opens it, reopens it after it was lost, and finally closes it.

One task per managed connection does all of that, one step at a time. A call takes the live connection and
never waits for that task while there is one. A server's failures must never reach another server or the pool.
"""

import asyncio
import logging
import math
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from toolgate.errors import CallTimedOut, LoginRequired, ServerBusy, ServerUnavailable
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord, describe_download, find_runner
from toolgate.model.tools import Pin, Revision
from toolgate.telemetry import Metrics
from toolgate.telemetry.spans import Tracer
from toolgate.upstream.connection.contract import (
    CALL_CEILING_S,
    Params,
    PoolLimits,
    Purpose,
    RpcResponse,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.pool.admission import ChildSlots, ServerGate
from toolgate.upstream.pool.connectors import Connectors
from toolgate.upstream.pool.health import RestartBackoff, StderrTail, describe_slow_start, wall_ms
from toolgate.upstream.pool.kept_definitions import DeclareTools, KeptDefinitions, declare_nothing

if TYPE_CHECKING:  # they use this module
    from toolgate.upstream.pool.sessions import RevisionChoice
    from toolgate.upstream.pool.supervisor import ServerSupervisor

Step = Callable[[], Awaitable[None] | None]

_logger: Final = logging.getLogger(__name__)


class PoolServices(NamedTuple):
    """What a pool uses if its process has it: kept definitions, declared tools, spans."""

    kept: KeptDefinitions | None = None
    """The definitions from earlier runs. None: each server is connected at once, to be listed."""
    declared: DeclareTools = declare_nothing
    """The tools that packages declare, for servers that never ran."""
    on_verified: Callable[[str], None] = lambda _server_id: None
    """Called with the id of a server whose kept definitions were listed for the first time in this run."""
    max_children: Callable[[], int] = lambda: sys.maxsize
    tracer: Tracer | None = None
    """Makes spans of calls: a server behind a URL gets the current one in its headers."""
    jitter: Callable[[], float] = random.random


@dataclass(slots=True, kw_only=True)
class PoolContext:
    """What all connections of a pool share."""

    connectors: Connectors
    limits: PoolLimits
    services: PoolServices
    on_change: Callable[[str], None]
    on_updated: Callable[[str, str], None]
    metrics: Metrics
    child_slots: ChildSlots
    unlimited_slots: ChildSlots = field(default_factory=ChildSlots)
    """For servers behind a URL, which have no child."""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    tasks: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    clock: Callable[[], float] = field(init=False)
    """The event loop's, once the pool is entered."""


class _ConnectionEvents:
    """The listener of one connection. It ignores events of a connection that was replaced."""

    purpose: Purpose = "start"

    def __init__(self, owner: "ManagedConnection") -> None:
        self._owner = owner
        self.on_stderr = owner.stderr.add
        self.on_reading = owner.on_reading
        self.connection: ServerConnection | None = None
        self.closed: str | None = None

    @property
    def _is_current(self) -> bool:
        return self.connection is not None and self.connection is self._owner.connection

    def on_notification(self, method: str, params: bytes) -> None:
        if self._is_current:
            self._owner.lister.on_notification(method, params)

    def on_session_replaced(self) -> bool:
        return not self._is_current or self._owner.on_session_replaced()

    def on_closed(self, reason: str) -> None:
        self.closed = reason
        if self._is_current:
            self._owner.on_lost(reason)


class ManagedConnection(ABC):
    """One connection to one server, while the `launch` of the server's record stays the same.

    Subclasses decide what it is for, and so when it opens and closes.
    """

    lister: "ServerSupervisor"
    """The connection that lists the server's tools: this one, or another one to the same server."""
    calls = 0
    known_revision: Revision | None = None
    last_error = ""
    _hint = ""

    def __init__(
        self,
        record: ServerRecord,
        context: PoolContext,
        *,
        stderr: StderrTail,
        capabilities: bytes | None = None,
    ) -> None:
        """`capabilities` are those of the one client behind the connection; None: several share it."""
        self.context = context
        self._clock = context.clock
        self._capabilities = capabilities
        limits, is_child = context.limits, record.transport == "stdio"
        max_wait_s = limits.backoff_max_s if is_child else limits.reconnect_max_s
        self._restarts = RestartBackoff(limits, context.services.jitter, max_wait_s)
        self.state: HealthState = "idle" if record.enabled else "disabled"
        self.since_ms = wall_ms()
        """Wall clock at which it entered its state."""
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_demanded = False
        """A call waits for the connection."""
        self._slots = context.child_slots if is_child else context.unlimited_slots
        self._waiting_calls = 0
        self._needs_login = False
        """The newest start failed because the caller has to log in."""
        self._start_ended = asyncio.Event()
        """Set, and replaced by a new one, whenever a start has ended or become slow."""
        self._started_s = 0.0
        self._awaited = ""
        """What the current start waits for, if known."""
        self._is_slow = False
        """The current start takes longer than callers wait for one."""
        self._dropped: ServerConnection | None = None
        self._drain_s = 0.0
        self._draining: asyncio.Timeout | None = None
        self._is_stopped = False
        self._last_responder: ServerConnection | None = None
        """The connection of the newest response to a call."""

        self.record = record
        self.stderr = stderr
        self.revisions: RevisionChoice | None = None
        """How calls choose a revision; None unless the server may support both."""
        self.gate = ServerGate(record.server_id, record.budgets.max_concurrency, limits.queue)
        self.connection: ServerConnection | None = None
        self.last_used_s = context.clock()
        self._apply_budgets()

    # For the pool

    @property
    def is_over(self) -> bool:
        return self._task is None or self._task.done()

    def start(self) -> None:
        if not self._is_stopped and self._task is None:
            self._task = self.context.tasks.create_task(self._run(), name=f"server {self.record.server_id}")

    def stop(self, *, drain_s: float = 0.0) -> None:
        """End it for good. Calls in flight have `drain_s` to finish; a second stop without it ends them."""
        if not drain_s:
            self._dropped, self.connection = self.connection or self._dropped, None
            if self._draining is not None:
                self._draining.reschedule(self._clock())
        if self._is_stopped:
            return
        self._is_stopped = True
        self._drain_s = drain_s
        self._announce_start_ended()
        # A stop in a step of its own task must not cut the task's cleanup short.
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def replace_record(self, record: ServerRecord) -> None:
        """Another record with the same launch: its budgets apply to new calls."""
        self.record = record
        self._apply_budgets()
        self._wake.set()

    def _apply_budgets(self) -> None:
        budgets = self.record.budgets
        self.timeout_s = min(budgets.tool_timeout_ms / 1000, CALL_CEILING_S)
        self.max_output_bytes = budgets.max_tool_output_bytes
        self.gate.resize(budgets.max_concurrency)

    async def connect(self, until_s: float) -> ServerConnection:
        """The connection, opened if necessary. Fails at once while the server is down, else at `until_s`."""
        server_id = self.record.server_id
        while (connection := self.connection) is None:
            if not self.record.enabled:
                raise ServerUnavailable(f"server `{server_id}` is disabled")
            if self._is_stopped:
                raise ServerUnavailable(f"server `{server_id}` was changed meanwhile; nothing was sent")
            if self.state == "down" and self._clock() < self._restarts.not_before_s:
                if self._needs_login:
                    raise LoginRequired(f"server `{server_id}`: {self.last_error}")
                # Without the reason: it may quote the server's own output, which is for operators.
                raise ServerUnavailable(f"server `{server_id}` is down")
            if self._is_slow:
                raise describe_slow_start(server_id, self._clock() - self._started_s, self._awaited)
            await self._wait_for_start(until_s)
        return connection

    async def _wait_for_start(self, until_s: float) -> None:
        self._is_demanded = True
        self._waiting_calls += 1
        self._slots.mark_urgent(self)
        self._wake.set()
        server_id = self.record.server_id
        try:
            async with asyncio.timeout_at(until_s):
                await self._start_ended.wait()
        except TimeoutError as exc:
            if self._slots.is_awaited_by(self):
                raise ServerBusy(
                    f"server `{server_id}` was not started: all {self._slots.capacity()} child processes "
                    "that this node may run are in use; nothing was sent",
                    hint="call again later; an operator can raise `max_children`",
                ) from exc
            raise CallTimedOut(
                f"server `{server_id}` did not connect within the call's time; nothing was sent"
            ) from exc
        finally:
            self._waiting_calls -= 1
            if not self._waiting_calls and self._slots.is_awaited_by(self):
                self._is_demanded = False  # do not start a child that no call waits for

    @property
    def is_evictable(self) -> bool:
        """Whether its child may be ended: nothing needs it, and the next call starts it again."""
        return False

    def evict(self) -> None:
        """End the child of an idle connection, until the next call."""
        self._drop_connection()
        self._restarts.reset()
        self._enter("idle")

    @abstractmethod
    async def check_pin(self, connection: ServerConnection, until_s: float) -> bool:
        """Compare the tools on `connection` with the pin; returns whether that took time.

        Raises ServerUnavailable or CallTimedOut.
        """

    # From the connection

    @abstractmethod
    def on_session_replaced(self) -> bool:
        """Whether calls may be sent in the new session before it was listed."""

    def on_reading(self) -> None:
        """The server that is starting runs; a runner has downloaded its packages."""
        self._awaited = "it is running, but has not responded"
        if self.state == "starting":
            self._enter("starting", hint=self._awaited)

    def on_lost(self, reason: str) -> None:
        now_s = self._clock()
        if self.record.transport != "stdio" and self._has_responded:
            # A server behind a URL may close at any time; a child that ends has crashed.
            self._restarts.reset()
        self._drop_connection()
        self._restarts.on_lost(now_s)
        self._enter("down" if self._restarts.is_exhausted(now_s) else "degraded", error=reason)
        self._wake.set()

    def on_response(
        self, connection: ServerConnection, method: str, params: Params, response: RpcResponse
    ) -> None:
        """A call got its response. The connection may have ended since."""
        self._last_responder = connection
        if self.revisions is not None:
            self.revisions.learn(method, params, connection.server_info.revision, response)
        if self.connection is None and self.record.transport != "stdio":
            self._restarts.reset()
            if self.state == "down":
                self._enter("degraded", error=self.last_error)

    # The task

    async def _run(self) -> None:
        try:
            while not self._is_stopped:
                await self._step()
        finally:
            await self._wind_down()

    async def _step(self) -> None:
        due_s, step = self._next()
        if due_s > self._clock():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if due_s == math.inf else due_s):
                    await self._wake.wait()
            self._wake.clear()
            return
        try:
            if (work := step()) is not None:
                await work
        except Exception as exc:
            # A bug in a transport costs its server this attempt, and the pool nothing.
            _logger.exception("server `%s`: unexpected failure", self.record.server_id)
            if self.connection is None:
                self._on_start_failed(StartFailed(f"internal error: {exc!r}"))
            else:
                self.on_lost(f"internal error: {exc!r}")

    @abstractmethod
    def _next(self) -> tuple[float, Step]:
        """The loop time of the next step, and the step."""

    async def _start(self) -> None:
        await self._slots.take(self, is_urgent=self._is_demanded)
        is_opened = False
        try:
            due_s, step = self._next()
            if step == self._start and due_s <= self._clock():  # still
                is_opened = await self._open()
        finally:
            if not is_opened:
                self._slots.give_back()

    async def _open(self) -> bool:
        """Open the connection, which frees its child's slot when it closes; returns whether that worked."""
        events = _ConnectionEvents(self)
        connectors = self.context.connectors
        try:
            async with connectors.slot(self.record.transport):
                with self._starting():
                    known = self._choose_revision()
                    connection = await connectors.open(
                        self.record, events, known_revision=known, capabilities=self._capabilities
                    )
        except StartFailed as exc:
            self._on_start_failed(exc)
            return False
        self.connection = events.connection = connection
        self._slots.hold(self)
        self._on_started(connection)
        if events.closed is not None:
            self.on_lost(events.closed)
        return True

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Show a start. A healthy server is "starting" at once, any other only if the start takes long.

        So a server that crashes again and again stays "down".
        """
        runner = find_runner(self.record)
        self._awaited = "" if runner is None else describe_download(runner)
        self._started_s = self._clock()
        self._restarts.on_start(self._started_s)
        if self.state not in {"down", "degraded"}:
            self._enter("starting", hint=self._awaited)
        timer = asyncio.get_running_loop().call_later(self.context.limits.slow_start_s, self._on_slow_start)
        try:
            yield
        finally:
            timer.cancel()
            self._is_slow = False

    def _on_slow_start(self) -> None:
        self._is_slow = True
        if self.state != "starting":
            self._enter("starting", hint=self._awaited)
        self._announce_start_ended()

    def _on_started(self, connection: ServerConnection) -> None:
        self._learn_revision(connection.server_info.revision)
        self.last_used_s = self._clock()
        self._enter("connected")
        self.context.metrics.connects[self.record.server_id, "success"] += 1
        self._announce_start_ended()

    def _on_start_failed(self, failure: StartFailed) -> None:
        self._learn_revision(None)
        self._needs_login = failure.needs_login
        self._restarts.on_failed(self._clock(), is_fatal=failure.fatal, delay_s=failure.retry_after_s or 0.0)
        self._enter("down", error=str(failure), hint=failure.hint)
        self.context.metrics.connects[self.record.server_id, "failed"] += 1
        self._announce_start_ended()

    async def _wind_down(self) -> None:
        if self.connection is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._drain_s) as self._draining:
                    await self.gate.wait_empty()
            self._draining = None
        connection, self.connection = self.connection or self._dropped, None
        if connection is not None:
            self._slots.begin_closing(self)
            await self._close(connection)

    # Helpers

    @property
    def _has_responded(self) -> bool:
        """Whether the current connection has shown that the server works."""
        return self.connection is not None and self._last_responder is self.connection

    def _choose_revision(self) -> Revision | None:
        return self.known_revision

    def _learn_revision(self, revision: Revision | None) -> None:
        self.known_revision = revision

    def _enter(self, state: HealthState, *, error: str = "", hint: str = "") -> None:
        self.last_error, self._hint = error or self.last_error, hint
        if state != self.state:
            self.state, self.since_ms = state, wall_ms()

    def _idle_at_s(self, timeout_s: float) -> float:
        """When the connection will have been idle for `timeout_s`."""
        return (self.last_used_s if self.gate.is_empty else self._clock()) + timeout_s

    def _drop_connection(self) -> None:
        """Give up the connection now and close it in the background: stopping a child may take seconds."""
        connection, self.connection = self.connection, None
        if connection is not None:
            self._slots.begin_closing(self)
            self.context.tasks.create_task(self._close(connection))

    async def _close(self, connection: ServerConnection) -> None:
        try:
            await connection.aclose()
        except Exception:
            _logger.exception("server `%s`: its connection did not close", self.record.server_id)
        finally:
            self._slots.give_back(has_closed=True)

    def _announce_start_ended(self) -> None:
        self._is_demanded = False
        self._start_ended.set()
        self._start_ended = asyncio.Event()
