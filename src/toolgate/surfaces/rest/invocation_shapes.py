"""Invocations as this surface takes and shows them."""

import base64
import binascii
from typing import Annotated, Final, Literal

import msgspec
from pydantic import Field

from toolgate.errors import BodyTooLarge, InvalidRequest
from toolgate.model.invocations import (
    MAX_INPUT_BYTES,
    EndedBy,
    Ending,
    Invocation,
    InvocationState,
    LogLevel,
    LogLine,
    LogStream,
)
from toolgate.registry.records.server_bodies import Body
from toolgate.surfaces.rest.shapes import Revision, Shown

MAX_WAIT_S: Final = 300


class InvocationSent(Body):
    """What a run is begun with."""

    input: str | None = None
    """Its standard input, as text. Of this and `input_base64`, at most one."""
    input_base64: str | None = None
    """Its standard input, as bytes."""
    mode: Literal["sync", "async"] = "sync"
    """`sync`: answer when it has ended. `async`: answer at once."""
    wait_s: Annotated[int, Field(ge=0, le=MAX_WAIT_S)] = MAX_WAIT_S
    """How long a `sync` answer may take. What has not ended by then goes on."""

    @property
    def input_bytes(self) -> bytes:
        """Raises InvalidRequest, BodyTooLarge."""
        if self.input is not None and self.input_base64 is not None:
            raise InvalidRequest("of `input` and `input_base64`, one is enough")
        found = (self.input or "").encode() if self.input_base64 is None else _decode(self.input_base64)
        if len(found) > MAX_INPUT_BYTES:
            raise BodyTooLarge(f"the input is larger than {MAX_INPUT_BYTES} bytes")
        return found


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("`input_base64` is not base64") from None


class UsageShown(Shown, frozen=True, kw_only=True):
    """What a run took."""

    fuel: int
    """Instructions, about."""
    wall_ms: int
    memory_bytes: int
    hostcalls: int
    tool_calls: int
    model_asks: int


class CallShown(Shown, frozen=True, kw_only=True):
    """A call of a tool that a run, or a model it asked, has made."""

    server_id: str
    tool: str
    code: str
    """Of its failure; empty where it went well."""
    ms: int


class EndingShown(Shown, frozen=True, kw_only=True):
    """How a run ended."""

    ended_by: EndedBy
    exit_code: int | None
    """Where the guest itself ended."""
    message: str
    """Of any other end: what happened, and what to do."""
    stdout: str | None
    stdout_base64: str | None
    """Where it is not UTF-8, and `stdout` is null."""
    stderr: str | None
    stderr_base64: str | None
    is_truncated: bool
    """Some of its output was dropped, because it was more than `limits.max_output_bytes`."""
    usage: UsageShown
    calls: list[CallShown] = msgspec.field(default_factory=list)
    """The first of them; `usage.tool_calls` counts all."""


class InvocationSummary(Shown, frozen=True, kw_only=True):
    """One invocation, without what came out of it."""

    invocation_id: str
    task_id: str
    principal: str
    """Whose it is."""
    state: InvocationState
    revision: Revision
    """Of the registry when it was made."""
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    attempt: int
    """How often a node has taken it."""
    retries: int
    """How often it may be begun again, where its node is lost."""
    is_cancel_asked: bool
    ended_by: EndedBy | None
    exit_code: int | None


class InvocationShown(InvocationSummary, frozen=True, kw_only=True):
    """One invocation with all there is of it."""

    ending: EndingShown | None
    """Null until it has ended."""


class InvocationsAnswer(Shown, frozen=True, kw_only=True):
    """A page of them, the newest first."""

    invocations: list[InvocationSummary]
    next_cursor: str | None = None
    """For the page after this one, where there is one."""


class LineShown(Shown, frozen=True, kw_only=True):
    """One line that a guest wrote."""

    seq: int
    at_ms: int
    stream: LogStream
    level: LogLevel
    text: str


class LinesAnswer(Shown, frozen=True, kw_only=True):
    """Lines of a log, the oldest first."""

    state: InvocationState
    """Of the invocation, from before its lines were read: once it has ended and none comes, that was all."""
    lines: list[LineShown]


def summarize(invocation: Invocation) -> InvocationSummary:
    """As in a list."""
    ending = invocation.ending
    return InvocationSummary(
        invocation_id=invocation.invocation_id,
        task_id=invocation.task_id,
        principal=invocation.principal.id,
        state=invocation.state,
        revision=invocation.revision,
        created_ms=invocation.created_ms,
        started_ms=invocation.started_ms,
        ended_ms=invocation.ended_ms,
        attempt=invocation.attempt,
        retries=invocation.retries,
        is_cancel_asked=invocation.is_cancel_asked,
        ended_by=None if ending is None else ending.ended_by,
        exit_code=None if ending is None else ending.exit_code,
    )


def show_invocation(invocation: Invocation) -> InvocationShown:
    """All of it."""
    summary = summarize(invocation)
    members = {name: getattr(summary, name) for name in InvocationSummary.__struct_fields__}
    ending = invocation.ending
    return InvocationShown(**members, ending=None if ending is None else _show_ending(ending))


def _show_ending(ending: Ending) -> EndingShown:
    stdout, stdout_base64 = _text_or_base64(ending.stdout)
    stderr, stderr_base64 = _text_or_base64(ending.stderr)
    usage = ending.usage
    return EndingShown(
        ended_by=ending.ended_by,
        exit_code=ending.exit_code,
        message=ending.message,
        stdout=stdout,
        stdout_base64=stdout_base64,
        stderr=stderr,
        stderr_base64=stderr_base64,
        is_truncated=ending.is_truncated,
        usage=UsageShown(
            fuel=usage.fuel,
            wall_ms=usage.wall_ms,
            memory_bytes=usage.memory_bytes,
            hostcalls=usage.hostcalls,
            tool_calls=usage.tool_calls,
            model_asks=usage.model_asks,
        ),
        calls=[
            CallShown(server_id=one.server_id, tool=one.tool, code=one.code, ms=one.ms)
            for one in ending.calls
        ],
    )


def _text_or_base64(data: bytes) -> tuple[str | None, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


def show_line(line: LogLine) -> LineShown:
    """One line."""
    return LineShown(seq=line.seq, at_ms=line.at_ms, stream=line.stream, level=line.level, text=line.text)
