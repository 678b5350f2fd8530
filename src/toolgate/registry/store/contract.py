"""The limits of a store, and what code without SQL uses of it: reports, ended sessions and quotas.

They are stored next to the records, without revisions. All control plane replicas on one database see the
same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from toolgate.model.principals import LeaseGrant, LeaseRequest
from toolgate.model.reports import MAX_ENDED, Definitions, EndedSession, NodeReport
from toolgate.registry.approvals.contract import DEFAULT_APPROVAL_LIMITS, ApprovalLimits
from toolgate.registry.invocations.contract import DEFAULT_QUEUE_LIMITS, QueueLimits


class Reports(Protocol):
    """The newest report of each node, and the newest definitions of each server."""

    async def save_report(self, report: NodeReport) -> None:
        """Replace the report of `report.node_id`."""

    async def save_definitions(self, *definitions: Definitions) -> None:
        """Replace the definitions of these servers, in one transaction."""

    async def list_reports(self) -> Sequence[NodeReport]:
        """Return the newest report of each node, sorted by node id."""

    async def list_definitions(self, server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
        """Return the newest definitions of these servers (None: of all), sorted by server id."""

    async def definition_times(self) -> Mapping[str, int]:
        """Return server id → `at_ms` of its newest definitions: cheap, however large they are."""

    async def forget(self, *, before_ms: int) -> None:
        """Delete reports received before `before_ms`, and definitions of servers without a record."""

    async def changed(self, seen: int) -> int:
        """Wait until the count of changes, by any replica, exceeds `seen`. Returns the new count.

        Counts start at 0. One change may count twice, none is missed.
        """


class EndedSessions(Protocol):
    """Sessions that were ended, until their ids expire: every node ends them, too."""

    async def add(self, ended: Sequence[EndedSession]) -> None:
        """Add sessions. Known ones stay as they are."""

    async def list(self, *, after_ms: int = 0) -> Sequence[EndedSession]:
        """Return those added since `after_ms` whose ids have not expired, oldest first."""

    async def forget(self) -> None:
        """Delete those that expired, and the oldest of too many."""


KEEP_LOG_REVISIONS: Final = 10_000
KEEP_LOG_MS: Final = 10 * 60 * 1000
"""Compaction keeps at least this many revisions and at least this much history: enough for a node that
restarts."""


WATCH_BUFFER: Final = 1_024
"""Batches a watcher may fall behind. One more ends it with WatchLagged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """How much a store keeps. Tests pass smaller limits."""

    approvals: ApprovalLimits = DEFAULT_APPROVAL_LIMITS
    queue: QueueLimits = DEFAULT_QUEUE_LIMITS
    max_ended_sessions: int = MAX_ENDED
    watch_buffer: int = WATCH_BUFFER
    timeout_s: float = 20.0
    """How long a caller waits for PostgreSQL. It ends a statement after 10 s; a transaction has few of them.
    """
    close_s: float = 3.0
    """How long a store that is closed waits for the transactions under way."""
    poll_s: float = 3.0
    """How late a replica sees a change whose notification was lost: some connection poolers drop them."""


DEFAULT_STORE_LIMITS: Final = StoreLimits()


class QuotaSource(Protocol):
    """Quotas as a node uses them."""

    async def draw(self, requests: Sequence[LeaseRequest], /) -> Sequence[LeaseGrant]:
        """Return a grant for each request, in their order. It is counted before it is returned.

        A request also reports what the node spent of earlier grants, and returns what it will not spend.
        """
