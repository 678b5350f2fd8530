"""Running tasks: begin a run, wait for it or not, look at it, follow it, end it.

Whoever waits for a run and goes away ends it, for nobody would read what comes out of it; unless it gave a
key by which it can ask again.
"""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, Final, NamedTuple

from toolgate.errors import (
    BodyTooLarge,
    Conflict,
    NotFound,
    NoWorkload,
    QueueFull,
    SessionLimit,
    ToolgateError,
)
from toolgate.govern.control import Control
from toolgate.govern.invocations import (
    await_end,
    cancel_invocation,
    find_invocation,
    invoke,
    list_invocations,
)
from toolgate.model.invocations import ENDED, Invocation, InvocationState, LogLine
from toolgate.registry.invocations.contract import Mark
from toolgate.surfaces.rest.framework.paging import PAGING, parse_page
from toolgate.surfaces.rest.framework.response import EVENTS, Answer
from toolgate.surfaces.rest.framework.routing import NOTHING, Call, Endpoint, Parameter, checked
from toolgate.surfaces.rest.framework.streams import LAST_ID, encode_event, parse_last_id, stream_answer
from toolgate.surfaces.rest.invocation_shapes import (
    InvocationsAnswer,
    InvocationSent,
    InvocationShown,
    LinesAnswer,
    show_invocation,
    show_line,
    summarize,
)
from toolgate.surfaces.rest.shapes import NoBody

PAGE_OF_LINES: Final = 1_000
CANCEL_S: Final = 5.0
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "The same key with the same input begins nothing new: the answer is the invocation that it began.",
)
_ALL: Final = "/api/v1/tasks/{task_id}/invocations"
_ONE: Final = f"{_ALL}/{{invocation_id}}"


async def begin_invocation(control: Control, call: Call[InvocationSent]) -> Answer:
    """Run the task's workload as the caller, under the task's policy.

    200: it has ended, well or not. 202: it is queued or runs, and `Location` says where it is found. Whoever
    goes away while it waits for a `sync` answer ends the run, unless it sent an `Idempotency-Key`.
    """
    key, sent = call.headers.get(IDEMPOTENCY_KEY.name), call.body
    task_id = call.ids["task_id"]
    made = await invoke(control, call.caller, task_id, given=sent.input_bytes, idempotency_key=key)
    found = made.invocation
    if sent.mode == "sync":
        found = await _awaited(control, found, sent.wait_s, is_kept=key is not None)
    shown, has_ended = show_invocation(found), found.state in ENDED
    location = f"/api/v1/tasks/{task_id}/invocations/{found.invocation_id}"
    return Answer(shown, 200 if has_ended else 202, headers={"location": location})


async def _awaited(control: Control, made: Invocation, wait_s: int, *, is_kept: bool) -> Invocation:
    try:
        return await await_end(control, made.invocation_id, within_s=wait_s) or made
    except asyncio.CancelledError:
        if not is_kept:
            with suppress(ToolgateError, TimeoutError):
                async with asyncio.timeout(CANCEL_S):
                    await control.store.invocations.cancel(made.invocation_id)
        raise


async def show_invocations(control: Control, call: Call[None]) -> Answer:
    """The caller's invocations of the task, the newest first; to the role `viewer`, everybody's."""
    page = parse_page(call.query)
    found = await list_invocations(
        control, call.caller, call.ids["task_id"], before=page.after or None, limit=page.limit + 1
    )
    shown, more = page.first(found, lambda one: one.invocation_id)
    return Answer(InvocationsAnswer(invocations=[summarize(one) for one in shown], next_cursor=more))


async def read_invocation(control: Control, call: Call[None]) -> Answer:
    """How it stands, and once it has ended, what came out of it."""
    return Answer(show_invocation(await _find(control, call)))


async def read_lines(control: Control, call: Call[None]) -> Answer:
    """What the guest has written and logged so far, or after the line `after`, up to a thousand lines."""
    found = await _find(control, call)
    lines = await control.store.invocations.lines(
        found.invocation_id, after=call.number("after") or 0, limit=PAGE_OF_LINES
    )
    return Answer(LinesAnswer(state=found.state, lines=[show_line(one) for one in lines]))


async def cancel(control: Control, call: Call[NoBody]) -> Answer:
    """End one that waits; have one ended that runs. Those of others need the role `admin`."""
    found = await cancel_invocation(control, call.caller, call.ids["task_id"], call.ids["invocation_id"])
    return Answer(show_invocation(found))


async def follow_invocation(control: Control, call: Call[None]) -> Answer:
    """What the guest writes and logs, as it comes, until the run has ended.

    `state` says how it stands, from the first event on; `line`, whose id is its `seq`, is one line; `end` is
    the last event, with the whole invocation. `error` is the last event of a stream that cannot go on.
    """
    last = parse_last_id(call)
    after = call.number("after") or 0 if last is None else last
    found = await _find(control, call)
    news = nullcontext(_News(control, found, after=after))
    return await stream_answer(control, call, news, first=_tell_state(found), tell=_tell)


async def _find(control: Control, call: Call[None]) -> Invocation:
    return await find_invocation(control, call.caller, call.ids["task_id"], call.ids["invocation_id"])


class _New(NamedTuple):
    """What has happened since the last look."""

    invocation: Invocation
    is_changed: bool
    lines: Sequence[LogLine]
    is_last: bool


class _News:
    """Looks at an invocation whenever it has moved. A wait that is cut off loses nothing."""

    def __init__(self, control: Control, found: Invocation, *, after: int) -> None:
        self._control = control
        self._id = found.invocation_id
        self._stands: tuple[InvocationState, int] = (found.state, found.attempt)
        self._after = after
        self._mark: Mark | None = None
        self._is_over = False

    def __aiter__(self) -> "_News":
        return self

    async def __anext__(self) -> _New:
        invocations = self._control.store.invocations
        while not self._is_over:
            mark = await self._control.marks.moved(invocations, self._id, self._mark)
            # Its state before its lines: of one that has ended, these are all.
            found = await invocations.get(self._id)
            if mark is None or found is None:
                break
            lines = await invocations.lines(self._id, after=self._after, limit=PAGE_OF_LINES)
            is_whole = len(lines) < PAGE_OF_LINES
            new = _New(
                found,
                is_changed=(found.state, found.attempt) != self._stands,
                lines=lines,
                is_last=is_whole and found.state in ENDED,
            )
            self._mark = mark if is_whole else None  # there is more: looked at again at once
            self._stands, self._is_over = (found.state, found.attempt), new.is_last
            self._after = lines[-1].seq if lines else self._after
            return new
        raise StopAsyncIteration


def _tell(new: _New) -> bytes:
    told = []
    found = new.invocation
    if new.is_changed and found.state not in ENDED:
        told.append(_tell_state(found))
    told += [encode_event("line", show_line(line), line.seq) for line in new.lines]
    if new.is_last:
        told.append(encode_event("end", show_invocation(found)))
    return b"".join(told)


def _tell_state(found: Invocation) -> bytes:
    return encode_event("state", {"state": found.state, "attempt": found.attempt})


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="POST",
        path=_ALL,
        role="agent",
        summary="Run a task",
        handler=begin_invocation,
        body=checked(InvocationSent),
        headers=(IDEMPOTENCY_KEY,),
        answer=InvocationShown,
        statuses=(200, 202),
        errors=(NotFound, NoWorkload, Conflict, QueueFull, BodyTooLarge),
    ),
    Endpoint(
        method="GET",
        path=_ALL,
        role="agent",
        summary="List the runs of a task",
        handler=show_invocations,
        query=PAGING,
        answer=InvocationsAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        role="agent",
        summary="Read a run of a task",
        handler=read_invocation,
        answer=InvocationShown,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path=f"{_ONE}/logs",
        role="agent",
        summary="Read the log of a run",
        handler=read_lines,
        query=(Parameter("after", "Only lines after the one with this `seq`.", form="number"),),
        answer=LinesAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path=f"{_ONE}/events",
        role="agent",
        summary="Follow a run",
        handler=follow_invocation,
        query=(Parameter("after", "Only lines after the one with this `seq`.", form="number"),),
        headers=(LAST_ID,),
        answer=EVENTS,
        errors=(NotFound, SessionLimit),
    ),
    Endpoint(
        method="POST",
        path=f"{_ONE}/cancel",
        role="agent",
        summary="Cancel a run",
        handler=cancel,
        body=NOTHING,
        answer=InvocationShown,
        errors=(NotFound,),
    ),
)
