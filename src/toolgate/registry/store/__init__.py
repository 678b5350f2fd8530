"""The revisioned store of all governed records, on SQLite or PostgreSQL, and its limits.

- `sql_store.py`    `Store`: commit, list, watch, history, compaction
- `side_tables.py`  reports, pinned definitions, ended sessions, quotas and the catalog, next to the records
- `engines.py`, `postgresql.py`  open a store; export and import a registry
- `export.py`       the file format of an export

Only `govern` writes records. Never shows a transaction in part, and never acknowledges a write that is not
durable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from toolgate.model.principals import LeaseGrant, LeaseRequest
from toolgate.model.reports import MAX_ENDED
from toolgate.registry.approvals import DEFAULT_APPROVAL_LIMITS, ApprovalLimits
from toolgate.registry.invocations import DEFAULT_QUEUE_LIMITS, QueueLimits

# Compaction keeps what either limit includes: enough for a node that restarts.
KEEP_LOG_REVISIONS: Final = 10_000
KEEP_LOG_MS: Final = 10 * 60 * 1000  # a choice: several times what a restart takes
WATCH_BUFFER: Final = 1_024  # batches a watcher may fall behind. One more ends it with WatchLagged


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """The limits of a store. Tests pass smaller ones."""

    approvals: ApprovalLimits = DEFAULT_APPROVAL_LIMITS
    queue: QueueLimits = DEFAULT_QUEUE_LIMITS
    max_ended_sessions: int = MAX_ENDED
    watch_buffer: int = WATCH_BUFFER
    timeout_s: float = 20.0
    """How long a caller waits for PostgreSQL. It ends a statement after 10 s; a transaction has few
    statements."""
    close_s: float = 3.0
    """How long closing a store waits for transactions in flight."""
    poll_s: float = 3.0
    """The longest delay of a change whose notification was lost: some connection poolers drop them."""


DEFAULT_STORE_LIMITS: Final = StoreLimits()


class QuotaSource(Protocol):
    """Quotas as a node uses them."""

    async def draw(self, requests: Sequence[LeaseRequest], /) -> Sequence[LeaseGrant]:
        """Return a grant for each request, in order. It is counted before it is returned. A request also
        reports the usage of earlier grants, and returns unused calls."""
