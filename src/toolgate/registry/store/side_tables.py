"""What the store keeps next to the records: reports of nodes, pinned definitions, ended sessions, the
catalog.

The same for every engine. Bodies are MessagePack, since definitions and schemas are returned as the bytes
their server wrote, which no JSON column does. A row that cannot be read is left out and logged: nodes report
again, and the catalog is rebuilt.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select

from toolgate.catalog.definitions import MAX_SCHEMA_BYTES
from toolgate.errors import InvalidRecord
from toolgate.model.packages import CatalogRow
from toolgate.model.reports import MAX_ENDED, Definitions, EndedSession, NodeReport
from toolgate.registry.database.tables import (
    CATALOG_SOURCES,
    DEFINITIONS,
    ENDED_SESSIONS,
    PINNED_DEFINITIONS,
    RECORDS,
    REPORTS,
    TOOL_CATALOG,
    insert_new,
    upsert,
)
from toolgate.registry.database.transactions import ChangeCounter, SharedTable, Transactions

MAX_KEPT_BYTES: Final = 1024 * 1024
"""Of one pinned definition. No one reads the difference to a larger one."""

_log = logging.getLogger(__name__)

T = TypeVar("T")

_encode: Final = msgspec.msgpack.Encoder(enc_hook=dict).encode  # mappings need not be dicts
_decode_report: Final = msgspec.msgpack.Decoder(NodeReport)
_decode_definitions: Final = msgspec.msgpack.Decoder(Definitions)
_decode_row: Final = msgspec.msgpack.Decoder(CatalogRow)
_IDS_PER_QUERY: Final = 500
"""SQLite takes 32,766 parameters a statement; a few hundred cost little more than one."""
_LONG_NUMBER: Final = re.compile(rb"[0-9]{400}")
_NAMESPACE: Final = uuid5(NAMESPACE_URL, "toolgate:tool_catalog")
"""Ids come from names, so that replicas that write the same row write the same id."""


class SqlReports:
    """The newest report of each node and the newest definitions of each server, a row each."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self.count = ChangeCounter()

    async def save_report(self, report: NodeReport) -> None:
        row = {"id": report.node_id, "at_ms": report.at_ms, "body": _encode(report)}
        await self._change(partial(_store_reports, table=REPORTS, rows=[row]))

    async def save_definitions(self, *definitions: Definitions) -> None:
        rows = [{"id": one.server_id, "at_ms": one.at_ms, "body": _encode(one)} for one in definitions]
        await self._change(partial(_store_reports, table=DEFINITIONS, rows=rows))

    async def list_reports(self) -> Sequence[NodeReport]:
        work = partial(_read_bodies, table=REPORTS, decoder=_decode_report)
        return await self._transactions.read(work, is_single=True)

    async def list_definitions(self, server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
        work = partial(_read_bodies, table=DEFINITIONS, decoder=_decode_definitions, ids=server_ids)
        return await self._transactions.read(work)

    async def definition_times(self) -> Mapping[str, int]:
        return await self._transactions.read(_read_definition_times)

    async def forget(self, *, before_ms: int) -> None:
        await self._change(partial(_forget_reports, before_ms=before_ms))

    async def changed(self, seen: int) -> int:
        return await self.count.changed(seen)

    async def _change(self, work: Callable[[Connection], bool]) -> None:
        await self._transactions.change(work, then=self.count.increment_if, topic="reports")


def read_reports_mark(connection: Connection) -> Sequence[Any]:
    """A value that differs once reports were saved or dropped."""
    queries = [select(func.count(), func.sum(table.c.at_ms)) for table in (REPORTS, DEFINITIONS)]
    return [tuple(connection.execute(query).one()) for query in queries]


def _store_reports(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> bool:
    # Two replicas may get the first report of a node at once, hence an upsert.
    upsert(connection, table, rows)
    return bool(rows)


def _read_definition_times(connection: Connection) -> Mapping[str, int]:
    return {row.id: row.at_ms for row in connection.execute(select(DEFINITIONS.c.id, DEFINITIONS.c.at_ms))}


def _forget_reports(connection: Connection, *, before_ms: int) -> bool:
    servers = select(RECORDS.c.id).where(RECORDS.c.kind == "server")
    old = connection.execute(delete(REPORTS).where(REPORTS.c.at_ms < before_ms))
    orphans = connection.execute(delete(DEFINITIONS).where(DEFINITIONS.c.id.not_in(servers)))
    return bool(old.rowcount or orphans.rowcount)


def _read_bodies(
    connection: Connection,
    table: Table,
    *,
    decoder: msgspec.msgpack.Decoder[T],
    ids: Collection[str] | None = None,
) -> Sequence[T]:
    query = select(table.c.id, table.c.body)
    if ids is not None:
        query = query.where(table.c.id.in_(sorted(ids)))
    # Sorted here, not by the engine: engines differ in collation.
    return _decode_bodies(table, sorted(connection.execute(query)), decoder)


def _decode_bodies(table: Table, rows: Collection[Any], decoder: msgspec.msgpack.Decoder[T]) -> list[T]:
    """Decode rows of a name and a body."""
    found = []
    for name, body in rows:
        try:
            found.append(decoder.decode(body))
        except msgspec.MsgspecError as exc:
            _log.warning("%s: the row `%s` cannot be read, and is left out: %s", table.name, name, exc)
    return found


class PinnedDefinitions:
    """The definitions that pins name, by digest: what a changed tool is compared with.

    They have no revisions, since a digest only ever means one definition.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def save(self, definitions: Mapping[str, bytes]) -> None:
        """Save definitions. Those that are known or too large are skipped."""
        rows = [
            {"digest": digest, "definition": raw}
            for digest, raw in sorted(definitions.items())
            if len(raw) <= MAX_KEPT_BYTES
        ]
        if rows:
            await self._transactions.change(partial(insert_new, table=PINNED_DEFINITIONS, rows=rows))

    async def read(self, digests: Collection[str]) -> Mapping[str, bytes]:
        """Return those that are saved."""
        return await self._transactions.read(partial(_read_pinned, digests=sorted(digests)))

    async def digests(self) -> frozenset[str]:
        """Return the digests of all."""
        query = select(PINNED_DEFINITIONS.c.digest)
        return await self._transactions.read(
            lambda connection: frozenset(connection.execute(query).scalars())
        )

    async def forget(self, digests: Collection[str]) -> None:
        """Delete definitions."""
        if digests:
            statement = delete(PINNED_DEFINITIONS).where(PINNED_DEFINITIONS.c.digest == bindparam("gone"))
            gone = [{"gone": digest} for digest in sorted(digests)]
            await self._transactions.change(lambda connection: connection.execute(statement, gone))


def _read_pinned(connection: Connection, digests: Sequence[str]) -> Mapping[str, bytes]:
    found: dict[str, bytes] = {}
    for begin in range(0, len(digests), _IDS_PER_QUERY):
        table, part = PINNED_DEFINITIONS.c, digests[begin : begin + _IDS_PER_QUERY]
        rows = connection.execute(select(table.digest, table.definition).where(table.digest.in_(part)))
        found |= {row.digest: bytes(row.definition) for row in rows}
    return found


class SqlEndedSessions(SharedTable):
    """Sessions that their clients ended, until their ids expire."""

    def __init__(
        self,
        transactions: Transactions,
        read_clock_ms: Callable[[Connection], int],
        max_ended: int = MAX_ENDED,
    ) -> None:
        super().__init__(transactions, read_clock_ms)
        self._max_ended = max_ended

    async def add(self, ended: Sequence[EndedSession]) -> None:
        if ended:
            await self._change(_add_ended, "sessions", ended=ended)

    async def list(self, *, after_ms: int = 0) -> Sequence[EndedSession]:
        return await self._read(_list_ended, after_ms=after_ms, limit=self._max_ended)

    async def forget(self) -> None:
        await self._change(_forget_ended, "sessions", keep=self._max_ended)


def _add_ended(connection: Connection, ended: Sequence[EndedSession], now_ms: int) -> None:
    insert_new(connection, ENDED_SESSIONS, [one._replace(at_ms=now_ms)._asdict() for one in ended])


def _list_ended(connection: Connection, after_ms: int, limit: int, now_ms: int) -> Sequence[EndedSession]:
    row = ENDED_SESSIONS.c
    query = (
        select(row.nonce, row.until_ms, row.at_ms)
        .where(row.at_ms >= after_ms, row.until_ms > now_ms)
        .order_by(row.at_ms.desc(), row.nonce.desc())
        .limit(limit)
    )
    return [EndedSession(*found) for found in reversed(connection.execute(query).all())]


def _forget_ended(connection: Connection, keep: int, now_ms: int) -> None:
    row = ENDED_SESSIONS.c
    connection.execute(delete(ENDED_SESSIONS).where(row.until_ms <= now_ms))
    too_old = select(row.at_ms).order_by(row.at_ms.desc()).offset(keep).limit(1).scalar_subquery()
    connection.execute(delete(ENDED_SESSIONS).where(row.at_ms <= too_old))


class Catalog:
    """The catalog, a projection without revisions: a row for each tool, and one for each package that says
    what its rows were made from.

    A row is kept whole in `body`. The other columns are for searching by SQL; Toolgate only writes them.
    """

    def __init__(self, transactions: Transactions, clock_ms: Callable[[], int]) -> None:
        self._transactions = transactions
        self._clock_ms = clock_ms
        self.count = ChangeCounter()

    async def replace(self, package_id: str, rows: Sequence[CatalogRow], *, made_from: str) -> bool:
        """Replace the rows of a package. Returns whether that changed any.

        `made_from` identifies their sources, so that a restart can skip the package. Equal rows keep their
        time.
        """
        _check_rows(package_id, rows)
        source = {"package_id": package_id, "made_from": made_from, "at_ms": self._clock_ms()}
        return await self._change(partial(_replace_rows, source=source, rows=rows))

    async def remove(self, package_id: str) -> bool:
        """Delete a package. Returns whether there was one."""
        return await self._change(partial(_remove_rows, package_id=package_id))

    async def rows(self, package_id: str | None = None) -> Sequence[CatalogRow]:
        """Return all rows (of a package), sorted by package and tool."""
        return await self._transactions.read(partial(_read_rows, package_id=package_id))

    async def made_from(self) -> dict[str, str]:
        """Return package id → what its rows were made from."""
        return await self._transactions.read(_read_made_from)

    async def changed(self, seen: int) -> int:
        """Wait for a change by any replica; see `ChangeCounter`."""
        return await self.count.changed(seen)

    async def _change(self, work: Callable[[Connection], bool]) -> bool:
        return await self._transactions.change(work, then=self.count.increment_if, topic="catalog")


def keep_times(rows: Sequence[CatalogRow], before: Mapping[str, CatalogRow]) -> dict[str, CatalogRow]:
    """Return `rows` by tool. A row that says the same as the one `before` keeps its time."""
    kept = {}
    for row in rows:
        old = before.get(row.tool_name)
        is_same = old is not None and replace(row, updated_at_ms=old.updated_at_ms) == old
        kept[row.tool_name] = old if old is not None and is_same else row
    return kept


def read_catalog_mark(connection: Connection) -> Sequence[Any]:
    """A value that differs once the catalog was changed."""
    query = select(func.count(), func.sum(CATALOG_SOURCES.c.at_ms))
    return tuple(connection.execute(query).one())


def _check_rows(package_id: str, rows: Sequence[CatalogRow]) -> None:
    """Raises InvalidRecord if `rows` cannot be the rows of this package."""
    names = [row.tool_name for row in rows]
    if len(set(names)) < len(names) or any(row.package_id != package_id for row in rows):
        raise InvalidRecord(f"these are not the rows of the package `{package_id}`")
    if large := [row.full_name for row in rows if _schema_size(row) > MAX_SCHEMA_BYTES]:
        raise InvalidRecord(f"a schema of `{large[0]}` has more than {MAX_SCHEMA_BYTES} bytes")


def _replace_rows(connection: Connection, source: Mapping[str, Any], rows: Sequence[CatalogRow]) -> bool:
    """Replace the rows of a package. Returns whether that changed any."""
    # First: it locks the package, so that replicas that write it at once do so one after the other.
    upsert(connection, CATALOG_SOURCES, [source])
    package_id = source["package_id"]
    before = {row.tool_name: row for row in _read_rows(connection, package_id)}
    after = keep_times(rows, before)
    new = [row for name, row in after.items() if before.get(name) != row]
    stored = select(TOOL_CATALOG.c.tool_name).where(TOOL_CATALOG.c.package_id == package_id)
    # All that is not kept as it is, rows that cannot be read included.
    kept = after.keys() - {row.tool_name for row in new}
    gone = [name for name in connection.execute(stored).scalars() if name not in kept]
    if gone:
        one = (TOOL_CATALOG.c.package_id == package_id, TOOL_CATALOG.c.tool_name == bindparam("name"))
        connection.execute(delete(TOOL_CATALOG).where(*one), [{"name": name} for name in gone])
    if new:
        connection.execute(insert(TOOL_CATALOG), [_catalog_columns(row) for row in new])
    return bool(gone or new)


def _remove_rows(connection: Connection, package_id: str) -> bool:
    source = connection.execute(delete(CATALOG_SOURCES).where(CATALOG_SOURCES.c.package_id == package_id))
    rows = connection.execute(delete(TOOL_CATALOG).where(TOOL_CATALOG.c.package_id == package_id))
    return bool(source.rowcount or rows.rowcount)


def _read_rows(connection: Connection, package_id: str | None = None) -> Sequence[CatalogRow]:
    query = select(TOOL_CATALOG.c.full_name, TOOL_CATALOG.c.body)
    if package_id is not None:
        query = query.where(TOOL_CATALOG.c.package_id == package_id)
    found = _decode_bodies(TOOL_CATALOG, connection.execute(query).all(), _decode_row)
    # Sorted here, not by the engine: engines differ in collation.
    return sorted(found, key=lambda row: (row.package_id, row.tool_name))


def _read_made_from(connection: Connection) -> dict[str, str]:
    query = select(CATALOG_SOURCES.c.package_id, CATALOG_SOURCES.c.made_from)
    return {row.package_id: row.made_from for row in connection.execute(query)}


def _catalog_columns(row: CatalogRow) -> dict[str, Any]:
    return {
        "id": uuid5(_NAMESPACE, row.full_name),
        "package_id": row.package_id,
        "package_name": _replace_nul(row.package_name),
        "package_description": _replace_nul(row.package_description),
        "category": _replace_nul(row.category),
        "tags": [_replace_nul(tag) for tag in row.tags],
        "tool_name": row.tool_name,
        "full_name": row.full_name,
        "title": _replace_nul(row.title),
        "description": _replace_nul(row.description),
        "input_schema": _parse_json_column(row.input_schema),
        "output_schema": _parse_json_column(row.output_schema),
        "annotations": _parse_json_column(row.annotations),
        "is_read_only": row.is_read_only,
        "digest": row.digest,
        "tokens": row.tokens,
        "schema_version": row.schema_version,
        "source": row.source,
        "schema_bytes": _schema_size(row),
        "updated_at": datetime.fromtimestamp(row.updated_at_ms / 1000, UTC),
        "body": _encode(row),
    }


def _schema_size(row: CatalogRow) -> int:
    return max(len(row.input_schema), len(row.output_schema or b""))


def _replace_nul(text: str) -> str:
    """PostgreSQL stores no NUL in a text."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _parse_json_column(raw: bytes | None) -> Any:
    """Parse for a JSON column. None where the database, or its driver, would refuse the value."""
    # NUL again, numbers too long for any type, and JSON that only the server's own parser takes.
    if raw is None or b"\\u0000" in raw or _LONG_NUMBER.search(raw):
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None
