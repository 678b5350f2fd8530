"""What is used over time, over the table beside the records; the same for every engine.

Whoever draws locks the rows it draws on, always in one order. Those who come at once stand in line there, and
each sees what the one before it has left.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, delete, select, text, update

from toolgate.model.quotas import HolderUsage, LeaseGrant, LeaseRequest, QuotaCount, QuotaHolder, QuotaName
from toolgate.policy.admission import grant_lease, window_at
from toolgate.registry.database.tables import SPENDING
from toolgate.registry.database.transactions import Transactions
from toolgate.registry.quotas.contract import KEEP_MS

_ROW: Final = SPENDING.c


class SqlQuotaLedger:
    """Counts as every replica on one database sees them; `read_clock_ms` is the clock they all go by."""

    def __init__(self, transactions: Transactions, read_clock_ms: Callable[[Connection], int]) -> None:
        self._transactions = transactions
        self._read_clock_ms = read_clock_ms

    async def draw(self, draws: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        return await self._transactions.change(partial(self._draw_all, draws=draws), topic="spending")

    async def usage(self) -> Sequence[HolderUsage]:
        return await self._transactions.read(self._read_usage)

    async def forget(self) -> None:
        await self._transactions.change(self._forget, topic="spending")

    def _draw_all(self, connection: Connection, draws: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        before = {key: _lock(connection, *key) for key in sorted({one[:2] for one in draws})}
        # Read after the rows are locked: who waited in line belongs to the window in which it was let in.
        now_ms = self._read_clock_ms(connection)
        counts = dict(before)
        drawn = []
        for one in draws:
            counts[one[:2]], given = grant_lease(counts[one[:2]], one, now_ms)
            drawn.append(given)
        for key, count in counts.items():
            if count != before[key]:  # who asks again and again for what is used up has nothing written
                connection.execute(update(SPENDING).where(_is_of(*key)).values(**count._asdict()))
        return drawn

    def _read_usage(self, connection: Connection) -> Sequence[HolderUsage]:
        now_ms = self._read_clock_ms(connection)
        rows = connection.execute(select(SPENDING).order_by(_ROW.kind, _ROW.id, _ROW.budget))
        found = [
            HolderUsage(QuotaHolder(row.kind, row.id), row.budget, row.window_ms, row.used) for row in rows
        ]
        return [one for one in found if window_at(one.budget, now_ms).begins_ms == one.window_ms]

    def _forget(self, connection: Connection) -> None:
        before_ms = self._read_clock_ms(connection) - KEEP_MS
        connection.execute(delete(SPENDING).where(_ROW.window_ms < before_ms))


def _lock(connection: Connection, holder: QuotaHolder, budget: QuotaName) -> QuotaCount:
    """The count, which is nobody else's to change until the end of the transaction."""
    query = select(_ROW.window_ms, _ROW.used).where(_is_of(holder, budget)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        # One statement that both engines know.
        connection.execute(
            text(
                "INSERT INTO spending (kind, id, budget, window_ms, used) VALUES (:kind, :id, :budget, 0, 0) "
                "ON CONFLICT DO NOTHING"
            ),
            {"kind": holder.kind, "id": holder.id, "budget": budget},
        )
        row = connection.execute(query).one()
    return QuotaCount(row.window_ms, row.used)


def _is_of(holder: QuotaHolder, budget: QuotaName) -> ColumnElement[bool]:
    return and_(_ROW.kind == holder.kind, _ROW.id == holder.id, _ROW.budget == budget)
