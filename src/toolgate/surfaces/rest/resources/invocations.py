"""Invocations of tasks: start one, wait for it, read it, stream it, cancel it.

If a synchronous caller disconnects, its invocation is cancelled, because no one would read the result, unless
it sent an idempotency key to request it again.
"""

import asyncio
import base64
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from toolgate import errors
from toolgate.govern.control import Control
from toolgate.govern.invocations import (
    cancel_invocation,
    enqueue_invocation,
    find_invocation,
    list_invocations,
    wait_for_end,
)
from toolgate.model.invocations import (
    ENDED,
    MAX_INPUT_BYTES,
    EndedBy,
    Invocation,
    InvocationCall,
    InvocationResult,
    InvocationState,
    LogLine,
    RunUsage,
)
from toolgate.registry.invocations import InvocationProgress
from toolgate.registry.records.body import StrictBody
from toolgate.surfaces.rest.framework import streams
from toolgate.surfaces.rest.framework.request import PAGING, NoBody, Parameter, RestCall
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import get, post

MAX_WAIT_S: Final = 300  # proxies rarely wait for longer


class InvocationSent(StrictBody):
    """The input and mode of an invocation."""

    input: str | None = None
    """The standard input, as text. Excludes `input_base64`."""
    input_base64: str | None = None
    """The standard input, as base64 of bytes. Excludes `input`."""
    mode: Literal["sync", "async"] = "sync"
    """`sync`: respond when the invocation has ended. `async`: respond at once."""
    wait_s: Annotated[int, Field(ge=0, le=MAX_WAIT_S)] = MAX_WAIT_S
    """The longest wait of a `sync` request. An unfinished invocation continues after it."""

    @property
    def input_bytes(self) -> bytes:
        """Raises InvalidRequest, BodyTooLarge."""
        if self.input is not None and self.input_base64 is not None:
            raise errors.InvalidRequest("`input` and `input_base64` are mutually exclusive", hint="send one")
        try:
            sent = self.input_base64
            found = (self.input or "").encode() if sent is None else base64.b64decode(sent, validate=True)
        except ValueError:
            raise errors.InvalidRequest("`input_base64` is not base64") from None
        if len(found) > MAX_INPUT_BYTES:
            raise errors.BodyTooLarge(f"the input is larger than {MAX_INPUT_BYTES} bytes")
        return found


class EndingShown(ResponseShape, frozen=True, kw_only=True):
    """How an invocation ended."""

    ended_by: EndedBy
    exit_code: int | None
    """The exit code, if the guest itself ended."""
    message: str
    """For any other end: what happened, and what to do."""
    stdout: str | None
    stdout_base64: str | None
    """The output, if it is not UTF-8. Then `stdout` is null."""
    stderr: str | None
    stderr_base64: str | None
    is_truncated: bool
    """Whether some output was dropped, because it exceeded `limits.max_output_bytes`."""
    usage: RunUsage
    calls: list[InvocationCall]
    """The first calls; `usage.tool_calls` counts all of them."""


class InvocationSummary(ResponseShape, frozen=True, kw_only=True):
    """An invocation without its result."""

    invocation_id: str
    task_id: str
    principal: str
    """The principal that started it."""
    state: InvocationState
    revision: Revision
    """The registry revision at its creation."""
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    attempt: int
    """How often a node has claimed it."""
    retries: int
    """How often it may start again if its node is lost."""
    is_cancel_asked: bool
    ended_by: EndedBy | None
    exit_code: int | None


class InvocationShown(InvocationSummary, frozen=True, kw_only=True):
    """An invocation with its result."""

    ending: EndingShown | None
    """Null until it has ended."""


class InvocationsResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of invocations, the newest first."""

    invocations: list[InvocationSummary]
    next_cursor: NextCursor


class LinesResponse(ResponseShape, frozen=True, kw_only=True):
    """Log lines, the oldest first."""

    state: InvocationState
    """The state before the lines were read. If it is an end state and no lines follow, the log is
    complete."""
    lines: list[LogLine]


def summarize(invocation: Invocation) -> InvocationSummary:
    """An invocation as lists show it."""
    ending = invocation.ending
    return InvocationSummary.of(
        invocation,
        principal=invocation.principal.id,
        ended_by=None if ending is None else ending.ended_by,
        exit_code=None if ending is None else ending.exit_code,
    )


def show_invocation(invocation: Invocation) -> InvocationShown:
    """An invocation with its result."""
    ending = invocation.ending
    return InvocationShown.of(summarize(invocation), ending=None if ending is None else _show_ending(ending))


def _show_ending(ending: InvocationResult) -> EndingShown:
    stdout, stdout_base64 = _text_or_base64(ending.stdout)
    stderr, stderr_base64 = _text_or_base64(ending.stderr)
    return EndingShown.of(
        ending, stdout=stdout, stdout_base64=stdout_base64, stderr=stderr, stderr_base64=stderr_base64
    )


def _text_or_base64(data: bytes) -> tuple[str | None, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


PAGE_OF_LINES: Final = 1_000  # 16 MiB if every line has the maximum length
CANCEL_S: Final = 5.0  # its client is gone: a database that is down must not block the task
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "The same key with the same input starts nothing new: the response is the earlier invocation.",
)
_ALL: Final = "/api/v1/tasks/{task_id}/invocations"
_ONE: Final = f"{_ALL}/{{invocation_id}}"


@post(
    _ALL,
    "agent",
    "Invoke a task",
    InvocationShown,
    headers=(IDEMPOTENCY_KEY,),
    statuses=(200, 202),
    errors=(errors.NoWorkload, errors.Conflict, errors.QueueFull, errors.BodyTooLarge),
)
async def start_invocation(control: Control, call: RestCall[InvocationSent]) -> RestResponse:
    """Run the task's workload as the caller, under the task's policy.

    200: the invocation has ended, successfully or not. 202: it is queued or running, and `Location` is its
    URL. If a `sync` caller disconnects, the invocation is cancelled, unless the request has an
    `Idempotency-Key`.
    """
    key, sent = call.headers.get(IDEMPOTENCY_KEY.name), call.body
    task_id = call.ids["task_id"]
    made = await enqueue_invocation(
        control, call.caller, task_id, input_bytes=sent.input_bytes, idempotency_key=key
    )
    found = made.invocation
    if sent.mode == "sync":
        found = await _await_or_cancel(control, found, sent.wait_s, is_kept=key is not None)
    shown, has_ended = show_invocation(found), found.state in ENDED
    location = f"/api/v1/tasks/{task_id}/invocations/{found.invocation_id}"
    return RestResponse(shown, 200 if has_ended else 202, headers={"location": location})


async def _await_or_cancel(control: Control, made: Invocation, wait_s: int, *, is_kept: bool) -> Invocation:
    try:
        return await wait_for_end(control, made.invocation_id, within_s=wait_s) or made
    except asyncio.CancelledError:
        if not is_kept:
            with suppress(errors.ToolgateError, TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await control.store.invocations.cancel(made.invocation_id)
        raise


@get(_ALL, "agent", "List the invocations of a task", query=PAGING)
async def show_invocations(control: Control, call: RestCall[None]) -> InvocationsResponse:
    """The caller's invocations of the task, the newest first. With the role `viewer` or higher, of all
    callers."""
    page = call.page()
    found = await list_invocations(
        control, call.caller, call.ids["task_id"], before=page.after or None, limit=page.limit + 1
    )
    shown, more = page.first(found, lambda one: one.invocation_id)
    return InvocationsResponse(invocations=[summarize(one) for one in shown], next_cursor=more)


@get(_ONE, "agent", "Read an invocation")
async def read_invocation(control: Control, call: RestCall[None]) -> InvocationShown:
    """The state of the invocation and, after its end, its result."""
    return show_invocation(await _find(control, call))


_AFTER: Final = (Parameter("after", "Only lines after the one with this `seq`.", "number"),)


@get(f"{_ONE}/logs", "agent", "Read the log of an invocation", query=_AFTER)
async def read_lines(control: Control, call: RestCall[None]) -> LinesResponse:
    """The output and log lines of the guest so far, or after the line `after`, up to 1,000 lines."""
    found = await _find(control, call)
    lines = await control.store.invocations.lines(
        found.invocation_id, after=call.number("after") or 0, limit=PAGE_OF_LINES
    )
    return LinesResponse.of(found, lines=lines)


@post(f"{_ONE}/cancel", "agent", "Cancel an invocation")
async def cancel_run(control: Control, call: RestCall[NoBody]) -> InvocationShown:
    """Cancel a queued or running invocation. To cancel those of others, the role `admin` is needed."""
    found = await cancel_invocation(control, call.caller, call.ids["task_id"], call.ids["invocation_id"])
    return show_invocation(found)


@get(f"{_ONE}/events", "agent", "Stream an invocation", query=_AFTER, **streams.STREAM)
async def follow_invocation(control: Control, call: RestCall[None]) -> RestResponse:
    """A stream of the guest's output and log lines, until the invocation has ended.

    `state` events have its state, also as the first event. Each `line` event has one line; its id is the
    `seq`. The last event is `end`, with the whole invocation, or `error` if the stream ends early.
    """
    last = streams.parse_last_event_id(call)
    after = call.number("after") or 0 if last is None else last
    found = await _find(control, call)
    news = nullcontext(_InvocationFeed(control, found, after))
    return await streams.stream_response(control, call, news, first=_encode_state(found), encode=bytes)


async def _find(control: Control, call: RestCall[None]) -> Invocation:
    return await find_invocation(control, call.caller, call.ids["task_id"], call.ids["invocation_id"])


@dataclass(slots=True)
class _InvocationFeed:
    """Reads an invocation whenever it has changed. A cancelled wait loses nothing."""

    control: Control
    last: Invocation
    after: int
    mark: InvocationProgress | None = None
    is_over: bool = False

    def __aiter__(self) -> "_InvocationFeed":
        return self

    async def __anext__(self) -> bytes:
        invocations, invocation_id = self.control.store.invocations, self.last.invocation_id
        while not self.is_over:
            mark = await self.control.invocation_poller.wait_for_change(invocations, invocation_id, self.mark)
            # The state before the lines: if it has ended, these lines are complete.
            found = await invocations.get(invocation_id)
            if mark is None or found is None:
                break
            lines = await invocations.lines(invocation_id, after=self.after, limit=PAGE_OF_LINES)
            events = [streams.encode_named_event("line", line, line.seq) for line in lines]
            is_same = (found.state, found.attempt) == (self.last.state, self.last.attempt)
            if not is_same and found.state not in ENDED:
                events.insert(0, _encode_state(found))
            is_whole = len(lines) < PAGE_OF_LINES
            self.is_over = is_whole and found.state in ENDED
            if self.is_over:
                events.append(streams.encode_named_event("end", show_invocation(found)))
            self.mark = mark if is_whole else None  # there are more lines: read them at once
            self.last, self.after = found, lines[-1].seq if lines else self.after
            return b"".join(events)
        raise StopAsyncIteration


def _encode_state(found: Invocation) -> bytes:
    return streams.encode_named_event("state", {"state": found.state, "attempt": found.attempt})
