"""One invocation on this node: from when it was claimed to the last that is reported of it.

The work (get its module, run it) and the reports on it go on side by side. Each report that is heard renews
the lease. Nothing is begun before the first one was heard, and nothing goes on once the lease may be over:
by then the queue may have given the invocation to another node.
"""

import asyncio
import logging
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Final, Protocol

from toolgate.audit.events import InvocationEnded
from toolgate.errors import NotFound, PolicyDenied, ToolgateError
from toolgate.gateway.auth.identity import principal_of
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.model.invocations import MAX_LOG_LINES, EndedBy, Invocation, InvocationResult, LogLine
from toolgate.model.principals import Key, Principal
from toolgate.model.tasks import Workload
from toolgate.registry.invocations.contract import HEARTBEAT_S, LEASE_MS, InvocationQueue
from toolgate.surfaces.wasm.context import DOOR, CallLog, TaskContext
from toolgate.telemetry.spans import Span, make_span_name, open_span, read_trace_id
from toolgate.upstream.models.client import Models
from toolgate.wasm.run import EndCause, GuestJob, GuestRun

REVISION_S: Final = 30.0
"""How long a node may take to hear of what the registry held when an invocation was made."""
MAX_HELD_CHARS: Final = 1_048_576
"""Of lines that nobody has heard of yet."""
LAST_REPORT_S: Final = 120.0
"""How long the end of a run is tried to be reported."""

_log = logging.getLogger(__name__)


class GuestSlots(Protocol):
    """Where guests run."""

    async def run(self, run: GuestRun[TaskContext]) -> InvocationResult:
        """From its start to its end. Cancelled, it kills the run and waits for its end."""


class ModuleSource(Protocol):
    """Modules that are fit to be loaded."""

    async def open(self, sha256: str) -> Path:
        """The compiled file. Raises ToolgateError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestServices:
    """All that it takes to run a task."""

    gateway: Gateway
    models: Models
    queue: InvocationQueue
    slots: GuestSlots
    modules: ModuleSource


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """How often things are reported, and how soon they are noticed."""

    lease_s: float = LEASE_MS / 1000
    heartbeat_s: float = HEARTBEAT_S
    look_s: float = 0.25
    """New lines are reported and revoked keys noticed within this time."""

    @property
    def retry_s(self) -> float:
        """After a report that was not heard."""
        return self.heartbeat_s / 4

    @property
    def margin_s(self) -> float:
        """So long before its lease is over a guest is stopped: killing one takes a moment, too."""
        return self.lease_s / 15


class InvocationRun:
    """One attempt at one invocation."""

    def __init__(self, claimed: Invocation, means: GuestServices, pace: LeaseTiming) -> None:
        self._claimed = claimed
        self._means = means
        self._pace = pace
        self._calls = CallLog(0)
        self._principal = claimed.principal
        self._module = ""
        self._run: GuestRun[TaskContext] | None = None
        self._work: asyncio.Task[InvocationResult] | None = None
        self._stopped: EndCause | None = None
        self._lines: list[LogLine] = []
        """Written, and not known to be heard of."""
        self._heard = asyncio.Event()
        self._is_lost = False
        self._is_failing = False
        """The last report was not heard."""
        now_s = asyncio.get_running_loop().time()
        self._safe_until_s = now_s + pace.lease_s - pace.margin_s
        self._next_report_s = now_s

    async def conduct(self) -> None:
        """Run it to its end, and report that. Cancelled, it ends without a report."""
        began_s = time.monotonic()
        self._work = asyncio.create_task(self._do())
        try:
            await self._attend(self._work)
            ending = self._ending(self._work)
        finally:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            self._means.gateway.servers.end_session(self._claimed.invocation_id)
        self._record(ending, int((time.monotonic() - began_s) * 1000))
        await self._report_end(ending)

    def stop(self, ended_by: EndedBy, message: str) -> None:
        """End it, wherever it is. The first reason stays."""
        if self._stopped is not None:
            return
        self._stopped = EndCause(ended_by, message)
        if self._run is not None:
            self._run.kill(ended_by, message)
        elif self._work is not None:
            self._work.cancel()

    # The work

    async def _do(self) -> InvocationResult:
        try:
            async with asyncio.timeout(REVISION_S):
                await self._means.gateway.wait_for_revision(self._claimed.revision)
            found = self._find()
            await self._check_servers()
            path = await self._means.modules.open(found.module)
        except TimeoutError:
            message = f"its node did not hear of revision {self._claimed.revision} of the registry in time"
            return _build_ending(EndCause("internal", message))
        except _StartRefused as refused:
            return _build_ending(refused.cause)
        except ToolgateError as exc:
            return _build_ending(EndCause("module", f"{exc}: {exc.hint}"))
        await self._heard.wait()
        with self._traced() as span:
            self._run = GuestRun(self._job(found, path))
            ending = await self._means.slots.run(self._run)
            if span is not None and ending.state != "succeeded":
                span.fail(ending.ended_by)
        return ending

    def _traced(self) -> AbstractContextManager[Span | None]:
        """A span around the run: all that it asks for is part of it."""
        notes = {
            "toolgate.door": DOOR,
            "toolgate.principal": self._principal.id,
            "toolgate.task_id": self._claimed.task_id,
            "toolgate.invocation_id": self._claimed.invocation_id,
        }
        return open_span(
            self._means.gateway.tracer, make_span_name("run", self._claimed.task_id), "server", notes
        )

    def _find(self) -> Workload:
        """What is to be run, and as whom, as the registry has it now. Raises _Refused."""
        task_id, gateway = self._claimed.task_id, self._means.gateway
        principal = self._proven()
        if principal is None:
            raise _StartRefused("revoked", "the key that it was begun with is revoked, or has expired")
        self._principal = principal
        task = gateway.snapshot.tasks.get(task_id)
        if task is None or task.workload is None:
            raise _StartRefused("module", f"the task `{task_id}` is gone, or has no workload any more")
        try:
            gateway.task_policy(Caller(principal, task_id))
        except NotFound:
            raise _StartRefused(
                "revoked", f"the key that it was begun with is not for `{task_id}` any more"
            ) from None
        self._module = task.workload.module
        return task.workload

    async def _check_servers(self) -> None:
        """Raises _Refused if the task requires MCP servers, and none is left in the scope of the run."""
        gateway, caller = self._means.gateway, Caller(self._principal, self._claimed.task_id)
        policy = gateway.task_policy(caller)
        if policy is None or not policy.require_servers:
            return
        try:
            await gateway.wait_for_view(caller, for_call=True)
        except PolicyDenied as exc:
            raise _StartRefused("module", f"{exc}; {exc.hint}") from None

    def _job(self, workload: Workload, path: Path) -> GuestJob[TaskContext]:
        self._calls = CallLog(workload.limits.max_calls)
        deadline_s = asyncio.get_running_loop().time() + workload.limits.wall_clock_ms / 1000
        context = TaskContext(
            gateway=self._means.gateway,
            models=self._means.models,
            caller=Caller(self._principal, self._claimed.task_id),
            invocation_id=self._claimed.invocation_id,
            calls=self._calls,
            wall_s=time.time,
            deadline_s=deadline_s,
            trace_id=read_trace_id(self._means.gateway.tracer),
        )
        return GuestJob(
            module=path,
            sha256=workload.module,
            args=(self._claimed.task_id, *workload.args),
            env=workload.env,
            input=self._claimed.input,
            limits=workload.limits,
            context=context,
        )

    def _proven(self) -> Principal | None:
        return _find_principal(self._claimed.principal, self._means.gateway.snapshot.keys)

    def _ending(self, work: "asyncio.Task[InvocationResult]") -> InvocationResult:
        """How the work ended, with what only this side knows."""
        if work.cancelled():
            ending = _build_ending(self._stopped or EndCause("node_stopped", "its node stopped"))
        elif (exc := work.exception()) is not None:
            _log.error("an invocation of `%s` failed inside the node", self._claimed.task_id, exc_info=exc)
            ending = _build_ending(
                EndCause("internal", "the run failed inside its node, whose log says more")
            )
        else:
            ending = work.result()
        usage = replace(ending.usage, tool_calls=self._calls.total, model_asks=self._calls.model_asks)
        return replace(ending, usage=usage, calls=tuple(self._calls.kept))

    # The reports

    async def _attend(self, work: "asyncio.Task[InvocationResult]") -> None:
        """Report while the work goes on, and end it where it may not. A report that hangs delays no look."""
        reporting = asyncio.create_task(self._keep_reporting())
        try:
            while not (work.done() or reporting.done()):
                self._look()
                await asyncio.wait({work, reporting}, timeout=self._pace.look_s, return_when=FIRST_COMPLETED)
        finally:
            reporting.cancel()
            await asyncio.wait({reporting})
        if not reporting.cancelled():
            reporting.result()

    async def _keep_reporting(self) -> None:
        while True:
            self._gather()
            is_due = asyncio.get_running_loop().time() >= self._next_report_s
            if is_due or (self._lines and not self._is_failing):
                await self._report()
            await asyncio.sleep(self._pace.look_s)

    def _look(self) -> None:
        """Whether it may go on."""
        if asyncio.get_running_loop().time() >= self._safe_until_s:
            self._lose("control was not heard from for so long that the run may be another node's by now")
        elif self._run is not None and self._proven() != self._principal:
            self.stop("revoked", "the key that it was begun with was revoked or changed, or it has expired")

    def _lose(self, why: str) -> None:
        self._is_lost = True
        self.stop("node_lost", why)

    def _gather(self) -> None:
        if self._run is not None and (taken := self._run.output.take()):
            self._lines = newest_lines([*self._lines, *taken])

    async def _report(self, ending: InvocationResult | None = None) -> bool:
        """Tell the queue what is new; whether it has heard."""
        loop = asyncio.get_running_loop()
        began_s, lines = loop.time(), tuple(self._lines)
        claimed = self._claimed
        try:
            until_s = self._safe_until_s if ending is None else began_s + LAST_REPORT_S
            async with asyncio.timeout_at(until_s):
                verdict = await self._means.queue.report(
                    claimed.invocation_id, claimed.attempt, lines=lines, ending=ending
                )
        except (ToolgateError, TimeoutError) as exc:
            if not self._is_failing:
                _log.warning("nothing can be reported of invocation %s: %r", claimed.invocation_id, exc)
            self._is_failing = True
            self._next_report_s = loop.time() + self._pace.retry_s
            return False
        del self._lines[: len(lines)]
        # From before it was sent: the queue has counted from later on.
        self._safe_until_s = began_s + self._pace.lease_s - self._pace.margin_s
        self._next_report_s = began_s + self._pace.heartbeat_s
        self._is_failing = False
        self._heard.set()
        if verdict == "lost":
            self._lose("it was taken for lost, and may be another node's by now")
        elif verdict == "cancel":
            self.stop("cancelled", "it was cancelled")
        return True

    async def _report_end(self, ending: InvocationResult) -> None:
        """Until it is heard, or is another's business. It counts if the queue has not given it away since."""
        self._gather()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LAST_REPORT_S
        while not self._is_lost and loop.time() < until_s:
            if await self._report(ending):
                return
            await asyncio.sleep(self._pace.retry_s)
        _log.warning("the end of invocation %s was not heard of", self._claimed.invocation_id)

    def _record(self, ending: InvocationResult, took_ms: int) -> None:
        gateway = self._means.gateway
        gateway.metrics.invocations[ending.state, ending.ended_by] += 1
        gateway.metrics.invocation_ms.add(took_ms)
        gateway.audit.record(
            InvocationEnded(
                at_ms=int(time.time() * 1000),
                principal=self._principal.id,
                task_id=self._claimed.task_id,
                invocation_id=self._claimed.invocation_id,
                attempt=self._claimed.attempt,
                state=ending.state,
                ended_by=ending.ended_by,
                module=self._module,
                duration_ms=took_ms,
                tool_calls=ending.usage.tool_calls,
            )
        )


def newest_lines(lines: Sequence[LogLine]) -> list[LogLine]:
    """As many of them as are held for a queue that does not hear."""
    newest = lines[-MAX_LOG_LINES:]
    sizes = accumulate(len(line.text) for line in reversed(newest))
    kept = sum(size <= MAX_HELD_CHARS for size in sizes)
    return list(newest[len(newest) - kept :])


class _StartRefused(Exception):
    """It is not begun."""

    def __init__(self, ended_by: EndedBy, message: str) -> None:
        super().__init__(message)
        self.cause = EndCause(ended_by, message)


def _find_principal(principal: Principal, keys: Mapping[str, Key]) -> Principal | None:
    """Whom the key of a principal proves now; None: nobody any more. About tokens their issuer decides."""
    kind, _, key_id = principal.id.partition(":")
    if kind != "key":
        return principal
    key = keys.get(key_id)
    if key is None or (key.expires_at_s is not None and key.expires_at_s <= time.time()):
        return None
    return principal_of(key)


def _build_ending(cause: EndCause) -> InvocationResult:
    """Of what did not come to run."""
    return InvocationResult(state=cause.state, ended_by=cause.ended_by, message=cause.message)
