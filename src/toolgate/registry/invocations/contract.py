"""The contract of the queue of invocations: kept beside the records, without revisions.

Any number of nodes take from one queue, through any number of replicas of control on one database; each
invocation is at any time with one of them. One suite in `tests/contract/` runs against each implementation.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from toolgate.model.invocations import MAX_LOG_LINES, Ending, Invocation, InvocationState, LogLine

LEASE_MS: Final = 15_000
"""How long a node may be silent about what it runs."""
HEARTBEAT_S: Final = 2.0
MAX_QUEUED: Final = 1_000
"""Replicas that take one in at the same moment may go past it by one each."""
KEEP_ENDED: Final = 1_000
"""Of one task; older ones are forgotten."""
KEEP_ENDED_MS: Final = 7 * 24 * 3600 * 1000

Verdict = Literal["go_on", "cancel", "lost"]
"""What a node hears of what it runs. `lost`: it is not its any more."""


class Made(NamedTuple):
    """What became of a new invocation. `is_new` False: the key of an earlier one was given again."""

    invocation: Invocation
    is_new: bool


class Mark(NamedTuple):
    """How far an invocation has come: whoever follows it knows by that whether there is something new."""

    state: InvocationState
    attempt: int
    lines: int
    """How many it has written."""


class Queue(Protocol):
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
        self, invocation_id: str, attempt: int, *, lines: Sequence[LogLine] = (), ending: Ending | None = None
    ) -> Verdict:
        """What an attempt wrote since, and how it ended, if it did. Renews its lease.

        What is not of the newest attempt, or of one that has ended, changes nothing, and is `lost`. Lines
        are numbered by their attempt, rising; one that was heard before is passed over, so that a report may
        be repeated. They are kept under numbers that go on over all attempts.
        An ending that the node chose (`cancelled`, `revoked`, `node_stopped`) is a cancellation where one
        was asked for. Otherwise one of state `crashed` is treated as the loss of its node, retries included.
        """


class Invocations(Queue, Protocol):
    """The queue, and the history of what came out of it."""

    async def create(self, invocation: Invocation) -> Made:
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

    async def marks(self, ids: Collection[str]) -> Mapping[str, Mark]:
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
