"""What nodes report, in SQL: one row a node and one a server, each replaced as a whole.

Bodies are MessagePack, since definitions are bytes as their server wrote them. A row that cannot be read
is left out: the node will say it again.

The definitions that pins name, in SQL: what both engines have in common.

Ended sessions over the table next to the records; the same for every engine.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Table, bindparam, delete, func, select, text

from toolgate.model.reports import MAX_ENDED, Definitions, EndedSession, NodeReport
from toolgate.registry.database.tables import (
    DEFINITIONS,
    ENDED_SESSIONS,
    PINNED_DEFINITIONS,
    RECORDS,
    REPORTS,
)
from toolgate.registry.database.transactions import Transactions

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Mappings need not be dicts.
_encode_report_body: Final = msgspec.msgpack.Encoder(enc_hook=dict).encode
_decode_report: Final = msgspec.msgpack.Decoder(NodeReport)
_decode_definitions: Final = msgspec.msgpack.Decoder(Definitions)


def store_report(connection: Connection, report: NodeReport) -> bool:
    """Replace what the node said before. Like the others below, it says whether that is news."""
    return _replace_row(
        connection,
        REPORTS,
        row={"id": report.node_id, "at_ms": report.at_ms, "body": _encode_report_body(report)},
    )


def store_definitions(connection: Connection, definitions: Sequence[Definitions]) -> bool:
    """Replace what was known of the servers."""
    for one in definitions:
        row = {"id": one.server_id, "at_ms": one.at_ms, "body": _encode_report_body(one)}
        _replace_row(connection, DEFINITIONS, row=row)
    return bool(definitions)


def read_reports(connection: Connection) -> Sequence[NodeReport]:
    """The report of each node, sorted by node."""
    return _read_bodies(connection, REPORTS, decoder=_decode_report)


def read_definitions(
    connection: Connection, server_ids: Collection[str] | None = None
) -> Sequence[Definitions]:
    """The definitions of each of these servers, sorted by server. None: of all."""
    return _read_bodies(connection, DEFINITIONS, decoder=_decode_definitions, ids=server_ids)


def read_definition_times(connection: Connection) -> Mapping[str, int]:
    """When the definitions of each server came in."""
    return {row.id: row.at_ms for row in connection.execute(select(DEFINITIONS.c.id, DEFINITIONS.c.at_ms))}


def forget_reports(connection: Connection, *, before_ms: int) -> bool:
    """Drop old reports, and definitions of servers without a record."""
    servers = select(RECORDS.c.id).where(RECORDS.c.kind == "server")
    old = connection.execute(delete(REPORTS).where(REPORTS.c.at_ms < before_ms))
    orphans = connection.execute(delete(DEFINITIONS).where(DEFINITIONS.c.id.not_in(servers)))
    return bool(old.rowcount or orphans.rowcount)


def read_reports_mark(connection: Connection) -> Sequence[Any]:
    """Something that differs once reports were saved or dropped."""
    queries = [select(func.count(), func.sum(table.c.at_ms)) for table in (REPORTS, DEFINITIONS)]
    return [tuple(connection.execute(query).one()) for query in queries]


def _replace_row(connection: Connection, table: Table, *, row: dict[str, Any]) -> bool:
    # One statement that both engines know: two replicas may hear of a new node at once.
    connection.execute(
        text(
            f"INSERT INTO {table.name} (id, at_ms, body) VALUES (:id, :at_ms, :body) "  # noqa: S608
            "ON CONFLICT (id) DO UPDATE SET at_ms = excluded.at_ms, body = excluded.body"
        ),
        row,
    )
    return True


def _read_bodies(
    connection: Connection,
    table: Table,
    *,
    decoder: msgspec.msgpack.Decoder[T],
    ids: Collection[str] | None = None,
) -> Sequence[T]:
    found = []
    query = select(table.c.id, table.c.body)
    if ids is not None:
        query = query.where(table.c.id.in_(sorted(ids)))
    # Sorted here, not by the engine: engines differ in collation.
    for row in sorted(connection.execute(query)):
        try:
            found.append(decoder.decode(row.body))
        except msgspec.MsgspecError as exc:
            _log.warning("%s of `%s` cannot be read, and are left out: %s", table.name, row.id, exc)
    return found


_READ_AT_ONCE: Final = 500


def store_pinned(connection: Connection, definitions: Mapping[str, bytes]) -> None:
    """Keep these."""
    # One statement that both engines know: two replicas may keep the same at once.
    connection.execute(
        text(
            f"INSERT INTO {PINNED_DEFINITIONS.name} (digest, definition) VALUES (:digest, :definition) "  # noqa: S608
            "ON CONFLICT (digest) DO NOTHING"
        ),
        [{"digest": digest, "definition": raw} for digest, raw in sorted(definitions.items())],
    )


def read_pinned(connection: Connection, digests: Collection[str]) -> Mapping[str, bytes]:
    """Those that are kept."""
    wanted = sorted(digests)
    found: dict[str, bytes] = {}
    for begin in range(0, len(wanted), _READ_AT_ONCE):
        table, part = PINNED_DEFINITIONS.c, wanted[begin : begin + _READ_AT_ONCE]
        rows = connection.execute(select(table.digest, table.definition).where(table.digest.in_(part)))
        found |= {row.digest: bytes(row.definition) for row in rows}
    return found


def read_pinned_digests(connection: Connection) -> frozenset[str]:
    """Of all that are kept."""
    return frozenset(connection.execute(select(PINNED_DEFINITIONS.c.digest)).scalars())


def forget_pinned(connection: Connection, digests: Collection[str]) -> None:
    """Keep these no longer."""
    one = PINNED_DEFINITIONS.c.digest == bindparam("gone")
    connection.execute(
        delete(PINNED_DEFINITIONS).where(one), [{"gone": digest} for digest in sorted(digests)]
    )


_ROW: Final = ENDED_SESSIONS.c
# One statement that both engines know.
_STORE_SESSION: Final = text(
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
        connection.execute(_STORE_SESSION, [one._replace(at_ms=at_ms)._asdict() for one in ended])

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
