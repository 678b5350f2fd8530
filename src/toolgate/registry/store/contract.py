"""The contract of every store. One suite in `tests/contract/` runs against each implementation.

Everything governed is `(kind, id) -> body` at a revision. One global revision, +1 per transaction.
An acknowledged write is durable. A watcher's batches are ordered, unique, atomic, reliable,
resumable and bookmarked; a watcher that cannot keep that promise is ended with an error that says so.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Protocol

from toolgate.model.revisions import Batch, Change, Kind, Listing, Stored, Write
from toolgate.registry.approvals.contract import Approvals
from toolgate.registry.catalog import Catalog
from toolgate.registry.ended_sessions import EndedSessions
from toolgate.registry.invocations.contract import Invocations
from toolgate.registry.pinned import PinnedDefinitions
from toolgate.registry.quotas.contract import Spending
from toolgate.registry.reports import Reports
from toolgate.registry.store.export import Exported

KEEP_REVISIONS: Final = 10_000
KEEP_MS: Final = 10 * 60 * 1000
"""Compaction keeps at least this many revisions and at least this long a history."""
WATCH_BUFFER: Final = 1_024
"""Batches a watcher may fall behind; one more and it is ended with WatchLagged."""


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
    def spending(self) -> Spending:
        """What is used over time, counted in the same place; no part of an export."""

    @property
    def ended_sessions(self) -> EndedSessions:
        """Sessions that were ended, kept in the same place; no part of an export."""

    async def write(
        self, writes: Sequence[Write], *, actor: str, if_store_revision: int | None = None
    ) -> int:
        """As `commit`; returns the revision alone."""

    async def commit(
        self, writes: Sequence[Write], *, actor: str, if_store_revision: int | None = None
    ) -> Batch:
        """Commit all of `writes` as one revision, or none. Returns what was committed.

        A response to the writer is made from that: by the time it reads, the records may be another's.

        Raises Conflict when an `if_revision` is stale, NotFound when a delete finds nothing, and
        StorageFailed when the write could not be made durable. StorageUnavailable: the database does not
        answer, and the message says so when the write may have been stored all the same. A transaction
        that changes nothing (same bodies) still raises what it must, and otherwise returns the current
        revision, without changes and without minting one. `if_store_revision` is for decisions that depend
        on other records: Conflict when anything at all was committed since that revision.
        """

    async def get(self, kind: Kind, record_id: str) -> Stored | None:
        """The record, or None."""

    async def list(self, kind: Kind | None = None) -> Listing:
        """All records (of a kind), sorted by kind and id, at one revision."""

    async def history(self, kind: Kind, record_id: str, *, limit: int = 50) -> Sequence[Change]:
        """The newest changes of a record, newest first, as far as the log reaches."""

    def watch(self, since: int, digest: str = "") -> AbstractAsyncContextManager[AsyncIterator[Batch]]:
        """Batches with revision > `since`, replayed from the log and then live.

        Entering raises Compacted when the log no longer reaches back to `since`, when it does not reach
        `since` yet, and when `digest` is given and is not that of the log up to there: whoever watched then
        followed another history, and must list again. The iterator
        raises WatchLagged when its reader falls too far behind, and Compacted when the history it reads is
        gone: it was cut, or the database was replaced (then `epoch` and `revision` are the new one's).
        After the replay comes one bookmark (a batch without changes) at the newest revision delivered.
        """

    async def compact(self, *, keep_revisions: int = KEEP_REVISIONS, keep_ms: int = KEEP_MS) -> int:
        """Forget old log lines; returns the oldest revision one can still watch from."""

    async def export(self, path: Path) -> Exported:
        """Write everything, as of one moment, into the file `path`, replaced as a whole; see `exports`."""

    async def aclose(self) -> None:
        """Release everything. Idempotent."""
