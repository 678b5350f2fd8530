"""The contract for the catalog's rows: kept beside the records, without revisions, and made anew from them.

Every replica of control on one database sees the same rows. One suite in `tests/contract/` runs against each
implementation.

The contract for what nodes report: kept beside the records, without revisions, the newest word wins.

Every replica of control on one database sees the same reports. One suite in `tests/contract/` runs against
each implementation.

The definitions that pins name, by their digests: what a changed tool is compared with, and shown beside.

Kept beside the records, without revisions: a digest can only ever mean one definition. One suite in
`tests/contract/` runs against each implementation.

The contract of ended sessions: kept next to the records, without revisions, until their ids have expired.

Any number of nodes tell of sessions that were ended there and hear of those of the others, through any number
of replicas of the control plane on one database.

The contract of every store. One suite in `tests/contract/` runs against each implementation.

Everything governed is `(kind, id) -> body` at a revision. One global revision, +1 per transaction.
An acknowledged write is durable. A watcher's batches are ordered, unique, atomic, reliable,
resumable and bookmarked; a watcher that cannot keep that promise is ended with an error that says so.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from toolgate.model.packages import CatalogRow
from toolgate.model.reports import MAX_ENDED, Definitions, EndedSession, NodeReport
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange, RecordList, RecordWrite, StoredRecord
from toolgate.registry.approvals.contract import DEFAULT_APPROVAL_LIMITS, ApprovalLimits, Approvals
from toolgate.registry.invocations.contract import DEFAULT_QUEUE_LIMITS, Invocations, QueueLimits
from toolgate.registry.quotas.contract import QuotaLedger
from toolgate.registry.store.export import ExportSummary


class Catalog(Protocol):
    """The rows of each package, replaced as a whole."""

    async def replace(self, package_id: str, rows: Sequence[CatalogRow], *, made_from: str) -> bool:
        """Make `rows` all there is of a package; whether that changed anything.

        `made_from` says what they were made of, so that whoever fills the catalog knows what is done
        already. Rows that stay the same keep their `updated_at_ms`.
        """

    async def remove(self, package_id: str) -> bool:
        """Forget a package; whether there was something to forget."""

    async def rows(self, package_id: str | None = None) -> Sequence[CatalogRow]:
        """All rows (of a package), sorted by package and tool."""

    async def made_from(self) -> dict[str, str]:
        """Package id to what its rows were made of."""

    async def changed(self, seen: int) -> int:
        """Wait until rows changed, here or by another replica, since the count `seen`; the new count.

        Counts start at 0 and rise; one change may be told of twice, none is missed.
        """


class Reports(Protocol):
    """The newest report of each node, and the newest definitions of each server."""

    async def save_report(self, report: NodeReport) -> None:
        """Replace what `report.node_id` said before."""

    async def save_definitions(self, *definitions: Definitions) -> None:
        """Replace what was known of these servers, as one transaction."""

    async def list_reports(self) -> Sequence[NodeReport]:
        """The newest report of each node, sorted by node id."""

    async def list_definitions(self, server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
        """The newest definitions of each of these servers, sorted by server id. None: of all."""

    async def definition_times(self) -> Mapping[str, int]:
        """Server id to the `at_ms` of its newest definitions: cheap, however large they are."""

    async def forget(self, *, before_ms: int) -> None:
        """Drop the reports received before `before_ms`, and definitions of servers without a record."""

    async def changed(self, seen: int) -> int:
        """Wait until something was saved, here or by another replica, since the count `seen`; the new count.

        Counts start at 0 and rise; one change may be told of twice, none is missed.
        """


MAX_KEPT_BYTES: Final = 1024 * 1024
"""Of one definition. A larger one is not kept: nobody could read what is different in it."""


class PinnedDefinitions(Protocol):
    """Definitions as their servers wrote them, by digest."""

    async def save(self, definitions: Mapping[str, bytes]) -> None:
        """Keep these. What is kept already, and what is too large, is passed over."""

    async def read(self, digests: Collection[str]) -> Mapping[str, bytes]:
        """Those of `digests` that are kept."""

    async def digests(self) -> frozenset[str]:
        """Of all that are kept."""

    async def forget(self, digests: Collection[str]) -> None:
        """Keep these no longer."""


class EndedSessions(Protocol):
    """Those that are remembered."""

    async def add(self, ended: Sequence[EndedSession]) -> None:
        """Remember them. One that is known stays as it is."""

    async def list(self, *, after_ms: int = 0) -> Sequence[EndedSession]:
        """Those with `at_ms` from then on whose ids have not expired, the oldest first."""

    async def forget(self) -> None:
        """Drop those that have expired, and the oldest of too many."""


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
        """Minted with the store: another epoch is another history, whatever its revisions say."""

    @property
    def revision(self) -> int:
        """The newest committed revision."""

    @property
    def digest(self) -> str:
        """Of the log up to `revision`: two histories that part have different ones from there on."""

    @property
    def is_current(self) -> bool:
        """Whether `revision` is the newest there is; false while other processes may write unheard."""

    @property
    def reports(self) -> Reports:
        """What nodes report, kept in the same place."""

    @property
    def catalog(self) -> Catalog:
        """The rows of the catalog, kept in the same place."""

    @property
    def pinned(self) -> PinnedDefinitions:
        """The definitions that pins name, kept in the same place."""

    @property
    def invocations(self) -> Invocations:
        """The queue and the history of invocations, kept in the same place; no part of an export."""

    @property
    def approvals(self) -> Approvals:
        """Approvals of calls, kept in the same place; no part of an export."""

    @property
    def spending(self) -> QuotaLedger:
        """What is used over time, counted in the same place; no part of an export."""

    @property
    def ended_sessions(self) -> EndedSessions:
        """Sessions that were ended, kept in the same place; no part of an export."""

    async def write(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        """As `commit`; returns the revision alone."""

    async def commit(
        self, writes: Sequence[RecordWrite], *, actor: str, if_store_revision: int | None = None
    ) -> ChangeBatch:
        """Commit all of `writes` as one revision, or none. Returns what was committed.

        A response to the writer is made from that: by the time it reads, the records may be another's.

        Raises Conflict when an `if_revision` is stale, NotFound when a delete finds nothing, and
        StorageFailed when the write could not be made durable. StorageUnavailable: the database does not
        answer, and the message says so when the write may have been stored all the same. A transaction
        that changes nothing (same bodies) still raises what it must, and otherwise returns the current
        revision, without changes and without minting one. `if_store_revision` is for decisions that depend
        on other records: Conflict when anything at all was committed since that revision.
        """

    async def get(self, kind: Kind, record_id: str) -> StoredRecord | None:
        """The record, or None."""

    async def list(self, kind: Kind | None = None) -> RecordList:
        """All records (of a kind), sorted by kind and id, at one revision."""

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[RecordChange]:
        """The newest changes of a record, newest first, as far as the log reaches."""

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[ChangeBatch]]:
        """Batches with revision > `since`, replayed from the log and then live.

        Entering raises Compacted when the log no longer reaches back to `since`, when it does not reach
        `since` yet, and when `digest` is given and is not that of the log up to there: whoever watched then
        followed another history, and must list again. The iterator
        raises WatchLagged when its reader falls too far behind, and Compacted when the history it reads is
        gone: it was cut, or the database was replaced (then `epoch` and `revision` are the new one's).
        After the replay comes one bookmark (a batch without changes) at the newest revision delivered.
        """

    async def compact(self, *, keep_revisions: int = KEEP_LOG_REVISIONS, keep_ms: int = KEEP_LOG_MS) -> int:
        """Forget old log lines; returns the oldest revision one can still watch from."""

    async def export(self, path: Path) -> ExportSummary:
        """Write everything, as of one moment, into the file `path`, replaced as a whole; see `exports`."""

    async def aclose(self) -> None:
        """Release everything. Idempotent."""
