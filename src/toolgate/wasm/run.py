"""What a guest writes: its standard output and error up to a limit, and its log as a ring of lines.

Written on the guest's thread, taken on the event loop's. What nobody takes in time is dropped, oldest first:
however much a guest writes, it costs no more than the limits here.

One run of a guest: what it is to do, how far it came, and what ended it.

Two threads have it in hand, the event loop's and its own. What ends it is settled once, under its lock: the
first reason stays, whatever comes after it.
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
"""Of lines that nobody has taken yet."""


class BoundedOutput:
    """The output of one run."""

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
        """Bytes of `stdout` or `stderr`; past the limit they are dropped. Whole lines go to the log too."""
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
        """A line of its log; one for each where the text has several."""
        self._add("log", text.removesuffix("\n").encode(errors="replace"), level)

    def finish(self) -> None:
        """The run has ended: lines that were begun are lines."""
        for stream in ("stdout", "stderr"):
            if self._unfinished[stream]:
                self._add(stream, bytes(self._unfinished[stream]))
                self._unfinished[stream].clear()

    def take(self) -> list[LogLine]:
        """The lines since it was last asked; a gap in their numbers stands for lines that were dropped."""
        with self._lock:
            taken = list(self._lines)
            self._lines.clear()
            self._waiting_bytes = 0
        return taken

    def _add(self, stream: LogStream, lines: bytes, level: LogLevel = "info") -> None:
        """The lines in `lines`. Of a million at once no more are made than are kept."""
        self._seq += max(0, lines.count(b"\n") + 1 - MAX_LOG_LINES)
        fresh = []
        for line in lines.rsplit(b"\n", MAX_LOG_LINES)[-MAX_LOG_LINES:]:
            at_ms = int(self._wall_s() * 1000)
            for text in _texts(line):
                self._seq += 1
                fresh.append(LogLine(seq=self._seq, at_ms=at_ms, stream=stream, text=text, level=level))
        with self._lock:  # not for longer: the event loop waits for it
            self._lines.extend(fresh)
            self._waiting_bytes += sum(len(line.text) for line in fresh)
            while len(self._lines) > MAX_LOG_LINES or self._waiting_bytes > MAX_WAITING_BYTES:
                self._waiting_bytes -= len(self._lines.popleft().text)


def _texts(line: bytes) -> Iterator[str]:
    """In pieces, if it is long. Databases take no NUL."""
    for start in range(0, len(line) or 1, MAX_LINE_BYTES):
        yield (
            line[start : start + MAX_LINE_BYTES]
            .decode(errors="replace")
            .replace("\0", "\N{REPLACEMENT CHARACTER}")
        )


C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class GuestJob(Generic[C]):
    """What a guest is to run, and with what."""

    module: Path
    """The compiled file. It is loaded as native code: nobody but this program may have written it."""
    sha256: str
    args: tuple[str, ...]
    """The first is the name of the program."""
    env: Mapping[str, str]
    input: bytes
    limits: WorkloadLimits
    context: C
    """What its calls find it by."""


class EndCause(NamedTuple):
    """What ended a run."""

    ended_by: EndedBy
    message: str = ""
    exit_code: int | None = None

    @property
    def state(self) -> InvocationState:
        match self.ended_by:
            case "exit":
                return "failed" if self.exit_code else "succeeded"
            case "cancelled" | "revoked":
                return "cancelled"
            case "node_stopped" | "node_lost":
                return "crashed"
            case _:
                return "failed"


class GuestRun(Generic[C]):
    """Made on the event loop from a job, and run once."""

    def __init__(self, job: GuestJob[C], *, wall_s: Callable[[], float] = time.time) -> None:
        self.job = job
        self.output = BoundedOutput(job.limits.max_output_bytes, wall_s=wall_s)
        self.ending: InvocationResult | None = None
        """There, once it has ended."""
        self.loop_tasks: set[asyncio.Task[Any]] = set()
        """What it has the event loop do; touched there only."""
        self.surroundings = copy_context()
        """Those of whoever made it: what it has the event loop do is done in them."""
        self._lock = threading.Lock()
        self._cause: EndCause | None = None
        self._interrupts: list[Callable[[], object]] = []

    @property
    def is_ending(self) -> bool:
        return self._cause is not None

    def kill(self, ended_by: EndedBy, message: str) -> None:
        """End it now. From any thread, at any time, as often as one likes."""
        with self._lock:
            self._settle(EndCause(ended_by, message))
            for interrupt in self._interrupts:
                interrupt()

    def settle(self, cause: EndCause) -> None:
        """It has ended, or is to be let go no further; on its own thread."""
        with self._lock:
            self._settle(cause)

    @contextmanager
    def interruptible(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """What `kill` calls meanwhile, and never afterwards. Raises Stopped where the run is ending."""
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
        """Everything about how it ended, when it has."""
        cause = self._cause or EndCause("internal", "it ended, and nobody said why")
        self.output.finish()
        self.ending = InvocationResult(
            state=cause.state,
            ended_by=cause.ended_by,
            exit_code=cause.exit_code,
            message=cause.message,
            stdout=self.output.stdout,
            stderr=self.output.stderr,
            is_truncated=self.output.is_truncated,
            usage=usage,
        )
        return self.ending

    def _settle(self, cause: EndCause) -> None:
        if self._cause is None:
            self._cause = cause
