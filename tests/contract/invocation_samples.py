"""Invocations for tests of the queue."""

from dataclasses import replace
from typing import Any

from toolgate.model.invocations import Invocation, InvocationCall, InvocationResult, LogLine, RunUsage
from toolgate.model.principals import Ceiling, Principal
from toolgate.registry.invocations.sql import Invocations

ADA = Principal(
    id="key:ada",
    role="agent",
    ceiling=Ceiling(tasks=("review",), servers=(), allow=None, deny=("fs/write*",)),
    default_task="review",
    expires_at_s=2_000_000_000,
)
SUCCESS = InvocationResult(
    state="succeeded",
    ended_by="exit",
    exit_code=0,
    stdout=b"caf\xc3\xa9 \x00\xff",
    stderr=b"warned",
    is_truncated=True,
    usage=RunUsage(fuel=10**12, wall_ms=1_500, memory_bytes=65_536, hostcalls=7, tool_calls=2, model_asks=1),
    calls=(
        InvocationCall(server_id="fs", tool="read", code="", ms=3),
        InvocationCall(server_id="fs", tool="write", code="mcp_policy_denied", ms=0),
    ),
)
STOPPED = InvocationResult(state="crashed", ended_by="node_stopped", message="its node was stopped")


def invocation(invocation_id: str, task_id: str = "review", **fields: Any) -> Invocation:
    known: dict[str, Any] = {"principal": ADA, "revision": 7, "input": b"{}", "created_ms": 1_000}
    return Invocation(invocation_id=invocation_id, task_id=task_id, **known | fields)


def line(seq: int, text: str = "") -> LogLine:
    return LogLine(seq=seq, at_ms=5, stream="stdout", text=text or f"line {seq}", level="warn")


def light(found: Invocation) -> Invocation:
    """As it is in a list."""
    ending = None if found.ending is None else replace(found.ending, stdout=b"", stderr=b"")
    return replace(found, input=b"", ending=ending)


async def make(queue: Invocations, *ids: str, task_id: str = "review", **fields: Any) -> None:
    for invocation_id in ids:
        await queue.create(invocation(invocation_id, task_id, **fields))


async def claim_ids(queue: Invocations, limit: int = 100, node_id: str = "n1") -> list[str]:
    return [one.invocation_id for one in await queue.claim(node_id, limit=limit)]


async def begin(queue: Invocations, *ids: str, node_id: str = "n1", **fields: Any) -> None:
    """Have them made, taken, and begun."""
    await make(queue, *ids, **fields)
    for one in await queue.claim(node_id, limit=len(ids)):
        assert await queue.report(one.invocation_id, one.attempt) == "go_on"


async def found(queue: Invocations, invocation_id: str) -> Invocation:
    one = await queue.get(invocation_id)
    assert one is not None
    return one
