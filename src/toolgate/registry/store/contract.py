"""The contract of the store. One suite in `tests/contract/` runs against each engine.

Everything governed is `(kind, id) -> body` at a revision. There is one global revision, one higher with each
transaction. An acknowledged write is durable. The batches of a watch are ordered, unique, atomic, reliable,
resumable and bookmarked; a watch that cannot keep that promise ends with an error. What is stored next to the
records has no revisions and is no part of an export, and all control plane replicas on one database see the
same.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from toolgate.model.reports import MAX_ENDED, Definitions, EndedSession, NodeReport
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.approvals.contract import DEFAULT_APPROVAL_LIMITS, ApprovalLimits
from toolgate.registry.invocations.contract import DEFAULT_QUEUE_LIMITS, QueueLimits
from toolgate.registry.store.export import ExportSummary

if TYPE_CHECKING:  # a node knows the contract and loads no SQL
    from toolgate.registry.approvals.sql import Approvals
    from toolgate.registry.invocations.sql import Invocations
    from toolgate.registry.quotas.sql import QuotaLedger
    from toolgate.registry.store.side_tables import Catalog, PinnedDefinitions


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


class Store(Protocol):
    """A revisioned store."""

    @property
    def epoch(self) -> str:
        """The identity of the history: another epoch is another history, whatever its revisions."""

    @property
    def revision(self) -> int:
        """The newest committed revision."""

    @property
    def digest(self) -> str:
        """The digest of the log up to `revision`. Histories that diverge have different ones from then on."""

    @property
    def is_current(self) -> bool:
        """Whether `revision` is the newest. False while other processes may write unnoticed."""

    @property
    def reports(self) -> Reports:
        """What nodes report."""

    @property
    def catalog(self) -> "Catalog":
        """The rows of the catalog."""

    @property
    def pinned(self) -> "PinnedDefinitions":
        """The definitions that pins name."""

    @property
    def invocations(self) -> "Invocations":
        """The queue of invocations and its history."""

    @property
    def approvals(self) -> "Approvals":
        """Approvals of calls."""

    @property
    def spending(self) -> "QuotaLedger":
        """What keys and tasks use of their quotas."""

    @property
    def ended_sessions(self) -> EndedSessions:
        """Sessions that were ended."""

    async def write(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        """As `commit`. Returns the revision alone."""

    async def commit(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> ChangeBatch:
        """Commit all of `writes` as one revision, or none. Returns the batch.

        A response to the writer is made from the batch: a second read may see a later write.

        Raises Conflict if an `if_revision` is stale, NotFound if a delete finds nothing, StorageFailed if the
        write could not be made durable, and StorageUnavailable if the database does not answer: its message
        says whether the write may have been stored. Equal bodies change nothing: the batch is empty, at the
        current revision. `if_store_revision` is for decisions that depend on other records: Conflict if
        anything was committed since.
        """

    async def get(self, kind: Kind, record_id: str) -> StoredRecord | None:
        """Return the record, or None."""

    async def list(self, kind: Kind | None = None) -> RecordList:
        """Return all records (of a kind) at one revision, sorted by kind and id."""

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[RecordChange]:
        """Return the changes of a record that the log still has, newest first."""

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        """Iterate over the batches after `since`: replayed from the log, then live.

        Entering raises Compacted if the log does not reach back to `since`, does not reach `since` yet, or
        has another digest there: the watcher followed another history and must list again. The iterator
        raises WatchLagged if its reader falls too far behind, and Compacted if the log was cut or the
        database replaced. After the replay comes one bookmark, a batch without changes, at the newest
        revision delivered.
        """

    async def compact(self, *, keep_revisions: int = KEEP_LOG_REVISIONS, keep_ms: int = KEEP_LOG_MS) -> int:
        """Delete old changes from the log. Returns the oldest revision that a watch can still begin at."""

    async def export(self, path: Path) -> ExportSummary:
        """Write a snapshot of everything into the file `path`; see `export`."""

    async def aclose(self) -> None:
        """Release everything. Idempotent."""
