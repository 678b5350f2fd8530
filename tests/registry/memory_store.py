"""A store without a disk and without threads: the SQL store over SQLite in memory.

No method suspends before it is done, so tests in virtual time can use it. It needs no event loop to be made.
"""

from collections.abc import Callable
from uuid import uuid4

from sqlalchemy import Connection, Engine, StaticPool, create_engine, event, update

from toolgate.errors import StorageFailed
from toolgate.registry.approvals import DEFAULT_APPROVAL_LIMITS, ApprovalLimits
from toolgate.registry.approvals.sql import Approvals
from toolgate.registry.database.statements import StoreHead, create_tables, read_head
from toolgate.registry.database.tables import INVOCATIONS
from toolgate.registry.database.transactions import T, Topic, Transactions
from toolgate.registry.invocations.sql import Invocations
from toolgate.registry.store import DEFAULT_STORE_LIMITS, StoreLimits
from toolgate.registry.store.side_tables import EndedSessions, QuotaLedger
from toolgate.registry.store.sql_store import Store


class InlineTransactions(Transactions):
    """Runs each transaction at once, on the thread that requests it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.is_closed = False

    async def read(
        self, work: Callable[[Connection], T], *, is_long: bool = False, is_single: bool = False
    ) -> T:
        return self._run(work)

    async def change(
        self,
        work: Callable[[Connection], T],
        *,
        then: Callable[[T], None] | None = None,
        topic: Topic = "registry",
    ) -> T:
        result = self._run(work)
        if then is not None:
            then(result)
        return result

    def _run(self, work: Callable[[Connection], T]) -> T:
        if self.is_closed:
            raise StorageFailed("the store is closed")
        with self._engine.begin() as connection:
            return work(connection)


def _open_memory(epoch: str | None = None) -> tuple[InlineTransactions, StoreHead]:
    engine = create_engine(
        "sqlite://",
        poolclass=StaticPool,
        connect_args={"isolation_level": None, "check_same_thread": False},
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        create_tables(connection, epoch=epoch or uuid4().hex)
        return InlineTransactions(engine), read_head(connection)


class MemoryStore(Store):
    """An empty registry that ends with the test."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        *,
        epoch: str | None = None,
        limits: StoreLimits = DEFAULT_STORE_LIMITS,
    ) -> None:
        super().__init__(*_open_memory(epoch), clock_ms=clock_ms, limits=limits)


class MemoryApprovals(Approvals):
    """Approvals alone."""

    def __init__(self, clock_ms: Callable[[], int], limits: ApprovalLimits = DEFAULT_APPROVAL_LIMITS) -> None:
        super().__init__(_open_memory()[0], lambda _: clock_ms(), limits)


class MemoryInvocations(Invocations):
    """The queue of invocations alone."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(_open_memory()[0], lambda _: clock_ms())

    async def reassign(self, invocation_id: str, *, node_id: str) -> None:
        """Give an invocation that runs to another node, as its second attempt."""
        statement = (
            update(INVOCATIONS).where(INVOCATIONS.c.id == invocation_id).values(attempt=2, node_id=node_id)
        )
        await self.transactions.change(lambda connection: connection.execute(statement))


class MemoryQuotaLedger(QuotaLedger):
    """The quotas alone."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(_open_memory()[0], lambda _: clock_ms())


class MemoryEndedSessions(EndedSessions):
    """Ended sessions alone."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(_open_memory()[0], lambda _: clock_ms())
