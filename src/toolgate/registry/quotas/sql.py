"""Quotas in SQL, the same for every engine.

A lease locks its rows, always in the same order. Concurrent leases queue there, and each sees what the one
before it wrote.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from toolgate.model.principals import (
    HolderUsage,
    LeaseGrant,
    LeaseRequest,
    QuotaCount,
    QuotaHolder,
    QuotaName,
)
from toolgate.policy.admission import grant_lease, window_at
from toolgate.registry.database.tables import SPENDING, insert_new
from toolgate.registry.database.transactions import SharedTable

_ROW: Final = SPENDING.c


class QuotaLedger(SharedTable):
    """All counts, as every control plane replica on one database sees them. A `QuotaSource`."""

    async def draw(self, requests: Sequence[LeaseRequest], /) -> Sequence[LeaseGrant]:
        return await self._transactions.change(partial(self._grant_all, requests=requests), topic="spending")

    async def usage(self) -> Sequence[HolderUsage]:
        """Return what is used in the current windows, sorted by holder and quota."""
        return await self._read(_read_usage)

    async def forget(self) -> None:
        """Delete the counts of windows that ended long ago."""
        await self._change(_forget, "spending")

    def _grant_all(self, connection: Connection, requests: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        before = {key: _lock(connection, *key) for key in sorted({one[:2] for one in requests})}
        # Read after the rows are locked: a request that queued belongs to the window in which it got the
        # lock.
        now_ms = self._read_clock_ms(connection)
        counts = dict(before)
        grants = []
        for one in requests:
            counts[one[:2]], grant = grant_lease(counts[one[:2]], one, now_ms)
            grants.append(grant)
        for key, count in counts.items():
            if count != before[key]:  # a repeated request for an exhausted quota writes nothing
                connection.execute(update(SPENDING).where(_is_of(*key)).values(**count._asdict()))
        return grants


def _read_usage(connection: Connection, now_ms: int) -> Sequence[HolderUsage]:
    rows = connection.execute(select(SPENDING).order_by(_ROW.kind, _ROW.id, _ROW.budget))
    found = [HolderUsage(QuotaHolder(row.kind, row.id), row.budget, row.window_ms, row.used) for row in rows]
    return [one for one in found if window_at(one.budget, now_ms).begins_ms == one.window_ms]


def _forget(connection: Connection, now_ms: int) -> None:
    connection.execute(delete(SPENDING).where(_ROW.window_ms < now_ms - KEEP_MS))


def _lock(connection: Connection, holder: QuotaHolder, quota: QuotaName) -> QuotaCount:
    """Return the count, locked until the end of the transaction."""
    query = select(_ROW.window_ms, _ROW.used).where(_is_of(holder, quota)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        first = {"kind": holder.kind, "id": holder.id, "budget": quota, "window_ms": 0, "used": 0}
        insert_new(connection, SPENDING, [first])
        row = connection.execute(query).one()
    return QuotaCount(row.window_ms, row.used)


def _is_of(holder: QuotaHolder, quota: QuotaName) -> ColumnElement[bool]:
    return and_(_ROW.kind == holder.kind, _ROW.id == holder.id, _ROW.budget == quota)


KEEP_MS: Final = 2 * 24 * 3600 * 1000
"""How long the count of a past window is kept. The longest window is a day, and clocks of nodes may differ by
hours."""
