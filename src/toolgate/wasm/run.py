"""One run of a guest: its job, its output, and what ended it.

Two threads use it, the event loop's and its own. The first reason to end wins, whatever comes after it.
Output is written on the guest's thread and taken on the event loop's; what is not taken in time is dropped,
oldest first: however much a guest writes, it costs no more than the limits here.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

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
from toolgate.model.tasks import WorkloadLimits
from toolgate.wasm.abi import RunStopped

MAX_WAITING_BYTES: Final = 1_048_576
"""Of lines that are not taken yet."""


C = TypeVar("C")


class BoundedOutput:
    """The output of one run: stdout and stderr up to a limit, and the log as a ring of lines."""

    def __init__(self, max_bytes: int, *, wall_s: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._kept = {"stdout": bytearray(), "stderr": bytearray()}
        self._unfinished = {"stdout": bytearray(), "stderr": bytearray()}
        self._lines: deque[LogLine] = deque()
        self._waiting_bytes = 0
        self._seq = 0
        self.is_truncated = False

    @property
    def stdout(self) -> bytes:
        return bytes(self._kept["stdout"])

    @property
    def stderr(self) -> bytes:
        return bytes(self._kept["stderr"])

    def write(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Write to `stdout` or `stderr`, up to the limit. Complete lines go to the log, too."""
        kept, unfinished = self._kept[stream], self._unfinished[stream]
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
        """The run has ended: log the lines that have no end."""
        for stream in ("stdout", "stderr"):
            if self._unfinished[stream]:
                self._add(stream, bytes(self._unfinished[stream]))
                self._unfinished[stream].clear()

    def take(self) -> list[LogLine]:
        """Take the lines since the last time. A gap in their numbers means dropped lines."""
        with self._lock:
            taken = list(self._lines)
            self._lines.clear()
            self._waiting_bytes = 0
        return taken

    def _add(self, stream: LogStream, lines: bytes, level: LogLevel = "info") -> None:
        """Add `lines`. Of a million at once, only those that are kept are made."""
        self._seq += max(0, lines.count(b"\n") + 1 - MAX_LOG_LINES)
        fresh = []
        for line in lines.rsplit(b"\n", MAX_LOG_LINES)[-MAX_LOG_LINES:]:
            at_ms = int(self._wall_s() * 1000)
            for start in range(0, len(line) or 1, MAX_LINE_BYTES):
                piece = line[start : start + MAX_LINE_BYTES].decode(errors="replace")
                text = piece.replace("\0", "\N{REPLACEMENT CHARACTER}")  # databases take no NUL
                self._seq += 1
                fresh.append(LogLine(seq=self._seq, at_ms=at_ms, stream=stream, text=text, level=level))
        with self._lock:  # as short as possible: the event loop waits for it
            self._lines.extend(fresh)
            self._waiting_bytes += sum(len(line.text) for line in fresh)
            while len(self._lines) > MAX_LOG_LINES or self._waiting_bytes > MAX_WAITING_BYTES:
                self._waiting_bytes -= len(self._lines.popleft().text)


@dataclass(frozen=True, kw_only=True)
class GuestJob(Generic[C]):
    """The program of a run, and its input."""

    module: Path
    """The compiled file. It runs as native code: only this program may have written it."""
    sha256: str
    args: tuple[str, ...]
    """The first is the program's name."""
    env: Mapping[str, str]
    input: bytes
    limits: WorkloadLimits
    context: C
    """What its hostcalls need of the gateway."""


class EndCause(NamedTuple):
    """What ended a run."""

    ended_by: EndedBy
    message: str = ""
    exit_code: int | None = None

    @property
    def state(self) -> InvocationState:
        match self.ended_by:
            case "exit" if not self.exit_code:
                return "succeeded"
            case "cancelled" | "revoked":
                return "cancelled"
            case "node_stopped" | "node_lost":
                return "crashed"
        return "failed"


class GuestRun(Generic[C]):
    """One run. Made on the event loop, and used once."""

    def __init__(self, job: GuestJob[C], *, wall_s: Callable[[], float] = time.time) -> None:
        self.job = job
        self.output = BoundedOutput(job.limits.max_output_bytes, wall_s=wall_s)
        self.ending: InvocationResult | None = None
        """Set when it has ended."""
        self.loop_tasks: set[asyncio.Task[Any]] = set()
        """Its work on the event loop; used only there."""
        self.contextvars = copy_context()
        """Those of its creator: its work on the event loop runs in them, and so in its trace."""
        self._lock = threading.Lock()
        self._cause: EndCause | None = None
        self._interrupts: list[Callable[[], object]] = []

    @property
    def is_ending(self) -> bool:
        return self._cause is not None

    def kill(self, ended_by: EndedBy, message: str) -> None:
        """End it now. From any thread, at any time, any number of times."""
        self.settle(EndCause(ended_by, message))
        with self._lock:
            for interrupt in self._interrupts:
                interrupt()

    def settle(self, cause: EndCause) -> None:
        """Settle why it ends, if nothing has before."""
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
        """Build the result of a run that has ended."""
        cause = self._cause or EndCause("internal", "it ended without a reason: this is a bug in Toolgate")
        self.output.finish()
        self.ending = InvocationResult(
            **cause._asdict(),
            state=cause.state,
            stdout=self.output.stdout,
            stderr=self.output.stderr,
            is_truncated=self.output.is_truncated,
            usage=usage,
        )
        return self.ending
