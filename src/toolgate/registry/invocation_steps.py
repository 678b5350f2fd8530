"""What becomes of an invocation, decided without a store: an entry of the queue in, the entry after it out.

Every store keeps exactly what these say, so they cannot differ in meaning.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

import msgspec

from toolgate.errors import Conflict, NotFound, QueueFull
from toolgate.model.invocations import (
    ENDED,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    EndedBy,
    Ending,
    Invocation,
    LogLine,
)
from toolgate.registry.database.change_count import ChangeCount
from toolgate.registry.invocations.contract import KEEP_ENDED_MS, LEASE_MS, MAX_QUEUED, Verdict

T = TypeVar("T")

LOOK_AGAIN_S: Final = 3.0
"""How late a lease that is over is seen by who waits, and what came without a word."""

_CHOSEN: Final[frozenset[EndedBy]] = frozenset({"cancelled", "revoked", "node_stopped", "node_lost"})
"""Ends that are the node's choice: others are the guest's own, or a limit's, and would have come anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An invocation with what the queue alone knows of it."""

    invocation: Invocation
    losses: int = 0
    """Attempts that had begun when their node was lost."""
    heard: int = -1
    """The newest line of this attempt, by the attempt's own number."""
    lines: int = 0
    """The newest line of all, by its number in the log."""


class Heard(NamedTuple):
    """What a report comes to. `entry` None: nothing changes."""

    verdict: Verdict
    entry: Entry | None
    lines: Sequence[LogLine]


LOST: Final = Heard("lost", None, ())


encode_line: Final = msgspec.msgpack.Encoder().encode
"""A line as it is stored."""


def newest(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Those of a log that are kept: the last, as many and as much as may be."""
    last = lines[-MAX_LOG_LINES:]
    sizes = accumulate(len(encode_line(line)) for line in reversed(last))
    return last[len(last) - sum(size <= MAX_LOG_BYTES for size in sizes) :]


def in_turn(queued: Iterable[tuple[str, T]], running: Mapping[str, int]) -> list[T]:
    """Whose turn comes when: each of `queued`, by its task, after what that has running and queued before."""
    turns = Counter(running)
    ranked = []
    for task_id, one in queued:
        turns[task_id] += 1
        ranked.append((turns[task_id], one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def taken(entry: Entry, *, node_id: str, now_ms: int) -> Entry:
    """A queued one, with a node."""
    invocation = replace(
        entry.invocation,
        state="running",
        attempt=entry.invocation.attempt + 1,
        node_id=node_id,
        lease_until_ms=now_ms + LEASE_MS,
    )
    return replace(entry, invocation=invocation, heard=-1)


def is_lapsed(invocation: Invocation, now_ms: int) -> bool:
    """Whether its node is taken for lost."""
    return invocation.state == "running" and (invocation.lease_until_ms or 0) < now_ms


def lapsed(entry: Entry, now_ms: int) -> Entry:
    """One whose node was lost."""
    node_id = entry.invocation.node_id
    message = f"its node `{node_id}` was not heard of any more: how far it came is not known"
    return _crashed(entry, Ending(state="crashed", ended_by="node_lost", message=message), now_ms)


def heard(
    entry: Entry, attempt: int, *, lines: Sequence[LogLine], ending: Ending | None, now_ms: int
) -> Heard:
    """One that runs, after a report of `attempt`."""
    known = entry.invocation
    if known.state != "running" or known.attempt != attempt:
        return LOST
    fresh = [line for line in lines if line.seq > entry.heard]
    numbered = [replace(line, seq=entry.lines + n) for n, line in enumerate(fresh, start=1)]
    renewed = replace(
        known,
        started_ms=now_ms if known.started_ms is None else known.started_ms,
        lease_until_ms=now_ms + LEASE_MS,
    )
    entry = replace(
        entry,
        invocation=renewed,
        heard=max((line.seq for line in fresh), default=entry.heard),
        lines=entry.lines + len(numbered),
    )
    if ending is None:
        return Heard("cancel" if known.is_cancel_asked else "go_on", entry, numbered)
    after = _crashed if ending.state == "crashed" else _ended
    if known.is_cancel_asked and ending.ended_by in _CHOSEN:
        ending, after = replace(ending, state="cancelled", ended_by="cancelled"), _ended
    return Heard("go_on", after(entry, ending, now_ms), numbered)


def cancelled(entry: Entry, now_ms: int) -> Entry:
    """One that is not wanted any more: ended where it waits, marked where it runs, else as it was."""
    state = entry.invocation.state
    if state in ENDED:
        return entry
    asked = replace(entry, invocation=replace(entry.invocation, is_cancel_asked=True))
    return (
        _ended(asked, _cancellation("it was cancelled before it began"), now_ms)
        if state == "queued"
        else asked
    )


def _crashed(entry: Entry, ending: Ending, now_ms: int) -> Entry:
    known = entry.invocation
    if known.is_cancel_asked:
        return _ended(entry, _cancellation("its node was lost while it was being cancelled"), now_ms)
    if known.started_ms is None:
        return _queued_again(entry)
    if entry.losses < known.retries:
        return _queued_again(replace(entry, losses=entry.losses + 1))
    return _ended(entry, ending, now_ms)


def _queued_again(entry: Entry) -> Entry:
    # Its attempt stays: what that reports is not heard any more.
    queued = replace(entry.invocation, state="queued", node_id="", started_ms=None, lease_until_ms=None)
    return replace(entry, invocation=queued)


def _cancellation(message: str) -> Ending:
    return Ending(state="cancelled", ended_by="cancelled", message=message)


def _ended(entry: Entry, ending: Ending, now_ms: int) -> Entry:
    ended = replace(entry.invocation, state=ending.state, lease_until_ms=None, ended_ms=now_ms, ending=ending)
    return replace(entry, invocation=ended)


def check_repeated(earlier: Invocation, *, is_same_input: bool) -> None:
    """Raises Conflict where a key is given again for something else."""
    if not is_same_input:
        raise Conflict(
            f"the key `{earlier.idempotency_key}` was given with another input before",
            hint="give each call a key of its own, and repeat a call with the same input",
        )


def check_room(queued: int) -> None:
    """Raises QueueFull."""
    if queued >= MAX_QUEUED:
        raise QueueFull(f"{queued} invocations wait already")


def taken_id(invocation_id: str) -> Conflict:
    """There is such an invocation already."""
    return Conflict(f"there is an invocation `{invocation_id}` already")


def unknown(invocation_id: str) -> NotFound:
    """There is no such invocation."""
    return NotFound(f"there is no invocation `{invocation_id}`")


def forgotten_before_ms(now_ms: int) -> int:
    """What ended before this is forgotten."""
    return now_ms - KEEP_ENDED_MS


async def claim_within(
    wait_s: float, claim: Callable[[], Awaitable[Sequence[Invocation]]], queued: ChangeCount
) -> Sequence[Invocation]:
    """What `claim` gives once that is something, or nothing after `wait_s`."""
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + wait_s
    while True:
        seen = await queued.changed(-1)  # first: what comes while we look is not missed
        claimed = await claim()
        left_s = until_s - now_s()
        if claimed or left_s <= 0:
            return claimed
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left_s, LOOK_AGAIN_S)):
                await queued.changed(seen)
