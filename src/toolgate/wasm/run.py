"""One run of a guest: its job, its output, the cause of its end, and its work on the event loop.

Two threads use it, the event loop's and the guest's. The first cause to end wins. The guest's thread writes
output and the event loop's takes it; output that is not taken in time is dropped, oldest first. So output
never uses more memory than the limits here.

Hostcalls run in Python, and share the interpreter with the event loop. Guests that make hostcalls in a loop
would leave the event loop the share of one thread among many: 32 such guests delayed it by a second. So
hostcalls of all guests pass one gate, one at a time, and together get a fixed share of the time.

While the event loop works for a guest, the guest's thread waits on an inbox. It receives functions to call on
this thread, or None: check whether the work is done, or whether the run must end. A run that must end does
not wait for its work: the work is cancelled, and `Slots` awaits it.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Literal, TypeVar

from toolgate.model.invocations import (
    MAX_LINE_BYTES,
    MAX_LOG_LINES,
    EndedBy,
    InvocationResult,
    InvocationState,
    LogLevel,
    LogLine,
    LogStream,
    RunUsage,
)
from toolgate.model.tasks import Workload
from toolgate.wasm.abi import OnThread, RunStopped

MAX_WAITING_BYTES: Final = 1_048_576  # a choice: size of lines that no report has taken
SHARE: Final = 0.5  # a choice: share of the time for hostcalls of all guests together
REST_S: Final = 0.005  # how far guests may exceed their share, and how long the gate then closes
POLL_S: Final = 0.05
"""How often a thread that waits at the gate checks whether its run must end."""
CALL_OVERHEAD_S: Final = 0.000_010  # the bindings' time for a hostcall, which the gate does not see

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")

Inbox = SimpleQueue[Callable[[], None] | None]


class BoundedOutput:
    """The output of one run: stdout and stderr up to a limit, and the log as a ring of lines."""

    def __init__(self, max_bytes: int, *, wall_s: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self.kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._unfinished = {"stdout": bytearray(), "stderr": bytearray()}
        self._lines: deque[LogLine] = deque()
        self._waiting_bytes = 0
        self._seq = 0
        self.is_truncated = False

    def write(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Write to `stdout` or `stderr`, up to the limit. Complete lines go to the log, too."""
        kept, unfinished = self.kept[stream], self._unfinished[stream]
        taken = data[: self._max_bytes - len(kept)]
        self.is_truncated |= len(taken) < len(data)
        kept += taken
        unfinished += taken
        if b"\n" in taken:
            lines, _, rest = bytes(unfinished).rpartition(b"\n")
            self._add(stream, lines)
            unfinished[:] = rest
        while len(unfinished) >= MAX_LINE_BYTES:
            self._add(stream, bytes(unfinished[:MAX_LINE_BYTES]))
            del unfinished[:MAX_LINE_BYTES]

    def log(self, level: LogLevel, text: str) -> None:
        """Write a line to the log, or several if the text has line breaks."""
        self._add("log", text.removesuffix("\n").encode(errors="replace"), level)

    def finish(self) -> None:
        """The run has ended: log lines without a line break."""
        for stream in ("stdout", "stderr"):
            if self._unfinished[stream]:
                self._add(stream, bytes(self._unfinished[stream]))
                self._unfinished[stream].clear()

    def take(self) -> list[LogLine]:
        """Take the lines since the last call. A gap in their numbers means dropped lines."""
        with self._lock:
            taken = list(self._lines)
            self._lines.clear()
            self._waiting_bytes = 0
        return taken

    def _add(self, stream: LogStream, lines: bytes, level: LogLevel = "info") -> None:
        """Add `lines`. Of a million at once, only the last ones that fit are built."""
        self._seq += max(0, lines.count(b"\n") + 1 - MAX_LOG_LINES)
        fresh = []
        for line in lines.rsplit(b"\n", MAX_LOG_LINES)[-MAX_LOG_LINES:]:
            at_ms = int(self._wall_s() * 1000)
            for start in range(0, len(line) or 1, MAX_LINE_BYTES):
                piece = line[start : start + MAX_LINE_BYTES].decode(errors="replace")
                text = piece.replace("\0", "\N{REPLACEMENT CHARACTER}")  # databases reject NUL
                self._seq += 1
                fresh.append(LogLine(seq=self._seq, at_ms=at_ms, stream=stream, text=text, level=level))
        with self._lock:  # held briefly: the event loop waits for it
            self._lines.extend(fresh)
            self._waiting_bytes += sum(len(line.text) for line in fresh)
            while len(self._lines) > MAX_LOG_LINES or self._waiting_bytes > MAX_WAITING_BYTES:
                self._waiting_bytes -= len(self._lines.popleft().text)


@dataclass(frozen=True, kw_only=True)
class GuestJob(Generic[C]):
    workload: Workload
    compiled: Path
    """The compiled file. It runs as native code, so only Toolgate may have written it."""
    name: str
    """The program's name, which is its first argument."""
    input: bytes
    context: C
    """The gateway's services for its hostcalls."""


def build_ending(ended_by: EndedBy, message: str = "", *, exit_code: int | None = None) -> InvocationResult:
    """The result of a run that ended by this cause, without output and usage."""
    state: InvocationState = "failed"
    match ended_by:
        case "exit" if not exit_code:
            state = "succeeded"
        case "cancelled" | "revoked":
            state = "cancelled"
        case "node_stopped" | "node_lost":
            state = "crashed"
    return InvocationResult(state=state, ended_by=ended_by, exit_code=exit_code, message=message)


class GuestRun(Generic[C]):
    """One run. Created on the event loop, and used once."""

    def __init__(self, job: GuestJob[C], *, wall_s: Callable[[], float] = time.time) -> None:
        self.job = job
        self.output = BoundedOutput(job.workload.limits.max_output_bytes, wall_s=wall_s)
        self.ending: InvocationResult | None = None
        """Set when the run has ended."""
        self.loop_tasks: set[asyncio.Task[Any]] = set()
        """The run's work on the event loop; used only there."""
        self.contextvars = copy_context()
        """The creator's context variables: work on the event loop runs with them, and so in its trace."""
        self._lock = threading.Lock()
        self._cause: InvocationResult | None = None
        self._interrupts: list[Callable[[], object]] = []

    @property
    def is_ending(self) -> bool:
        return self._cause is not None

    def kill(self, ended_by: EndedBy, message: str) -> None:
        """End the run now. May be called from any thread, at any time, any number of times."""
        self.settle(build_ending(ended_by, message))
        with self._lock:
            for interrupt in self._interrupts:
                interrupt()

    def settle(self, cause: InvocationResult) -> None:
        """Set the cause of the end, unless it is set."""
        with self._lock:
            self._cause = self._cause or cause

    @contextmanager
    def interruptible(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Within the block, `kill` calls `interrupt`. Raises RunStopped if the run is ending."""
        with self._lock:
            if self._cause is not None:
                raise RunStopped
            self._interrupts.append(interrupt)
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)

    def end(self, usage: RunUsage) -> InvocationResult:
        cause = self._cause or build_ending("internal", "the run ended without a cause: a bug in Toolgate")
        self.output.finish()
        self.ending = replace(
            cause,
            stdout=bytes(self.output.kept["stdout"]),
            stderr=bytes(self.output.kept["stderr"]),
            is_truncated=self.output.is_truncated,
            usage=usage,
        )
        return self.ending


@dataclass(kw_only=True)
class HostcallGate:
    """The gate for hostcalls of all guests; each guest passes it with its `GatePass`."""

    clock_s: Callable[[], float] = time.monotonic
    rest: Callable[[float], object] = time.sleep
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _entered_s: float = field(default=0.0, init=False)
    _earned_at_s: float = field(default=0.0, init=False)
    """The time at which the time used so far equals the guests' share."""

    def enter(self, is_ending: Callable[[], bool]) -> bool:
        """Wait for the gate. Returns whether it is held; a run that must end continues without it."""
        while not self._lock.acquire(timeout=POLL_S):
            if is_ending():
                return False
        if self._earned_at_s > self.clock_s() + REST_S:
            self.rest(REST_S)  # all guests wait, so that the event loop runs
        self._entered_s = self.clock_s()
        return True

    def leave(self, overhead_s: float) -> None:
        used_s = self.clock_s() - self._entered_s + overhead_s
        self._earned_at_s = max(self._earned_at_s, self._entered_s) + used_s / SHARE
        self._lock.release()


@dataclass(slots=True)
class GatePass:
    """A context manager that holds the gate. Within it, the context manager `left` releases it for a wait."""

    _gate: HostcallGate
    _is_ending: Callable[[], bool]
    _is_held: bool = False

    def __enter__(self) -> None:
        self._is_held = self._gate.enter(self._is_ending)

    def __exit__(self, *exc_info: object) -> None:
        self.leave(CALL_OVERHEAD_S)

    @contextmanager
    def left(self) -> Iterator[None]:
        self.leave()
        try:
            yield
        finally:
            self.__enter__()

    def leave(self, overhead_s: float = 0.0) -> None:
        if self._is_held:
            self._is_held = False
            self._gate.leave(overhead_s)


def sleep_interruptibly(run: GuestRun[Any], gate: GatePass, seconds: float | None) -> None:
    """Sleep. Raises RunStopped when the run must end."""
    inbox: Inbox = SimpleQueue()
    with run.interruptible(partial(inbox.put, None)):
        try:
            with gate.left():
                inbox.get(timeout=None if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        except Empty:
            return
    raise RunStopped


@dataclass(eq=False)
class LoopCall(Generic[T]):
    """Work on the event loop for which a guest's thread waits."""

    _loop: asyncio.AbstractEventLoop
    _gate: GatePass
    _work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]]
    _inbox: Inbox = field(default_factory=SimpleQueue)
    _task: asyncio.Task[T] | None = None

    # On the guest's thread

    def wait(self, run: GuestRun[Any]) -> T:
        """The result of the work. Raises its errors, and RunStopped."""
        with run.interruptible(partial(self._inbox.put, None)):
            self._loop.call_soon_threadsafe(self._begin, run, context=run.contextvars)
            try:
                task = self._serve_inbox(run)
            except BaseException:
                self._loop.call_soon_threadsafe(self._cancel)
                raise
        if task.cancelled():
            run.kill("node_stopped", "the node stopped")
            raise RunStopped
        return task.result()

    def _serve_inbox(self, run: GuestRun[Any]) -> asyncio.Task[T]:
        while True:
            with self._gate.left():
                call = self._inbox.get()
            if run.is_ending:
                raise RunStopped
            if call is not None:
                call()
            elif self._task is not None and self._task.done():
                return self._task

    def _call(self, function: Callable[[], R], result: Future[R]) -> None:
        if not result.set_running_or_notify_cancel():  # the work no longer waits for it
            return
        try:
            result.set_result(function())
        except RunStopped:
            raise  # the work is cancelled, and so is the wait for the result
        except Exception as exc:  # the work handles it
            result.set_exception(exc)

    # On the event loop

    def _begin(self, run: GuestRun[Any]) -> None:
        self._task = self._loop.create_task(self._run_work(run))
        run.loop_tasks.add(self._task)
        self._task.add_done_callback(partial(self._end, run))

    async def _run_work(self, run: GuestRun[Any]) -> T:
        return await self._work(partial(self._run_on_thread, run))

    def _end(self, run: GuestRun[Any], task: "asyncio.Task[T]") -> None:
        run.loop_tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the thread may no longer wait
        self._inbox.put(None)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run_on_thread(self, run: GuestRun[Any], function: Callable[[], R]) -> R:
        if run.is_ending:
            raise RunStopped
        result: Future[R] = Future()
        self._inbox.put(partial(self._call, function, result))
        return await asyncio.wrap_future(result)
