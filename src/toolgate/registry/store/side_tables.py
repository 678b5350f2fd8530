"""What nodes report, in SQL: one row a node and one a server, each replaced as a whole.

Bodies are MessagePack, since definitions are bytes as their server wrote them. A row that cannot be read
is left out: the node will say it again.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Table, delete, func, select, text

from toolgate.model.reports import Definitions, NodeReport
from toolgate.registry.database.tables import DEFINITIONS, RECORDS, REPORTS

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Mappings need not be dicts.
_encode: Final = msgspec.msgpack.Encoder(enc_hook=dict).encode
_decode_report: Final = msgspec.msgpack.Decoder(NodeReport)
_decode_definitions: Final = msgspec.msgpack.Decoder(Definitions)


def store_report(connection: Connection, report: NodeReport) -> bool:
    """Replace what the node said before. Like the others below, it says whether that is news."""
    return _replace(
        connection, REPORTS, row={"id": report.node_id, "at_ms": report.at_ms, "body": _encode(report)}
    )


def store_definitions(connection: Connection, definitions: Sequence[Definitions]) -> bool:
    """Replace what was known of the servers."""
    for one in definitions:
        row = {"id": one.server_id, "at_ms": one.at_ms, "body": _encode(one)}
        _replace(connection, DEFINITIONS, row=row)
    return bool(definitions)


def read_reports(connection: Connection) -> Sequence[NodeReport]:
    """The report of each node, sorted by node."""
    return _read(connection, REPORTS, decoder=_decode_report)


def read_definitions(
    connection: Connection, server_ids: Collection[str] | None = None
) -> Sequence[Definitions]:
    """The definitions of each of these servers, sorted by server. None: of all."""
    return _read(connection, DEFINITIONS, decoder=_decode_definitions, ids=server_ids)


def read_definition_times(connection: Connection) -> Mapping[str, int]:
    """When the definitions of each server came in."""
    return {row.id: row.at_ms for row in connection.execute(select(DEFINITIONS.c.id, DEFINITIONS.c.at_ms))}


def forget_reports(connection: Connection, *, before_ms: int) -> bool:
    """Drop old reports, and definitions of servers without a record."""
    servers = select(RECORDS.c.id).where(RECORDS.c.kind == "server")
    old = connection.execute(delete(REPORTS).where(REPORTS.c.at_ms < before_ms))
    orphans = connection.execute(delete(DEFINITIONS).where(DEFINITIONS.c.id.not_in(servers)))
    return bool(old.rowcount or orphans.rowcount)


def read_mark(connection: Connection) -> Sequence[Any]:
    """Something that differs once reports were saved or dropped."""
    queries = [select(func.count(), func.sum(table.c.at_ms)) for table in (REPORTS, DEFINITIONS)]
    return [tuple(connection.execute(query).one()) for query in queries]


def _replace(connection: Connection, table: Table, *, row: dict[str, Any]) -> bool:
    # One statement that both engines know: two replicas may hear of a new node at once.
    connection.execute(
        text(
            f"INSERT INTO {table.name} (id, at_ms, body) VALUES (:id, :at_ms, :body) "  # noqa: S608
            "ON CONFLICT (id) DO UPDATE SET at_ms = excluded.at_ms, body = excluded.body"
        ),
        row,
    )
    return True


def _read(
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
