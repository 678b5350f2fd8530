"""The queue of invocations over the tables beside the records, for the event loop."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from toolgate.errors import ToolgateError
from toolgate.model.invocations import MAX_LOG_LINES, Ending, Invocation, LogLine
from toolgate.registry.database.change_count import ChangeCount
from toolgate.registry.database.transactions import Topic, Transactions
from toolgate.registry.invocation_steps import claim_within
from toolgate.registry.invocations.contract import LEASE_MS, Made, Mark, Verdict
from toolgate.registry.invocations.sql import (
    Claim,
    Filter,
    Look,
    cancel_invocation,
    claim_invocations,
    count_queued,
    create_invocation,
    forget_invocations,
    hear_report,
    look,
    read_invocation,
    read_invocations,
    read_lines,
    read_marks,
)

T = TypeVar("T")


class SqlInvocations:
    """The queue as every replica on one database sees it; `read_clock_ms` is the clock they all go by."""

    def __init__(self, transactions: Transactions, read_clock_ms: Callable[[Connection], int]) -> None:
        self._transactions = transactions
        self._read_clock_ms = read_clock_ms
        self._count = ChangeCount()
        self._queued = ChangeCount()
        self._since_ms: int | None = None
        """Since when the database has answered every claim. Before, nodes may not have been heard either."""

    async def create(self, invocation: Invocation) -> Made:
        return await self._change(partial(create_invocation, invocation=invocation), "queue")

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        claim = partial(self._claim, node_id, limit=limit)
        return await claim_within(wait_s, claim, self._queued)

    async def report(
        self, invocation_id: str, attempt: int, *, lines: Sequence[LogLine] = (), ending: Ending | None = None
    ) -> Verdict:
        def work(connection: Connection) -> tuple[Verdict, bool]:
            return hear_report(
                connection,
                invocation_id,
                attempt,
                lines=lines,
                ending=ending,
                now_ms=self._read_clock_ms(connection),
            )

        verdict, is_queued = await self._change(work, "runs" if lines or ending else "leases")
        if is_queued:
            self._queued.rise()
        return verdict

    async def cancel(self, invocation_id: str) -> Invocation:
        def work(connection: Connection) -> Invocation:
            return cancel_invocation(connection, invocation_id, self._read_clock_ms(connection))

        return await self._change(work, "runs")

    async def get(self, invocation_id: str) -> Invocation | None:
        return await self._transactions.read(partial(read_invocation, invocation_id=invocation_id))

    async def list(
        self,
        *,
        task_id: str | None = None,
        principal_id: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Invocation]:
        wanted = Filter(task_id=task_id, principal_id=principal_id, before=before, limit=limit)
        return await self._transactions.read(partial(read_invocations, wanted=wanted))

    async def marks(self, ids: Collection[str]) -> Mapping[str, Mark]:
        return await self._transactions.read(partial(read_marks, ids=ids))

    async def waiting(self) -> int:
        return await self._transactions.read(count_queued)

    async def lines(
        self, invocation_id: str, *, after: int = 0, limit: int = MAX_LOG_LINES
    ) -> Sequence[LogLine]:
        work = partial(read_lines, invocation_id=invocation_id, after=after, limit=limit)
        return await self._transactions.read(work)

    async def forget(self, *, now_ms: int) -> None:
        await self._change(partial(forget_invocations, now_ms=now_ms), "leases")

    async def changed(self, seen: int) -> int:
        return await self._count.changed(seen)

    def on_news(self, *, is_queued: bool) -> None:
        """Something was made, taken or reported, here or by another replica."""
        self._count.rise()
        if is_queued:
            self._queued.rise()

    def close(self) -> None:
        """End those who wait."""
        self._count.close()
        self._queued.close()

    async def _claim(self, node_id: str, *, limit: int) -> Sequence[Invocation]:
        # Looked at first: who waits writes nothing, and wakes nobody.
        found = await self._look()
        ends_leases = found.has_lapsed and self._has_listened(found.now_ms)
        if not (ends_leases or (found.has_queued and limit)):
            return ()
        claim = Claim(node_id=node_id, limit=limit, ends_leases=ends_leases)

        def work(connection: Connection) -> Sequence[Invocation]:
            return claim_invocations(connection, claim, self._read_clock_ms(connection))

        return await self._change(work, "runs")

    async def _look(self) -> Look:
        try:
            found = await self._transactions.read(
                lambda connection: look(connection, self._read_clock_ms(connection))
            )
        except ToolgateError:
            self._since_ms = None
            raise
        self._since_ms = found.now_ms if self._since_ms is None else self._since_ms
        return found

    def _has_listened(self, now_ms: int) -> bool:
        return self._since_ms is not None and now_ms - self._since_ms >= LEASE_MS

    async def _change(self, work: Callable[[Connection], T], topic: Topic) -> T:
        def tell(_: T) -> None:
            if topic != "leases":
                self.on_news(is_queued=topic == "queue")

        return await self._transactions.change(work, then=tell, topic=topic)
