"""Invocations: single runs of a task's workload, from the queue to the end."""

from dataclasses import dataclass
from typing import Final, Literal

from toolgate.model.principals import Principal

InvocationState = Literal["queued", "running", "succeeded", "failed", "cancelled", "crashed"]
"""`failed`: by the guest, or a limit. `crashed`: its node was lost, and its progress is unknown."""
ENDED: Final[frozenset[InvocationState]] = frozenset({"succeeded", "failed", "cancelled", "crashed"})
EndedBy = Literal[
    "exit",
    "trap",
    "out_of_fuel",
    "stack_overflow",
    "deadline",
    "cancelled",
    "revoked",
    "module",
    "node_stopped",
    "node_lost",
    "internal",
]
"""Why a run ended. `module`: the module could not be fetched, compiled or started. `revoked`: the caller's
key was revoked."""
LogStream = Literal["log", "stdout", "stderr"]
LogLevel = Literal["trace", "debug", "info", "warn", "error"]
MAX_CALLS_KEPT: Final = 256  # of one run, for its result: the audit log has all of them
MAX_INPUT_BYTES: Final = 1_048_576  # a node claims eight at once in one message of 16 MiB
MAX_LOG_LINES: Final = 2_048  # of one invocation; older lines are dropped
MAX_LOG_BYTES: Final = 1_048_576  # of one stored invocation: a thousand of each task are kept
MAX_LINE_BYTES: Final = 16_384  # a line is for people: four pages of text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a guest's output. Stored, `seq` rises by one across all attempts; a node counts its own."""

    seq: int
    at_ms: int
    stream: LogStream
    text: str
    level: LogLevel = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationCall:
    """A tool call, by a guest or a model that it prompted."""

    server_id: str
    tool: str
    code: str
    """The error code, if the call failed."""
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsage:
    """The resources that a run used."""

    fuel: int = 0
    """Instructions, approximately."""
    wall_ms: int = 0
    memory_bytes: int = 0
    hostcalls: int = 0
    tool_calls: int = 0
    model_asks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationResult:
    state: InvocationState
    ended_by: EndedBy
    exit_code: int | None = None
    """The exit code, if the guest itself ended."""
    message: str = ""
    """For any other end: what happened, and what to do."""
    stdout: bytes = b""
    stderr: bytes = b""
    is_truncated: bool = False
    """Whether some of its output was dropped."""
    usage: RunUsage = RunUsage()
    calls: tuple[InvocationCall, ...] = ()
    """The first `MAX_CALLS_KEPT` calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One run, as stored in the queue."""

    invocation_id: str
    task_id: str
    principal: Principal
    """The caller. The run has the scope of this principal under the task."""
    revision: int
    """The registry revision at its creation: a node that runs it has reached this revision."""
    input: bytes
    created_ms: int
    retries: int = 0
    idempotency_key: str | None = None
    state: InvocationState = "queued"
    attempt: int = 0
    """Rises with each claim. Reports of earlier attempts are ignored."""
    node_id: str = ""
    started_ms: int | None = None
    lease_until_ms: int | None = None
    """When its node counts as lost unless it reports before."""
    is_cancel_asked: bool = False
    ended_ms: int | None = None
    ending: InvocationResult | None = None
