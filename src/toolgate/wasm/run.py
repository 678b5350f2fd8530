"""One run of a guest: what it is to do, how far it came, and what ended it.

Two threads have it in hand, the event loop's and its own. What ends it is settled once, under its lock: the
first reason stays, whatever comes after it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from toolgate.model.invocations import EndedBy, Ending, InvocationState, RunUsage
from toolgate.model.workloads import WorkloadLimits
from toolgate.wasm.faults import Stopped
from toolgate.wasm.output import BoundedOutput

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class Job(Generic[C]):
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


class Cause(NamedTuple):
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


class Run(Generic[C]):
    """Made on the event loop from a job, and run once."""

    def __init__(self, job: Job[C], *, wall_s: Callable[[], float] = time.time) -> None:
        self.job = job
        self.output = BoundedOutput(job.limits.max_output_bytes, wall_s=wall_s)
        self.ending: Ending | None = None
        """There, once it has ended."""
        self.works: set[asyncio.Task[Any]] = set()
        """What it has the event loop do; touched there only."""
        self.surroundings = copy_context()
        """Those of whoever made it: what it has the event loop do is done in them."""
        self._lock = threading.Lock()
        self._cause: Cause | None = None
        self._interrupts: list[Callable[[], object]] = []

    @property
    def is_ending(self) -> bool:
        return self._cause is not None

    def kill(self, ended_by: EndedBy, message: str) -> None:
        """End it now. From any thread, at any time, as often as one likes."""
        with self._lock:
            self._settle(Cause(ended_by, message))
            for interrupt in self._interrupts:
                interrupt()

    def settle(self, cause: Cause) -> None:
        """It has ended, or is to be let go no further; on its own thread."""
        with self._lock:
            self._settle(cause)

    @contextmanager
    def interruptible(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """What `kill` calls meanwhile, and never afterwards. Raises Stopped where the run is ending."""
        with self._lock:
            if self._cause is not None:
                raise Stopped
            self._interrupts.append(interrupt)
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)

    def end(self, usage: RunUsage) -> Ending:
        """Everything about how it ended, when it has."""
        cause = self._cause or Cause("internal", "it ended, and nobody said why")
        self.output.finish()
        self.ending = Ending(
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

    def _settle(self, cause: Cause) -> None:
        if self._cause is None:
            self._cause = cause
