"""The contract of the queue of invocations: kept beside the records, without revisions.

Any number of nodes take from one queue, through any number of replicas of control on one database; each
invocation is at any time with one of them. One suite in `tests/contract/` runs against each implementation.

What becomes of an invocation, decided without a store: an entry of the queue in, the entry after it out.

Every store keeps exactly what these say, so they cannot differ in meaning.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from toolgate.errors import Conflict, NotFound, QueueFull
from toolgate.model.invocations import (
    ENDED,
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    EndedBy,
    Invocation,
    InvocationResult,
    InvocationState,
    LogLine,
)
from toolgate.registry.database.change_count import ChangeCounter

LEASE_MS: Final = 15_000
"""How long a node may be silent about what it runs."""
HEARTBEAT_S: Final = 2.0
MAX_QUEUED: Final = 1_000
"""Replicas that take one in at the same moment may go past it by one each."""
KEEP_ENDED: Final = 1_000
"""Of one task; older ones are forgotten."""
KEEP_ENDED_MS: Final = 7 * 24 * 3600 * 1000

LeaseVerdict = Literal["go_on", "cancel", "lost"]
"""What a node hears of what it runs. `lost`: it is not its any more."""


class InvocationCreation(NamedTuple):
    """What became of a new invocation. `is_new` False: the key of an earlier one was given again."""

    invocation: Invocation
    is_new: bool


class InvocationProgress(NamedTuple):
    """How far an invocation has come: whoever follows it knows by that whether there is something new."""

    state: InvocationState
    attempt: int
    lines: int
    """How many it has written."""


class InvocationQueue(Protocol):
    """The queue as a node sees it."""

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        """Take up to `limit` that are queued; each now runs on `node_id`, under a lease.

        Tasks that have the least running come first, then the oldest. Where there is none, it waits so long
        for one. Those whose lease is over are seen to before: back to the queue where a retry is left, else
        they have crashed; where a cancellation was asked for, they are cancelled. No lease is over before
        its node had that long to be heard by this process, which may just have come back. With a limit of 0
        that is all.
        An attempt begins with its first report, and nothing is run before that was heard. So what is taken
        and never begun goes back to the queue without a retry: the answer may not have reached its node.
        """

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        """What an attempt wrote since, and how it ended, if it did. Renews its lease.

        What is not of the newest attempt, or of one that has ended, changes nothing, and is `lost`. Lines
        are numbered by their attempt, rising; one that was heard before is passed over, so that a report may
        be repeated. They are kept under numbers that go on over all attempts.
        An ending that the node chose (`cancelled`, `revoked`, `node_stopped`) is a cancellation where one
        was asked for. Otherwise one of state `crashed` is treated as the loss of its node, retries included.
        """


class Invocations(InvocationQueue, Protocol):
    """The queue, and the history of what came out of it."""

    async def create(self, invocation: Invocation) -> InvocationCreation:
        """Put a new one at the end. Raises QueueFull, and Conflict.

        An id is given once. A key counts for one principal and one task, as long as the invocation is
        remembered: with the same input it means the earlier one, with other input it is a conflict.
        """

    async def cancel(self, invocation_id: str) -> Invocation:
        """End one that is queued, have one that runs ended, leave one that has ended. Raises NotFound."""

    async def get(self, invocation_id: str) -> Invocation | None:
        """One of them."""

    async def list(
        self,
        *,
        task_id: str | None = None,
        principal_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Invocation]:
        """The newest first, without inputs and outputs; `before` is the id of the last one seen."""

    async def marks(self, ids: Collection[str]) -> Mapping[str, InvocationProgress]:
        """How far these have come, at one look; those that are not there are left out."""

    async def waiting(self) -> int:
        """How many are queued."""

    async def lines(
        self, invocation_id: str, *, after: int = 0, limit: int = MAX_LOG_LINES
    ) -> Sequence[LogLine]:
        """Its log after the line `after`, oldest first; of a long one, the newest are kept: `MAX_LOG_LINES`,
        and not more than `MAX_LOG_BYTES` of them.
        """

    async def forget(self, *, now_ms: int) -> None:
        """Drop what ended long ago, and what a task has too many of."""

    async def changed(self, seen: int) -> int:
        """Wait until something was made, taken or reported, here or by another replica; the new count.

        Counts start at 0 and rise; one change may be told of twice, none is missed. A lease that is merely
        renewed is none.
        """


T = TypeVar("T")

CLAIM_POLL_S: Final = 3.0
"""How late a lease that is over is seen by who waits, and what came without a word."""

_CHOSEN: Final[frozenset[EndedBy]] = frozenset({"cancelled", "revoked", "node_stopped", "node_lost"})
"""Ends that are the node's choice: others are the guest's own, or a limit's, and would have come anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationEntry:
    """An invocation with what the queue alone knows of it."""

    invocation: Invocation
    losses: int = 0
    """Attempts that had begun when their node was lost."""
    heard: int = -1
    """The newest line of this attempt, by the attempt's own number."""
    lines: int = 0
    """The newest line of all, by its number in the log."""


class ReportEffect(NamedTuple):
    """What a report comes to. `entry` None: nothing changes."""

    verdict: LeaseVerdict
    entry: InvocationEntry | None
    lines: Sequence[LogLine]


LOST_REPORT: Final = ReportEffect("lost", None, ())


encode_line: Final = msgspec.msgpack.Encoder().encode
"""A line as it is stored."""


def keep_newest_lines(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Those of a log that are kept: the last, as many and as much as may be."""
    last = lines[-MAX_LOG_LINES:]
    sizes = accumulate(len(encode_line(line)) for line in reversed(last))
    return last[len(last) - sum(size <= MAX_LOG_BYTES for size in sizes) :]


def order_fairly(queued: Iterable[tuple[str, T]], running: Mapping[str, int]) -> list[T]:
    """Whose turn comes when: each of `queued`, by its task, after what that has running and queued before."""
    turns = Counter(running)
    ranked = []
    for task_id, one in queued:
        turns[task_id] += 1
        ranked.append((turns[task_id], one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def lease_entry(entry: InvocationEntry, *, node_id: str, now_ms: int) -> InvocationEntry:
    """A queued one, with a node."""
    invocation = replace(
        entry.invocation,
        state="running",
        attempt=entry.invocation.attempt + 1,
        node_id=node_id,
        lease_until_ms=now_ms + LEASE_MS,
    )
    return replace(entry, invocation=invocation, heard=-1)


def is_lease_expired(invocation: Invocation, now_ms: int) -> bool:
    """Whether its node is taken for lost."""
    return invocation.state == "running" and (invocation.lease_until_ms or 0) < now_ms


def expire_lease(entry: InvocationEntry, now_ms: int) -> InvocationEntry:
    """One whose node was lost."""
    node_id = entry.invocation.node_id
    message = f"its node `{node_id}` was not heard of any more: how far it came is not known"
    return _crash_or_requeue(
        entry, InvocationResult(state="crashed", ended_by="node_lost", message=message), now_ms
    )


def apply_report(
    entry: InvocationEntry,
    attempt: int,
    *,
    lines: Sequence[LogLine],
    ending: InvocationResult | None,
    now_ms: int,
) -> ReportEffect:
    """One that runs, after a report of `attempt`."""
    known = entry.invocation
    if known.state != "running" or known.attempt != attempt:
        return LOST_REPORT
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
        return ReportEffect("cancel" if known.is_cancel_asked else "go_on", entry, numbered)
    after = _crash_or_requeue if ending.state == "crashed" else _end
    if known.is_cancel_asked and ending.ended_by in _CHOSEN:
        ending, after = replace(ending, state="cancelled", ended_by="cancelled"), _end
    return ReportEffect("go_on", after(entry, ending, now_ms), numbered)


def cancel_entry(entry: InvocationEntry, now_ms: int) -> InvocationEntry:
    """One that is not wanted any more: ended where it waits, marked where it runs, else as it was."""
    state = entry.invocation.state
    if state in ENDED:
        return entry
    asked = replace(entry, invocation=replace(entry.invocation, is_cancel_asked=True))
    return (
        _end(asked, _cancelled_ending("it was cancelled before it began"), now_ms)
        if state == "queued"
        else asked
    )


def _crash_or_requeue(entry: InvocationEntry, ending: InvocationResult, now_ms: int) -> InvocationEntry:
    known = entry.invocation
    if known.is_cancel_asked:
        return _end(entry, _cancelled_ending("its node was lost while it was being cancelled"), now_ms)
    if known.started_ms is None:
        return _requeue(entry)
    if entry.losses < known.retries:
        return _requeue(replace(entry, losses=entry.losses + 1))
    return _end(entry, ending, now_ms)


def _requeue(entry: InvocationEntry) -> InvocationEntry:
    # Its attempt stays: what that reports is not heard any more.
    queued = replace(entry.invocation, state="queued", node_id="", started_ms=None, lease_until_ms=None)
    return replace(entry, invocation=queued)


def _cancelled_ending(message: str) -> InvocationResult:
    return InvocationResult(state="cancelled", ended_by="cancelled", message=message)


def _end(entry: InvocationEntry, ending: InvocationResult, now_ms: int) -> InvocationEntry:
    ended = replace(entry.invocation, state=ending.state, lease_until_ms=None, ended_ms=now_ms, ending=ending)
    return replace(entry, invocation=ended)


def check_same_input(earlier: Invocation, *, is_same_input: bool) -> None:
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


def duplicate_invocation(invocation_id: str) -> Conflict:
    """There is such an invocation already."""
    return Conflict(f"there is an invocation `{invocation_id}` already")


def invocation_not_found(invocation_id: str) -> NotFound:
    """There is no such invocation."""
    return NotFound(f"there is no invocation `{invocation_id}`")


def retention_cutoff_ms(now_ms: int) -> int:
    """What ended before this is forgotten."""
    return now_ms - KEEP_ENDED_MS


async def claim_or_wait(
    wait_s: float, claim: Callable[[], Awaitable[Sequence[Invocation]]], queued: ChangeCounter
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
            async with asyncio.timeout(min(left_s, CLAIM_POLL_S)):
                await queued.changed(seen)
