"""Claims invocations from the queue, as many as there are free slots, and runs each until its last report.

The queue selects them. A node claims only invocations that it can start at once, so they wait only in the
queue.

The work (get the module, run it) and the reports run concurrently. Each report that the queue acknowledges
renews the lease. No run starts before the first acknowledgement, and none continues when its lease may have
expired: the queue may have given the invocation to another node.
"""

import asyncio
import logging
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from toolgate.audit.events import InvocationEnded
from toolgate.errors import NotFound, PolicyDenied, ToolgateError
from toolgate.gateway.auth.identity import principal_of
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.model.invocations import EndedBy, Invocation, InvocationResult, LogLine
from toolgate.model.principals import Principal
from toolgate.model.tasks import Workload
from toolgate.registry.invocations import HEARTBEAT_S, LEASE_MS, InvocationQueue, keep_newest_lines
from toolgate.surfaces.wasm.context import SURFACE, CallLog, TaskContext
from toolgate.telemetry.spans import make_span_name, open_span, read_trace_id
from toolgate.upstream.models.client import Models
from toolgate.wasm.run import GuestJob, GuestRun, build_ending

CLAIM_WAIT_S: Final = 20.0  # how long one claim waits for work
LAST_REPORTS_S: Final = 5.0  # for the last reports of runs that were killed because the node stops
LAST_REPORT_S: Final = 120.0  # how long the node tries to report the end of a run

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestServices:
    """The services that all invocations of a node share."""

    gateway: Gateway
    models: Models
    queue: InvocationQueue
    run_guest: Callable[[GuestRun[TaskContext]], Awaitable[InvocationResult]]
    """Runs a guest to its end. If cancelled, kills the run and waits for its end."""
    open_module: Callable[[str], Awaitable[Path]]
    """Returns the compiled file of a module by its hash. Raises ToolgateError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """The intervals of an invocation's reports and checks."""

    lease_s: float = LEASE_MS / 1000
    heartbeat_s: float = HEARTBEAT_S
    look_s: float = 0.25
    """The time within which new lines are reported and revoked keys are noticed."""
    claim_retry_s: float = 2.0
    """The pause after a failed claim: short for waiting invocations, and long enough to cause no load."""
    revision_s: float = 30.0
    """How long a node may take to reach the revision at which an invocation was queued."""

    @property
    def retry_s(self) -> float:
        """The pause after a report without acknowledgement."""
        return self.heartbeat_s / 4

    @property
    def safe_s(self) -> float:
        """How long after the lease began a guest is stopped: earlier than its end, because a kill takes
        time."""
        return self.lease_s * 14 / 15


class InvocationRun:
    """One attempt at one invocation."""

    def __init__(self, claimed: Invocation, services: GuestServices, timing: LeaseTiming) -> None:
        self._claimed = claimed
        self._services = services
        self._gateway = services.gateway
        self._timing = timing
        self._calls = CallLog(0)
        self._principal = claimed.principal
        self._module = ""
        self._run: GuestRun[TaskContext] | None = None
        self._work: asyncio.Task[InvocationResult] | None = None
        self._stopped: InvocationResult | None = None
        self._lines: list[LogLine] = []
        """Lines that no report has delivered so far."""
        self._is_confirmed = asyncio.Event()
        self._is_lost = False
        self._is_failing = False
        """Whether the last report got no acknowledgement."""
        now_s = asyncio.get_running_loop().time()
        self._safe_until_s = now_s + timing.safe_s
        self._next_report_s = now_s

    async def conduct(self) -> None:
        """Run it to its end, and report the end. If cancelled, it ends without a report."""
        began_s = time.monotonic()
        self._work = asyncio.create_task(self._execute())
        try:
            await self._supervise(self._work)
            result = self._collect_result(self._work)
        finally:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            self._gateway.servers.end_session(self._claimed.invocation_id)
        self._record_end(result, int((time.monotonic() - began_s) * 1000))
        await self._report_end(result)

    def stop(self, ended_by: EndedBy, message: str) -> None:
        """End the run in any state. The first cause stays."""
        if self._stopped is not None:
            return
        self._stopped = build_ending(ended_by, message)
        if self._run is not None:
            self._run.kill(ended_by, message)
        elif self._work is not None:
            self._work.cancel()

    # The work

    async def _execute(self) -> InvocationResult:
        try:
            async with asyncio.timeout(self._timing.revision_s):
                await self._gateway.wait_for_revision(self._claimed.revision)
            workload = await self._find_workload()
            if isinstance(workload, InvocationResult):
                return workload
            path = await self._services.open_module(workload.module)
        except TimeoutError:
            message = f"the node did not reach revision {self._claimed.revision} of the registry in time"
            return build_ending("internal", message)
        except ToolgateError as exc:
            return build_ending("module", f"{exc}: {exc.hint}")
        await self._is_confirmed.wait()
        attributes = {
            "toolgate.door": SURFACE,
            "toolgate.principal": self._principal.id,
            "toolgate.task_id": self._claimed.task_id,
            "toolgate.invocation_id": self._claimed.invocation_id,
        }
        name = make_span_name("run", self._claimed.task_id)
        with open_span(self._gateway.tracer, name, "server", attributes) as span:
            self._run = GuestRun(self._make_job(workload, path))
            result = await self._services.run_guest(self._run)
            if span is not None and result.state != "succeeded":
                span.fail(result.ended_by)
        return result

    async def _find_workload(self) -> Workload | InvocationResult:
        """The module and principal by the registry's current state, or the result if nothing may run."""
        task_id, gateway = self._claimed.task_id, self._gateway
        principal = self._find_principal()
        if principal is None:
            return build_ending("revoked", "the key that started the run was revoked, or has expired")
        self._principal = principal
        task = gateway.snapshot.tasks.get(task_id)
        if task is None or task.workload is None:
            return build_ending("module", f"task `{task_id}` was deleted, or no longer has a workload")
        caller = Caller(principal, task_id)
        try:
            policy = gateway.task_policy(caller)
        except NotFound:
            return build_ending("revoked", f"the key that started the run no longer allows task `{task_id}`")
        self._module = task.workload.module
        if policy is not None and policy.require_servers:
            try:
                await gateway.wait_for_view(caller, for_call=True)
            except PolicyDenied as exc:
                return build_ending("module", f"{exc}; {exc.hint}")
        return task.workload

    def _make_job(self, workload: Workload, path: Path) -> GuestJob[TaskContext]:
        self._calls, claimed = CallLog(workload.limits.max_calls), self._claimed
        context = TaskContext(
            gateway=self._gateway,
            models=self._services.models,
            caller=Caller(self._principal, claimed.task_id),
            invocation_id=claimed.invocation_id,
            calls=self._calls,
            wall_s=time.time,
            deadline_s=asyncio.get_running_loop().time() + workload.limits.wall_clock_ms / 1000,
            trace_id=read_trace_id(self._gateway.tracer),
        )
        name, input_ = claimed.task_id, claimed.input
        return GuestJob(workload=workload, compiled=path, name=name, input=input_, context=context)

    def _find_principal(self) -> Principal | None:
        """The current principal of the same key; None if the key is gone. Tokens are not checked again."""
        kind, _, key_id = self._claimed.principal.id.partition(":")
        if kind != "key":
            return self._claimed.principal
        key = self._gateway.snapshot.keys.get(key_id)
        if key is None or (key.expires_at_s is not None and key.expires_at_s <= time.time()):
            return None
        return principal_of(key)

    def _collect_result(self, work: "asyncio.Task[InvocationResult]") -> InvocationResult:
        if work.cancelled():
            result = self._stopped or build_ending("node_stopped", "the node stopped")
        elif (exc := work.exception()) is not None:
            _log.error("a run of task `%s` failed inside the node", self._claimed.task_id, exc_info=exc)
            result = build_ending("internal", "the run failed inside the node; its log has details")
        else:
            result = work.result()
        usage = replace(result.usage, tool_calls=self._calls.total, model_asks=self._calls.model_asks)
        return replace(result, usage=usage, calls=tuple(self._calls.kept))

    # The reports

    async def _supervise(self, work: "asyncio.Task[InvocationResult]") -> None:
        """Report while the work runs, and end the work if it may not run. A slow report delays no check."""
        reporting = asyncio.create_task(self._keep_reporting())
        try:
            while not (work.done() or reporting.done()):
                self._check_lease()
                await asyncio.wait(
                    {work, reporting}, timeout=self._timing.look_s, return_when=FIRST_COMPLETED
                )
        finally:
            reporting.cancel()
            await asyncio.wait({reporting})
        if not reporting.cancelled():
            reporting.result()

    async def _keep_reporting(self) -> None:
        while True:
            self._take_lines()
            is_due = asyncio.get_running_loop().time() >= self._next_report_s
            if is_due or (self._lines and not self._is_failing):
                await self._report()
            await asyncio.sleep(self._timing.look_s)

    def _check_lease(self) -> None:
        """End the run if its lease may have expired, or if its key has changed."""
        if asyncio.get_running_loop().time() >= self._safe_until_s:
            self._lose("the control plane did not respond, so another node may have taken over the run")
        elif self._run is not None and self._find_principal() != self._principal:
            self.stop("revoked", "the key that started the run was revoked or changed, or has expired")

    def _lose(self, why: str) -> None:
        self._is_lost = True
        self.stop("node_lost", why)

    def _take_lines(self) -> None:
        if self._run is not None and (taken := self._run.output.take()):
            self._lines = [*keep_newest_lines([*self._lines, *taken])]

    async def _report(self, result: InvocationResult | None = None) -> bool:
        """Report new lines and the result. Returns whether the queue acknowledged the report."""
        loop, claimed, timing = asyncio.get_running_loop(), self._claimed, self._timing
        began_s, lines = loop.time(), tuple(self._lines)
        until_s = self._safe_until_s if result is None else began_s + LAST_REPORT_S
        try:
            async with asyncio.timeout_at(until_s):
                verdict = await self._services.queue.report(
                    claimed.invocation_id, claimed.attempt, lines=lines, ending=result
                )
        except (ToolgateError, TimeoutError) as exc:
            if not self._is_failing:
                _log.warning("cannot report invocation %s; retrying: %r", claimed.invocation_id, exc)
            self._is_failing = True
            self._next_report_s = loop.time() + timing.retry_s
            return False
        del self._lines[: len(lines)]
        # Counted from before the report was sent: the queue counts from a later time.
        self._safe_until_s = began_s + timing.safe_s
        self._next_report_s = began_s + timing.heartbeat_s
        self._is_failing = False
        self._is_confirmed.set()
        if verdict == "lost":
            self._lose("the control plane declared the run lost, so another node may have taken it over")
        elif verdict == "cancel":
            self.stop("cancelled", "the run was cancelled")
        return True

    async def _report_end(self, result: InvocationResult) -> None:
        """Report until acknowledged or lost. It counts if the queue has not given the run to another node."""
        self._take_lines()
        clock = asyncio.get_running_loop().time
        until_s = clock() + LAST_REPORT_S
        while not self._is_lost and clock() < until_s:
            if await self._report(result):
                return
            await asyncio.sleep(self._timing.retry_s)
        _log.warning("cannot report the end of invocation %s", self._claimed.invocation_id)

    def _record_end(self, result: InvocationResult, took_ms: int) -> None:
        self._gateway.metrics.invocations[result.state, result.ended_by] += 1
        self._gateway.metrics.invocation_ms.add(took_ms)
        self._gateway.audit.record(
            InvocationEnded(
                at_ms=int(time.time() * 1000),
                principal=self._principal.id,
                task_id=self._claimed.task_id,
                invocation_id=self._claimed.invocation_id,
                attempt=self._claimed.attempt,
                state=result.state,
                ended_by=result.ended_by,
                module=self._module,
                duration_ms=took_ms,
                tool_calls=result.usage.tool_calls,
            )
        )


@dataclass(kw_only=True, eq=False)
class Invoker:
    """Runs at most `max_guests` guests at once; with 0, it claims none. At a stop, it waits up to
    `drain_s`."""

    services: GuestServices
    node_id: str
    max_guests: int
    drain_s: float
    timing: LeaseTiming = LeaseTiming()
    _running: dict[asyncio.Task[None], InvocationRun] = field(default_factory=dict, init=False)
    _room: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _claiming: asyncio.Task[None] | None = field(default=None, init=False)
    _drained_at_s: float | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._running)

    async def __aenter__(self) -> Self:
        if self.max_guests:
            self._claiming = asyncio.create_task(self._claim())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self.stop()
        try:
            await self._drain()
        finally:
            ending = [*self._running, *([] if self._claiming is None else [self._claiming])]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def stop(self) -> None:
        """Claim no more invocations. Running ones have `drain_s` to end."""
        if self._claiming is not None:
            self._claiming.cancel()
        if self._drained_at_s is None:
            self._drained_at_s = asyncio.get_running_loop().time() + self.drain_s

    async def _drain(self) -> None:
        if not self._running:
            return
        left_s = (self._drained_at_s or 0) - asyncio.get_running_loop().time()
        await asyncio.wait(self._running, timeout=max(0, left_s))
        for running in self._running.values():
            running.stop("node_stopped", "the node stopped, and the run did not end within `drain_s`")
        if self._running:
            await asyncio.wait(self._running, timeout=LAST_REPORTS_S)

    async def _claim(self) -> None:
        is_failing = False
        while True:
            while not (free := self.max_guests - len(self._running)):
                self._room.clear()
                await self._room.wait()
            try:
                claimed = await self.services.queue.claim(self.node_id, limit=free, wait_s=CLAIM_WAIT_S)
            except Exception as exc:  # no other task claims
                if not isinstance(exc, ToolgateError):
                    _log.exception("cannot claim invocations")
                elif not is_failing:
                    _log.warning("cannot claim invocations: %s", exc)
                is_failing = True
                await asyncio.sleep(self.timing.claim_retry_s)
                continue
            is_failing = False
            for invocation in claimed:
                run = InvocationRun(invocation, self.services, self.timing)
                task = asyncio.create_task(run.conduct())
                self._running[task] = run
                task.add_done_callback(self._on_run_ended)

    def _on_run_ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        self._room.set()
        if not task.cancelled() and (exc := task.exception()) is not None:
            _log.error("an invocation ended by a bug inside the node", exc_info=exc)
