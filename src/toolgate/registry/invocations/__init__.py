"""The queue of invocations: runs of workloads, leased to nodes.

This module has `InvocationQueue`, which nodes use, and the pure rules of leases, retries and cancellation:
from one queue entry to the next. `sql.py` has `Invocations`, the queue and its history in two tables next to
the records, without revisions. `govern` queues and cancels; a node's invoker claims and reports. Any number
of nodes claim from one queue, through any number of replicas on one database. Never runs anything, and never
leases one invocation to two nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

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

T = TypeVar("T")
LEASE_MS: Final = 15_000
"""How long a node may not report before its runs count as lost: seven heartbeats, so that a restart of the
control plane loses no run."""
HEARTBEAT_S: Final = 2.0  # often, so that `LEASE_MS` can be short: it delays the retry of a lost run
KEEP_ENDED_MS: Final = 7 * 24 * 3600 * 1000  # clients fetch results, the queue is no archive
_NODE_DECISIONS: Final[frozenset[EndedBy]] = frozenset({"cancelled", "revoked", "node_stopped", "node_lost"})
"""Ends that the node chose. All others come from the guest or a limit, and would have happened anyway."""
LeaseVerdict = Literal["go_on", "cancel", "lost"]
"""The response to a report. `lost`: the node no longer has the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """The size of the queue, and how often a waiting claimer polls."""

    max_queued: int = 1_000
    """Replicas that add an invocation at the same moment may exceed it by one each."""
    keep_ended: int = 1_000
    """For each task. Older invocations are deleted."""
    poll_s: float = 3.0
    """The longest delay until a waiting claimer sees an expired lease, or an invocation whose notification
    was lost."""


DEFAULT_QUEUE_LIMITS: Final = QueueLimits()


class InvocationCreation(NamedTuple):
    """The result of `create`. `is_new` False: the idempotency key belongs to an earlier invocation."""

    invocation: Invocation
    is_new: bool


class InvocationProgress(NamedTuple):
    """The progress of an invocation. It differs when there is something new to read."""

    state: InvocationState
    attempt: int
    lines: int
    """The number of lines it has written."""


class InvocationQueue(Protocol):
    """The queue as a node uses it."""

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        """Lease up to `limit` queued invocations to `node_id`. Waits up to `wait_s` for one.

        Tasks with the fewest running invocations come first, then the oldest. Expired leases are ended
        before: a cancelled invocation is cancelled, one with a retry left is queued again, any other has
        crashed. A lease expires only after this process has been up for its whole length. A limit of 0 only
        ends leases.

        An attempt begins with its first report, and a node runs nothing before it sent that report. So an
        invocation that was leased and never begun is queued again without using a retry: the response may
        have been lost.
        """

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        """Append new lines, record the end if there is one, and renew the lease.

        A report of an older attempt, or of an ended one, changes nothing and returns `lost`. The attempt
        numbers its lines in rising order. Known lines are skipped, so a report may be repeated. Lines are
        stored under numbers that continue over all attempts. If a cancellation was requested, an end that the
        node chose (`cancelled`, `revoked`, `node_stopped`) counts as that cancellation. Otherwise `crashed`
        counts as the loss of the node, including retries.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationEntry:
    """An invocation with the fields that only the queue has."""

    invocation: Invocation
    losses: int = 0
    """Attempts that had begun and lost their node."""
    heard: int = -1
    """The newest line of this attempt, by the attempt's own number."""
    lines: int = 0
    """The newest line of all, by its number in the log."""


class ReportEffect(NamedTuple):
    """The effect of a report of the node that has the lease."""

    verdict: LeaseVerdict
    entry: InvocationEntry
    lines: Sequence[LogLine]


encode_line: Final = msgspec.msgpack.Encoder().encode


def keep_newest_lines(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """Return the last lines of a log that fit its limits."""
    last = lines[-MAX_LOG_LINES:]
    sizes = accumulate(len(encode_line(line)) for line in reversed(last))
    return last[len(last) - sum(size <= MAX_LOG_BYTES for size in sizes) :]


def order_fairly(queued: Iterable[tuple[str, T]], running: Mapping[str, int]) -> list[T]:
    """Order `queued` so that tasks with fewer running and earlier queued invocations come first."""
    turns = Counter(running)
    ranked = []
    for task_id, one in queued:
        turns[task_id] += 1
        ranked.append((turns[task_id], one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def lease_entry(entry: InvocationEntry, *, node_id: str, now_ms: int) -> InvocationEntry:
    """Begin the next attempt of a queued invocation."""
    attempt, lease_until_ms = entry.invocation.attempt + 1, now_ms + LEASE_MS
    entry = replace(entry, heard=-1)
    return _update(entry, state="running", attempt=attempt, node_id=node_id, lease_until_ms=lease_until_ms)


def expire_lease(entry: InvocationEntry, now_ms: int) -> InvocationEntry:
    node_id = entry.invocation.node_id
    message = f"its node `{node_id}` no longer reports: the progress of the run is unknown"
    lost = InvocationResult(state="crashed", ended_by="node_lost", message=message)
    return _crash_or_requeue(entry, lost, now_ms)


def apply_report(
    entry: InvocationEntry,
    attempt: int,
    *,
    lines: Sequence[LogLine],
    ending: InvocationResult | None,
    now_ms: int,
) -> ReportEffect | None:
    """Return the effect of a report. None: the node no longer has the lease."""
    known = entry.invocation
    if known.state != "running" or known.attempt != attempt:
        return None
    fresh = [line for line in lines if line.seq > entry.heard]
    numbered = [replace(line, seq=entry.lines + n) for n, line in enumerate(fresh, start=1)]
    started_ms = now_ms if known.started_ms is None else known.started_ms
    heard = max((line.seq for line in fresh), default=entry.heard)
    entry = replace(entry, heard=heard, lines=entry.lines + len(numbered))
    entry = _update(entry, started_ms=started_ms, lease_until_ms=now_ms + LEASE_MS)
    if ending is None:
        return ReportEffect("cancel" if known.is_cancel_asked else "go_on", entry, numbered)
    after = _crash_or_requeue if ending.state == "crashed" else _end
    if known.is_cancel_asked and ending.ended_by in _NODE_DECISIONS:
        ending, after = replace(ending, state="cancelled", ended_by="cancelled"), _end
    return ReportEffect("go_on", after(entry, ending, now_ms), numbered)


def cancel_entry(entry: InvocationEntry, now_ms: int) -> InvocationEntry:
    """Cancel: a queued invocation ends, a running one is marked, an ended one stays."""
    state = entry.invocation.state
    if state in ENDED:
        return entry
    marked = _update(entry, is_cancel_asked=True)
    if state == "queued":
        return _end(marked, _cancelled_ending("the invocation was cancelled before it began"), now_ms)
    return marked


def _crash_or_requeue(entry: InvocationEntry, ending: InvocationResult, now_ms: int) -> InvocationEntry:
    known = entry.invocation
    if known.is_cancel_asked:
        return _end(entry, _cancelled_ending("its node was lost during the cancellation"), now_ms)
    if known.started_ms is None:
        return _requeue(entry)
    if entry.losses < known.retries:
        return _requeue(replace(entry, losses=entry.losses + 1))
    return _end(entry, ending, now_ms)


def _requeue(entry: InvocationEntry) -> InvocationEntry:
    # Its attempt number stays, so that reports of that attempt are refused.
    return _update(entry, state="queued", node_id="", started_ms=None, lease_until_ms=None)


def _cancelled_ending(message: str) -> InvocationResult:
    return InvocationResult(state="cancelled", ended_by="cancelled", message=message)


def _end(entry: InvocationEntry, ending: InvocationResult, now_ms: int) -> InvocationEntry:
    return _update(entry, state=ending.state, lease_until_ms=None, ended_ms=now_ms, ending=ending)


def _update(entry: InvocationEntry, **changed: Any) -> InvocationEntry:
    return replace(entry, invocation=replace(entry.invocation, **changed))
