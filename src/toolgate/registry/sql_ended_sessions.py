"""Ended sessions over the table next to the records; the same for every engine."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from sqlalchemy import Connection, delete, select, text

from toolgate.model.sessions import MAX_ENDED, EndedSession
from toolgate.registry.database.tables import ENDED_SESSIONS
from toolgate.registry.database.transactions import Transactions

_ROW: Final = ENDED_SESSIONS.c
# One statement that both engines know.
_STORE: Final = text(
    "INSERT INTO ended_sessions (nonce, until_ms, at_ms) VALUES (:nonce, :until_ms, :at_ms) "
    "ON CONFLICT DO NOTHING"
)


class SqlEndedSessions:
    """In a table; `read_clock_ms` is the clock of all who share it."""

    def __init__(self, transactions: Transactions, read_clock_ms: Callable[[Connection], int]) -> None:
        self._transactions = transactions
        self._read_clock_ms = read_clock_ms

    async def add(self, ended: Sequence[EndedSession]) -> None:
        if ended:
            await self._transactions.change(partial(self._add, ended=ended), topic="sessions")

    async def list(self, *, after_ms: int = 0) -> Sequence[EndedSession]:
        return await self._transactions.read(partial(self._list, after_ms=after_ms))

    async def forget(self) -> None:
        await self._transactions.change(self._forget, topic="sessions")

    def _add(self, connection: Connection, ended: Sequence[EndedSession]) -> None:
        at_ms = self._read_clock_ms(connection)
        connection.execute(_STORE, [one._replace(at_ms=at_ms)._asdict() for one in ended])

    def _list(self, connection: Connection, after_ms: int) -> Sequence[EndedSession]:
        now_ms = self._read_clock_ms(connection)
        query = (
            select(_ROW.nonce, _ROW.until_ms, _ROW.at_ms)
            .where(_ROW.at_ms >= after_ms, _ROW.until_ms > now_ms)
            .order_by(_ROW.at_ms.desc(), _ROW.nonce)
            .limit(MAX_ENDED)
        )
        return [EndedSession(*row) for row in reversed(connection.execute(query).all())]

    def _forget(self, connection: Connection) -> None:
        now_ms = self._read_clock_ms(connection)
        connection.execute(delete(ENDED_SESSIONS).where(_ROW.until_ms <= now_ms))
        too_old = select(_ROW.at_ms).order_by(_ROW.at_ms.desc()).offset(MAX_ENDED).limit(1).scalar_subquery()
        connection.execute(delete(ENDED_SESSIONS).where(_ROW.at_ms <= too_old))
