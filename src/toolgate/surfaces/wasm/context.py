"""The gateway's services for one run of a guest: its caller, tools and models."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from toolgate.errors import BudgetExceeded, PolicyDenied, ToolCallLimit
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.model.invocations import MAX_CALLS_KEPT, InvocationCall
from toolgate.upstream.models.client import Models
from toolgate.wasm.abi import Errno, HostcallFault

if TYPE_CHECKING:
    from toolgate.wasm.guest import Guest  # loads wasmtime, and few nodes run guests

SURFACE: Final = "hostcall"  # the name of hostcalls in the audit log
MAX_DENIALS_RECORDED: Final = 100  # of one run, which can make a hundred thousand denied calls a second


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """Limits of the host's memory for one guest, in addition to the guest's memory."""

    max_session_bytes: int = 4 * 1024 * 1024
    """Size of one chat session's messages, and of its tools: each as the largest body of a chat request."""
    max_guest_tools: int = 128
    """Tools of one chat session: as many as most models' servers accept."""
    max_chat_bytes: int = 32 * 1024 * 1024
    """Size of all open chat sessions and responses. One send adds at most what its budgets allow."""
    max_result_bytes: int = 64 * 1024 * 1024
    """Size of tool results that did not fit into the guest's buffer and are unread. Beyond it, no tool runs.
    It equals the largest `max_tool_output_bytes` of a server."""


@dataclass
class CallLog:
    """The tool calls of a run, by the guest or by models, and their limit. Used on the event loop."""

    max_calls: int
    total: int = 0
    model_asks: int = 0
    denials: int = 0
    kept: list[InvocationCall] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.max_calls - self.total

    def count_call(self) -> None:
        if self.total >= self.max_calls:
            raise ToolCallLimit(f"this run has reached its limit of {self.max_calls} tool calls")
        self.total += 1

    def count_denial(self) -> bool:
        """Count a denial. Returns whether to audit it."""
        self.denials += 1
        return self.denials <= MAX_DENIALS_RECORDED

    def keep(self, call: InvocationCall) -> None:
        if len(self.kept) < MAX_CALLS_KEPT:
            self.kept.append(call)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """The context of one run. `caller`: its principal with its task, without session parameters."""

    gateway: Gateway
    models: Models
    caller: Caller
    invocation_id: str
    calls: CallLog
    wall_s: Callable[[], float]
    deadline_s: float
    """The deadline of the whole run, by the event loop's clock."""
    trace_id: str = ""
    limits: HostLimits = HostLimits()

    @property
    def trace(self) -> Trace:
        """The origin of its calls, for the audit log."""
        return Trace(SURFACE, self.invocation_id, self.invocation_id, trace_id=self.trace_id)

    @contextmanager
    def record_denials(self) -> Iterator[None]:
        """Audit denials by policy or a budget in the block. Used on the event loop."""
        try:
            yield
        except (PolicyDenied, BudgetExceeded) as exc:
            if self.calls.count_denial():
                task_id = self.caller.effective_task_id
                self.gateway.record_refused(self.caller.principal, exc, trace=self.trace, task_id=task_id)
            raise


TaskGuest: TypeAlias = "Guest[TaskContext]"


def decode_text(data: bytes) -> str:
    """Decode a name, key or JSON. EINVAL for bytes that are not UTF-8, or contain a NUL."""
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise HostcallFault(Errno.EINVAL) from exc
    if "\0" in text:
        raise HostcallFault(Errno.EINVAL)
    return text
