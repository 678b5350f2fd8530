"""What the store keeps next to the records: reports of nodes, pinned definitions, ended sessions, quotas, the
catalog.

The same for every engine. Bodies are MessagePack, because definitions and schemas are returned as the bytes
that their server wrote, which no JSON column preserves. An unreadable row is omitted and logged: nodes report
again, and the catalog is rebuilt.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec.msgpack import Decoder, Encoder
from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, delete, func, insert, select, update

from toolgate.catalog.definitions import MAX_SCHEMA_BYTES
from toolgate.errors import InvalidRecord
from toolgate.model.packages import CatalogRow
from toolgate.model.principals import HolderUsage, LeaseGrant, LeaseRequest, QuotaCount, QuotaHolder
from toolgate.model.reports import MAX_ENDED, Definitions, EndedSession, NodeReport
from toolgate.policy.admission import grant_lease, window_at
from toolgate.registry.database.tables import (
    CATALOG_SOURCES,
    DEFINITIONS,
    ENDED_SESSIONS,
    PINNED_DEFINITIONS,
    RECORDS,
    REPORTS,
    SPENDING,
    TOOL_CATALOG,
    insert_new,
    upsert,
)
from toolgate.registry.database.transactions import ChangeCounter, SharedTable, Topic, transaction

MAX_KEPT_BYTES: Final = 1024 * 1024  # of one pinned definition. No one reads a diff of a larger one
_log = logging.getLogger(__name__)
T = TypeVar("T")
_encode: Final = Encoder(enc_hook=dict).encode  # mappings need not be dicts
_decode_report: Final = Decoder(NodeReport)
_decode_definitions: Final = Decoder(Definitions)
_decode_row: Final = Decoder(CatalogRow)
_IDS_PER_QUERY: Final = 500  # SQLite takes 32,766 parameters a statement; 500 cost little more than one
_LONG_NUMBER: Final = re.compile(rb"[0-9]{400}")
_NAMESPACE: Final = uuid5(NAMESPACE_URL, "toolgate:tool_catalog")
"""Ids are derived from names, so that replicas that write the same row write the same id."""


@dataclass(eq=False)
class CountedTable(SharedTable):
    """A table that wakes waiting tasks when it changes."""

    topic: ClassVar[Topic]
    tables: ClassVar[Sequence[Table]]
    """The tables with a time of each change."""

    count: ChangeCounter = field(default_factory=ChangeCounter, init=False)

    def on_change(self, topic: Topic, result: object) -> None:  # noqa: ARG002 (it has one topic)
        if result:
            self.count.increment()

    async def changed(self, seen: int) -> int:
        """Wait until the count of changes, by any replica, exceeds `seen`. Returns the new count. Counts
        start at 0. One change may count twice, none is missed."""
        return await self.count.changed(seen)

    @transaction()
    def read_mark(self, connection: Connection) -> Sequence[Any]:
        """Return a value that differs after each change."""
        queries = [select(func.count(), func.sum(table.c.at_ms)) for table in self.tables]
        return [tuple(connection.execute(query).one()) for query in queries]


class Reports(CountedTable):
    """The newest report of each node and the newest definitions of each server, a row each."""

    topic = "reports"
    tables = (REPORTS, DEFINITIONS)

    @transaction("reports")
    def save_report(self, connection: Connection, report: NodeReport) -> bool:
        """Replace the report of `report.node_id`."""
        # Two replicas may get the first report of a node at once, hence an upsert.
        upsert(connection, REPORTS, [{"id": report.node_id, "at_ms": report.at_ms, "body": _encode(report)}])
        return True

    @transaction("reports")
    def save_definitions(self, connection: Connection, *definitions: Definitions) -> bool:
        """Replace the definitions of these servers, in one transaction."""
        rows = [{"id": one.server_id, "at_ms": one.at_ms, "body": _encode(one)} for one in definitions]
        upsert(connection, DEFINITIONS, rows)
        return bool(rows)

    @transaction(is_single=True)
    def list_reports(self, connection: Connection) -> Sequence[NodeReport]:
        """Return the newest report of each node, sorted by node id."""
        return _read_bodies(connection, REPORTS, _decode_report)

    @transaction()
    def list_definitions(
        self, connection: Connection, server_ids: Collection[str] | None = None
    ) -> Sequence[Definitions]:
        """Return the newest definitions of these servers (None: of all), sorted by server id."""
        return _read_bodies(connection, DEFINITIONS, _decode_definitions, server_ids)

    @transaction()
    def definition_times(self, connection: Connection) -> Mapping[str, int]:
        """Return server id → `at_ms` of its newest definitions: cheap, however large they are."""
        rows = connection.execute(select(DEFINITIONS.c.id, DEFINITIONS.c.at_ms))
        return {row.id: row.at_ms for row in rows}

    @transaction("reports")
    def forget(self, connection: Connection, *, before_ms: int) -> bool:
        """Delete reports received before `before_ms`, and definitions of servers without a record."""
        servers = select(RECORDS.c.id).where(RECORDS.c.kind == "server")
        old = connection.execute(delete(REPORTS).where(REPORTS.c.at_ms < before_ms))
        orphans = connection.execute(delete(DEFINITIONS).where(DEFINITIONS.c.id.not_in(servers)))
        return bool(old.rowcount or orphans.rowcount)


def _read_bodies(
    connection: Connection, table: Table, decoder: Decoder[T], ids: Collection[str] | None = None
) -> Sequence[T]:
    query = select(table.c.id, table.c.body)
    if ids is not None:
        query = query.where(table.c.id.in_(sorted(ids)))
    # Sorted here, not by the engine: engines differ in collation.
    return _decode_bodies(table, sorted(connection.execute(query)), decoder)


def _decode_bodies(table: Table, rows: Collection[Any], decoder: Decoder[T]) -> list[T]:
    found = []
    for name, body in rows:
        try:
            found.append(decoder.decode(body))
        except msgspec.MsgspecError as exc:
            _log.warning("%s: unreadable row `%s` is omitted: %s", table.name, name, exc)
    return found


class PinnedDefinitions(SharedTable):
    """The definitions that pins name, by digest, to compare changed tools with.

    They have no revisions, because a digest identifies one definition forever.
    """

    async def save(self, definitions: Mapping[str, bytes]) -> None:
        """Save definitions. Known and too large ones are skipped."""
        small = {digest: raw for digest, raw in sorted(definitions.items()) if len(raw) <= MAX_KEPT_BYTES}
        if small:
            await self._insert([{"digest": digest, "definition": raw} for digest, raw in small.items()])

    @transaction()
    def read(self, connection: Connection, digests: Collection[str]) -> Mapping[str, bytes]:
        """Return the saved definitions."""
        found: dict[str, bytes] = {}
        ordered, table = sorted(digests), PINNED_DEFINITIONS.c
        for begin in range(0, len(ordered), _IDS_PER_QUERY):
            part = ordered[begin : begin + _IDS_PER_QUERY]
            rows = connection.execute(select(table.digest, table.definition).where(table.digest.in_(part)))
            found |= {digest: bytes(definition) for digest, definition in rows}
        return found

    @transaction()
    def digests(self, connection: Connection) -> frozenset[str]:
        return frozenset(connection.execute(select(PINNED_DEFINITIONS.c.digest)).scalars())

    async def forget(self, digests: Collection[str]) -> None:
        if digests:
            await self._delete([{"gone": digest} for digest in sorted(digests)])

    @transaction("registry")
    def _insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        insert_new(connection, PINNED_DEFINITIONS, rows)

    @transaction("registry")
    def _delete(self, connection: Connection, gone: Sequence[Mapping[str, str]]) -> None:
        statement = delete(PINNED_DEFINITIONS).where(PINNED_DEFINITIONS.c.digest == bindparam("gone"))
        connection.execute(statement, gone)


@dataclass(eq=False)
class EndedSessions(SharedTable):
    """Sessions that their clients ended, until their ids expire: every node ends them, too."""

    max_ended: int = MAX_ENDED

    async def exchange(self, ended: Sequence[EndedSession], after_ms: int) -> Sequence[EndedSession]:
        """Add sessions, and return those of all nodes, as `list` does."""
        if ended:
            await self.add(ended)
        return await self.list(after_ms=after_ms)

    @transaction("sessions")
    def add(self, connection: Connection, ended: Sequence[EndedSession]) -> None:
        """Add at least one session. Known ones stay as they are."""
        now_ms = self.read_clock_ms(connection)
        insert_new(connection, ENDED_SESSIONS, [one._replace(at_ms=now_ms)._asdict() for one in ended])

    @transaction()
    def list(self, connection: Connection, *, after_ms: int = 0) -> Sequence[EndedSession]:
        """Return sessions added since `after_ms` whose ids have not expired, oldest first."""
        row = ENDED_SESSIONS.c
        is_valid = row.until_ms > self.read_clock_ms(connection)
        query = select(row.nonce, row.until_ms, row.at_ms).where(row.at_ms >= after_ms, is_valid)
        newest_first = query.order_by(row.at_ms.desc(), row.nonce.desc()).limit(self.max_ended)
        return [EndedSession(*found) for found in reversed(connection.execute(newest_first).all())]

    @transaction("sessions")
    def forget(self, connection: Connection) -> None:
        """Delete expired sessions, and the oldest if there are too many."""
        row = ENDED_SESSIONS.c
        now_ms = self.read_clock_ms(connection)
        connection.execute(delete(ENDED_SESSIONS).where(row.until_ms <= now_ms))
        newest_first = select(row.at_ms).order_by(row.at_ms.desc())
        too_old = newest_first.offset(self.max_ended).limit(1).scalar_subquery()
        connection.execute(delete(ENDED_SESSIONS).where(row.at_ms <= too_old))


class Catalog(CountedTable):
    """The catalog, a projection without revisions: a row for each tool, and one for each package with the
    sources of its rows.

    A row is stored whole in `body`. The other columns are for SQL searches; Toolgate only writes them.
    """

    topic = "catalog"
    tables = (CATALOG_SOURCES,)

    @transaction("catalog")
    def replace(
        self, connection: Connection, package_id: str, rows: Sequence[CatalogRow], *, made_from: str
    ) -> bool:
        """Replace the rows of a package. Returns whether that changed any row. `made_from` identifies their
        sources, so that a restart can skip the package. Equal rows keep their time."""
        _check_rows(package_id, rows)
        at_ms = self.read_clock_ms(connection)
        # First: this locks the package, so that replicas that write it at once do so one after the other.
        source = {"package_id": package_id, "made_from": made_from, "at_ms": at_ms}
        upsert(connection, CATALOG_SOURCES, [source])
        before = {row.tool_name: row for row in _read_rows(connection, package_id)}
        after = keep_times(rows, before)
        new = [row for name, row in after.items() if before.get(name) != row]
        stored = select(TOOL_CATALOG.c.tool_name).where(TOOL_CATALOG.c.package_id == package_id)
        # Everything that is not kept, including unreadable rows.
        kept = after.keys() - {row.tool_name for row in new}
        gone = [name for name in connection.execute(stored).scalars() if name not in kept]
        if gone:
            one = (TOOL_CATALOG.c.package_id == package_id, TOOL_CATALOG.c.tool_name == bindparam("name"))
            connection.execute(delete(TOOL_CATALOG).where(*one), [{"name": name} for name in gone])
        if new:
            connection.execute(insert(TOOL_CATALOG), [_catalog_columns(row) for row in new])
        return bool(gone or new)

    @transaction("catalog")
    def remove(self, connection: Connection, package_id: str) -> bool:
        """Delete a package. Returns whether it existed."""
        tables = (CATALOG_SOURCES, TOOL_CATALOG)
        gone = [connection.execute(delete(table).where(table.c.package_id == package_id)) for table in tables]
        return any(one.rowcount for one in gone)

    @transaction()
    def rows(self, connection: Connection, package_id: str | None = None) -> Sequence[CatalogRow]:
        """Return all rows (of a package), sorted by package and tool."""
        return _read_rows(connection, package_id)

    @transaction()
    def made_from(self, connection: Connection) -> dict[str, str]:
        """Return package id → the sources of its rows."""
        query = select(CATALOG_SOURCES.c.package_id, CATALOG_SOURCES.c.made_from)
        return {row.package_id: row.made_from for row in connection.execute(query)}


def keep_times(rows: Sequence[CatalogRow], before: Mapping[str, CatalogRow]) -> dict[str, CatalogRow]:
    """Return `rows` by tool. A row with the same content as the one `before` keeps its time."""
    kept = {}
    for row in rows:
        old = before.get(row.tool_name)
        is_same = old is not None and replace(row, updated_at_ms=old.updated_at_ms) == old
        kept[row.tool_name] = old if old is not None and is_same else row
    return kept


def _check_rows(package_id: str, rows: Sequence[CatalogRow]) -> None:
    """Raises InvalidRecord if `rows` cannot be the rows of this package."""
    names = [row.tool_name for row in rows]
    if len(set(names)) < len(names) or any(row.package_id != package_id for row in rows):
        raise InvalidRecord(f"these are not the rows of the package `{package_id}`")
    if large := [row.full_name for row in rows if _schema_size(row) > MAX_SCHEMA_BYTES]:
        raise InvalidRecord(f"a schema of `{large[0]}` is larger than {MAX_SCHEMA_BYTES} bytes")


def _read_rows(connection: Connection, package_id: str | None = None) -> Sequence[CatalogRow]:
    query = select(TOOL_CATALOG.c.full_name, TOOL_CATALOG.c.body)
    if package_id is not None:
        query = query.where(TOOL_CATALOG.c.package_id == package_id)
    found = _decode_bodies(TOOL_CATALOG, connection.execute(query).all(), _decode_row)
    # Sorted here, not by the engine: engines differ in collation.
    return sorted(found, key=lambda row: (row.package_id, row.tool_name))


def _catalog_columns(row: CatalogRow) -> dict[str, Any]:
    texts = ("package_name", "package_description", "category", "title", "description")
    parsed = ("input_schema", "output_schema", "annotations")
    return {
        **{column.name: getattr(row, column.name, None) for column in TOOL_CATALOG.columns},
        **{name: _replace_nul(getattr(row, name)) for name in texts},
        **{name: _parse_json_column(getattr(row, name)) for name in parsed},
        "id": uuid5(_NAMESPACE, row.full_name),
        "tags": [_replace_nul(tag) for tag in row.tags],
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


KEEP_COUNTS_MS: Final = 2 * 24 * 3600 * 1000  # twice the longest window: clocks of nodes may differ by hours
_COUNT: Final = SPENDING.c


class QuotaLedger(SharedTable):
    """The usage of keys and tasks, leased to nodes in small grants, by the rules of `policy.admission`. A
    `QuotaSource`.

    A lease locks its rows, always in the same order: concurrent leases queue, and each sees what the previous
    one wrote. Never grants more than the limit, across all nodes.
    """

    @transaction("spending")
    def draw(self, connection: Connection, requests: Sequence[LeaseRequest], /) -> Sequence[LeaseGrant]:
        before = {key: _lock_count(connection, *key) for key in sorted({one[:2] for one in requests})}
        # Read after the rows are locked: a request that queued belongs to the window of its lock.
        now_ms = self.read_clock_ms(connection)
        counts = dict(before)
        grants = []
        for one in requests:
            counts[one[:2]], grant = grant_lease(counts[one[:2]], one, now_ms)
            grants.append(grant)
        for key, count in counts.items():
            if count != before[key]:  # a repeated request for an exceeded quota writes nothing
                connection.execute(update(SPENDING).where(_is_count_of(*key)).values(**count._asdict()))
        return grants

    @transaction()
    def usage(self, connection: Connection) -> Sequence[HolderUsage]:
        """Return the usage in the current windows, sorted by holder and quota."""
        now_ms = self.read_clock_ms(connection)
        rows = connection.execute(select(SPENDING).order_by(_COUNT.kind, _COUNT.id, _COUNT.budget))
        found = [HolderUsage(QuotaHolder(kind, holder_id), *used) for kind, holder_id, *used in rows]
        return [one for one in found if window_at(one.budget, now_ms).begins_ms == one.window_ms]

    @transaction("spending")
    def forget(self, connection: Connection) -> None:
        """Delete the counts of windows that ended long ago."""
        oldest_ms = self.read_clock_ms(connection) - KEEP_COUNTS_MS
        connection.execute(delete(SPENDING).where(_COUNT.window_ms < oldest_ms))


def _lock_count(connection: Connection, holder: QuotaHolder, quota: str) -> QuotaCount:
    """Return the count, locked until the end of the transaction."""
    query = select(_COUNT.window_ms, _COUNT.used).where(_is_count_of(holder, quota)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        first = {"kind": holder.kind, "id": holder.id, "budget": quota, "window_ms": 0, "used": 0}
        insert_new(connection, SPENDING, [first])
        row = connection.execute(query).one()
    return QuotaCount(row.window_ms, row.used)


def _is_count_of(holder: QuotaHolder, quota: str) -> ColumnElement[bool]:
    return and_(_COUNT.kind == holder.kind, _COUNT.id == holder.id, _COUNT.budget == quota)
