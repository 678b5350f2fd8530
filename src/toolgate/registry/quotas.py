"""Quotas: the usage of keys and tasks, leased to nodes in small grants. The same for every engine.

Nodes use it as a `QuotaSource` (`store`). The rules of a grant are pure and in `policy.admission`. A lease
locks its rows, always in the same order: concurrent leases queue, and each sees what the previous one wrote.
Never grants more than the limit, across all nodes.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from toolgate.model.principals import HolderUsage, LeaseGrant, LeaseRequest, QuotaCount, QuotaHolder
from toolgate.policy.admission import grant_lease, window_at
from toolgate.registry.database.tables import SPENDING, insert_new
from toolgate.registry.database.transactions import SharedTable, transaction

KEEP_MS: Final = 2 * 24 * 3600 * 1000  # twice the longest window: clocks of nodes may differ by hours

_ROW: Final = SPENDING.c


class QuotaLedger(SharedTable):
    """All counts, shared by every control plane replica on one database. A `QuotaSource`."""

    @transaction("spending")
    def draw(self, connection: Connection, requests: Sequence[LeaseRequest], /) -> Sequence[LeaseGrant]:
        before = {key: _lock(connection, *key) for key in sorted({one[:2] for one in requests})}
        # Read after the rows are locked: a request that queued belongs to the window of its lock.
        now_ms = self.read_clock_ms(connection)
        counts = dict(before)
        grants = []
        for one in requests:
            counts[one[:2]], grant = grant_lease(counts[one[:2]], one, now_ms)
            grants.append(grant)
        for key, count in counts.items():
            if count != before[key]:  # a repeated request for an exceeded quota writes nothing
                connection.execute(update(SPENDING).where(_is_of(*key)).values(**count._asdict()))
        return grants

    @transaction()
    def usage(self, connection: Connection) -> Sequence[HolderUsage]:
        """Return the usage in the current windows, sorted by holder and quota."""
        now_ms = self.read_clock_ms(connection)
        rows = connection.execute(select(SPENDING).order_by(_ROW.kind, _ROW.id, _ROW.budget))
        found = [HolderUsage(QuotaHolder(kind, holder_id), *used) for kind, holder_id, *used in rows]
        return [one for one in found if window_at(one.budget, now_ms).begins_ms == one.window_ms]

    @transaction("spending")
    def forget(self, connection: Connection) -> None:
        """Delete the counts of windows that ended long ago."""
        oldest_ms = self.read_clock_ms(connection) - KEEP_MS
        connection.execute(delete(SPENDING).where(_ROW.window_ms < oldest_ms))


def _lock(connection: Connection, holder: QuotaHolder, quota: str) -> QuotaCount:
    """Return the count, locked until the end of the transaction."""
    query = select(_ROW.window_ms, _ROW.used).where(_is_of(holder, quota)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        first = {"kind": holder.kind, "id": holder.id, "budget": quota, "window_ms": 0, "used": 0}
        insert_new(connection, SPENDING, [first])
        row = connection.execute(query).one()
    return QuotaCount(row.window_ms, row.used)


def _is_of(holder: QuotaHolder, quota: str) -> ColumnElement[bool]:
    return and_(_ROW.kind == holder.kind, _ROW.id == holder.id, _ROW.budget == quota)
