"""Keeps one server connected: starts, lists, restarts, reaps and finally stops it.

One task per server does all of that, one step at a time; a call takes the link and never waits for that
task while the link is up. A server's failures must never reach another server or the pool.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.reports import HealthState
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Era, ServerTools
from toolgate.telemetry import Metrics
from toolgate.upstream.discovery import Discovery, Listed, ListFailed, list_tools
from toolgate.upstream.gate import Gate
from toolgate.upstream.headers import CallHeaders
from toolgate.upstream.health import Condition, ServerHealth, StderrTail
from toolgate.upstream.limits import CALL_CEILING_S, PoolLimits
from toolgate.upstream.link import Link, StartFailed
from toolgate.upstream.opening import Openers
from toolgate.upstream.restarts import Restarts
from toolgate.upstream.wire import LIST_CHANGED

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all supervisors of a pool have in common."""

    openers: Openers
    limits: PoolLimits
    jitter: Callable[[], float]
    on_change: Callable[[str], None]
    metrics: Metrics
    tasks: asyncio.TaskGroup
    clock: Callable[[], float]


class _Reports:
    """The listener of one link. What a link reports after it was replaced reaches nobody."""

    def __init__(self, supervisor: "Supervisor") -> None:
        self._supervisor = supervisor
        self.link: Link | None = None
        self.closed: str | None = None

    @property
    def _is_current(self) -> bool:
        return self.link is not None and self.link is self._supervisor.link

    def on_notification(self, method: str, params: bytes) -> None:
        del params  # `list_changed` says no more than its name
        if method == LIST_CHANGED and self._is_current:
            self._supervisor.on_list_changed()

    def on_closed(self, reason: str) -> None:
        self.closed = reason
        if self._is_current:
            self._supervisor.on_lost(reason)

    def on_stderr(self, text: bytes) -> None:
        self._supervisor.stderr.add(text)


class Supervisor:
    """One server under supervision, for as long as its `launch` stays the same."""

    def __init__(self, record: ServerRecord, around: Surroundings) -> None:
        self._around = around
        self._clock = around.clock
        limits = around.limits
        max_wait_s = limits.backoff_max_s if record.transport == "stdio" else limits.reconnect_max_s
        self._restarts = Restarts(limits, around.jitter, max_wait_s=max_wait_s)
        self._discovery = Discovery(record, around.limits, around.jitter)
        self._condition = Condition("idle" if record.enabled else "disabled")
        self._known_era: Era | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_demanded = False
        """A call waits for a link."""
        self._start_ended = asyncio.Event()
        """Set, and replaced by a new one, whenever a start has ended, well or not."""
        self._refreshes: list[asyncio.Future[None]] = []
        self._leaving: Link | None = None
        self._drain_s = 0.0
        self._draining: asyncio.Timeout | None = None
        self._is_stopped = False

        self.began_s = around.clock()
        self.attempted = asyncio.Event()
        """The first attempt to list has ended, well or not."""
        self.stderr = StderrTail()
        self.headers = CallHeaders()
        self.gate = Gate(record.server_id, limit=record.budgets.max_concurrency, queue=around.limits.queue)
        self.link: Link | None = None
        self.timeout_s = 0.0
        self.max_output_bytes = 0
        self.calls = 0
        self.last_used_s = 0.0
        self.replace_record(record)

    # What the pool asks

    @property
    def tools(self) -> ServerTools:
        return self._discovery.tools

    @property
    def record(self) -> ServerRecord:
        return self._discovery.tools.record

    @property
    def is_over(self) -> bool:
        """Nothing of it is left."""
        return self._task is None or self._task.done()

    def start(self) -> None:
        """Begin, once; a disabled server is only kept in the picture."""
        if self._is_stopped or self._task is not None:
            return
        if self.record.enabled:
            self._task = self._around.tasks.create_task(self._run(), name=f"server {self.record.server_id}")
        else:
            self.attempted.set()

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
        self.attempted.set()
        self._announce_start_ended()
        _end(self._take_refreshes())
        if self._task is not None:
            self._task.cancel()

    def replace_record(self, record: ServerRecord) -> None:
        """Another record with the same launch: its budgets hold for new calls, its rules from now on."""
        is_retry = self._condition.state == "down" and record != self.record
        self._discovery.replace_record(record)
        self.timeout_s = min(record.budgets.tool_timeout_ms / 1000, CALL_CEILING_S)
        self.max_output_bytes = record.budgets.max_tool_output_bytes
        self.gate.resize(record.budgets.max_concurrency)
        if is_retry:
            self._restarts.forgive()
            self._discovery.ask(self._clock())
        self._wake.set()

    async def connected(self, until_s: float) -> Link:
        """The link, opened if need be. Fails at once while the server is down, else at `until_s`."""
        server_id = self.record.server_id
        while (link := self.link) is None:
            if not self.record.enabled:
                raise ServerUnavailable(f"server `{server_id}` is disabled")
            if self._is_stopped:
                raise ServerUnavailable(f"server `{server_id}` was changed meanwhile; nothing was sent")
            if self._condition.state == "down" and self._clock() < self._restarts.not_before_s:
                # Not why: the reason may quote the server's own output, which is for operators.
                raise ServerUnavailable(f"server `{server_id}` is down")
            self._is_demanded = True
            self._wake.set()
            try:
                async with asyncio.timeout_at(until_s):
                    await self._start_ended.wait()
            except TimeoutError as exc:
                raise CallTimedOut(
                    f"server `{server_id}` did not connect within the call's time; nothing was sent"
                ) from exc
        return link

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

    def health(self) -> ServerHealth:
        link = self.link
        return ServerHealth(
            state=self._condition.state,
            last_error=self._condition.last_error,
            since_ms=self._condition.since_ms,
            restarts=self._restarts.count,
            pid=link.pid if link else None,
            era=link.hello.era if link else self._known_era,
            version=link.hello.version if link else None,
            stderr_tail=str(self.stderr),
            in_flight=self.gate.in_flight + self.gate.outside,
            queued=self.gate.queued,
            tools=len(self.tools.tools),
            quarantined=len(self.tools.quarantined),
            calls=self.calls,
            last_list_ms=self._discovery.last_list_ms,
        )

    # What the link reports

    def on_list_changed(self) -> None:
        self._discovery.on_list_changed(self._clock())
        self._wake.set()

    def on_lost(self, reason: str) -> None:
        now_s = self._clock()
        self._let_go()
        self._restarts.on_lost(now_s)
        self._enter("down" if self._restarts.is_exhausted(now_s) else "degraded", error=reason)
        self._wake.set()

    # The task

    async def _run(self) -> None:
        try:
            while True:
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
                self._on_list_failed(ListFailed(f"internal error: {exc!r}"))

    def _next(self) -> tuple[float, Callable[[], Awaitable[None]]]:
        """What to do next, and the loop time at which."""
        if self.link is None:
            is_wanted = self._is_demanded or (self.record.prewarm and not self._restarts.is_fatal)
            wanted_s = 0.0 if is_wanted else self._discovery.due_s
            return max(wanted_s, self._restarts.not_before_s), self._start
        idle_s = self._idle_s()
        if self._discovery.due_s <= idle_s:
            return self._discovery.due_s, self._list
        return idle_s, self._reap

    def _idle_s(self) -> float:
        """When the link has been without calls for too long."""
        timeout_s = self.record.idle_timeout_s
        if timeout_s <= 0 or self.record.prewarm:
            return math.inf
        return (self.last_used_s if self.gate.is_empty else self._clock()) + timeout_s

    async def _sleep(self, until_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if until_s == math.inf else until_s):
                await self._wake.wait()
        self._wake.clear()

    async def _start(self) -> None:
        reports = _Reports(self)
        openers = self._around.openers
        try:
            async with openers.slot(self.record.transport):
                self._restarts.on_start(self._clock())
                link = await openers.open(self.record, reports, known_era=self._known_era)
        except StartFailed as exc:
            self._on_start_failed(exc)
            return
        self.link = reports.link = link
        self._on_started(link)
        if reports.closed is not None:
            self.on_lost(reports.closed)

    def _on_started(self, link: Link) -> None:
        now_s = self._clock()
        self._known_era = link.hello.era
        self.last_used_s = now_s
        self._discovery.ask(now_s)
        self._enter("connected")
        self._around.metrics.connects[self.record.server_id, "ok"] += 1
        self._announce_start_ended()

    def _on_start_failed(self, failure: StartFailed) -> None:
        self._known_era = None
        self._restarts.on_failed(self._clock(), is_fatal=failure.fatal, asked_s=failure.retry_after_s or 0.0)
        self._enter("down", error=str(failure))
        self._around.metrics.connects[self.record.server_id, "failed"] += 1
        due_s = math.inf if failure.fatal else self._restarts.not_before_s
        self._settle(is_changed=self._discovery.on_start_failed(failure, due_s=due_s))
        _end(self._take_refreshes())
        self._announce_start_ended()

    async def _list(self) -> None:
        link = self.link
        assert link is not None  # `_next` lists only where there is a link
        refreshes = self._take_refreshes()
        self._discovery.on_begun(self._clock())
        try:
            listed = await list_tools(
                self.record.server_id, link, timeout_s=self._around.limits.list_timeout_s
            )
        except ListFailed as exc:
            self._on_list_failed(exc)
        else:
            self._on_listed(listed)
        finally:
            _end(refreshes)

    def _on_listed(self, listed: Listed) -> None:
        if self.link is not None:
            self._enter("connected")
        is_changed = self._discovery.on_listed(listed, self._clock())
        self._around.metrics.list_latency(self.record.server_id).add(self._discovery.last_list_ms or 0)
        self._settle(is_changed=is_changed)

    def _on_list_failed(self, failure: ListFailed) -> None:
        if self.link is not None:
            self._enter("degraded", error=str(failure))
        self._settle(is_changed=self._discovery.on_failed(failure, self._clock()))

    async def _reap(self) -> None:
        self._let_go()
        self._restarts.forgive()
        self._discovery.rest()
        self._enter("idle")

    async def _wind_down(self) -> None:
        if self.link is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._drain_s) as self._draining:
                    await self.gate.emptied()
            self._draining = None
        link, self.link = self.link or self._leaving, None
        if link is not None:
            await self._close(link)

    # Small things

    def _enter(self, state: HealthState, *, error: str = "") -> None:
        """Another state, told in the log without its reason: that may quote what the server said."""
        before = self._condition.state
        self._condition.enter(state, error=error)
        if state == before:
            return
        if state in {"down", "degraded"}:
            server_id = self.record.server_id
            _logger.warning(
                "server `%s` is %s: `toolgate servers get %s` says why", server_id, state, server_id
            )
        elif before in {"down", "degraded"}:
            _logger.info("server `%s` is %s again", self.record.server_id, state)

    def _let_go(self) -> None:
        """Part with the link at once, and close it beside: stopping a child may take seconds."""
        link, self.link = self.link, None
        if link is not None:
            self._around.tasks.create_task(self._close(link))

    async def _close(self, link: Link) -> None:
        try:
            await link.aclose()
        except Exception:
            _logger.exception("server `%s`: its link did not close", self.record.server_id)

    def _settle(self, *, is_changed: bool) -> None:
        if is_changed:
            self.headers.clear()
            self._around.on_change(self.record.server_id)
        self.attempted.set()

    def _take_refreshes(self) -> list[asyncio.Future[None]]:
        refreshes, self._refreshes = self._refreshes, []
        return refreshes

    def _announce_start_ended(self) -> None:
        self._is_demanded = False
        self._start_ended.set()
        self._start_ended = asyncio.Event()


def _end(refreshes: Iterable[asyncio.Future[None]]) -> None:
    for ended in refreshes:
        if not ended.done():
            ended.set_result(None)
