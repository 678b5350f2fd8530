"""What one run of a guest has of the gateway: whose it is, and the way to tools and models.

Texts that guests hand over as names, keys and JSON: UTF-8 without NUL, or nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from toolgate.errors import BudgetExceeded, PolicyDenied, ToolCallLimit
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.model.invocations import MAX_CALLS_KEPT, InvocationCall
from toolgate.upstream.models.client import Models
from toolgate.wasm.abi import Errno, Guest, HostcallFault

DOOR: Final = "hostcall"
"""What the audit calls this door."""
MAX_DENIALS_RECORDED: Final = 100
"""Of one run: a guest can ask for what it may not have a hundred thousand times in a second."""


class CallLog:
    """The calls of tools that a run makes, by itself or by models, and how many it may. On the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.total = 0
        self.model_asks = 0
        self.denials = 0
        self.kept: list[InvocationCall] = []

    @property
    def left(self) -> int:
        return self._most - self.total

    def count_call(self) -> None:
        """One more. Raises ToolCallLimit."""
        if self.total >= self._most:
            raise ToolCallLimit(f"this run has made {self._most} calls, as many as it may")
        self.total += 1

    def keep(self, call: InvocationCall) -> None:
        """What became of one."""
        if len(self.kept) < MAX_CALLS_KEPT:
            self.kept.append(call)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """One run. `caller` is its principal under its task, and asks for nothing yet."""

    gateway: Gateway
    models: Models
    caller: Caller
    invocation_id: str
    calls: CallLog
    wall_s: Callable[[], float]
    deadline_s: float
    """Of the whole run, by the loop's clock."""
    trace_id: str = ""

    @property
    def trace(self) -> Trace:
        """By which its calls are found in the audit."""
        return Trace(DOOR, self.invocation_id, self.invocation_id, trace_id=self.trace_id)

    @contextmanager
    def record_denials(self) -> Iterator[None]:
        """Whoever asks for more than it may have is on record. On the event loop, like all of a gateway."""
        try:
            yield
        except (PolicyDenied, BudgetExceeded) as exc:
            self.calls.denials += 1
            if self.calls.denials <= MAX_DENIALS_RECORDED:
                task_id = self.caller.effective_task_id
                self.gateway.record_refused(self.caller.principal, exc, trace=self.trace, task_id=task_id)
            raise


TaskGuest = Guest[TaskContext]


def read_text(guest: TaskGuest, pointer: int, length: int, *, most: int) -> str:
    """The text at `pointer`. Fault EFAULT outside of the memory, and EINVAL as `decode_text`."""
    return decode_text(guest.read(pointer, length, most=most))


def decode_text(data: bytes) -> str:
    """Fault EINVAL for bytes that are no UTF-8, or hold a NUL."""
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise HostcallFault(Errno.EINVAL) from exc
    if "\0" in text:
        raise HostcallFault(Errno.EINVAL)
    return text


def has_nul(json: bytes) -> bool:
    """Whether a NUL stands in a text anywhere in `json`, where it can only be written as an escape."""
    return b"\\u0000" in json.replace(b"\\\\", b"")  # without backslashes that stand for themselves
