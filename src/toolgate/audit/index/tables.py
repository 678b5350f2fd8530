"""The tables of the audit index, the same on every engine, and the values that queries accept and return.

Rows contain the columns that queries filter; event bodies are in a separate table. All of it came from logs.
This module never opens a connection or commits: `index` does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, ColumnElement, Connection, Index, String, Table, Text, select, text

from toolgate.audit.events import AuditEvent
from toolgate.errors import ApprovalRequired, StartRefused

EventType = Literal[
    "call", "admin", "credential", "definition", "invocation", "approval", "spawn", "scope", "session"
]
"""The event types that lists show."""
MAX_KEY_CHARS: Final = 400
"""The limit of a text in a filter column: longer texts are truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Matches events that equal all of `equals`, from `since_ms` (inclusive) to `until_ms` (exclusive)."""

    equals: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Column to value. An empty value matches rows without a value."""
    since_ms: int | None = None
    until_ms: int | None = None


class EventPosition(NamedTuple):
    """The position of an event among all: by time, then by arrival."""

    at_ms: int
    position: int


class IndexedEvent(NamedTuple):
    """An event in the index."""

    position: int
    """The order of arrival. It only rises."""
    node: str
    log: str
    """The log it came from: one for each process and data directory."""
    seq: int
    event: AuditEvent

    @property
    def event_id(self) -> str:
        return f"{self.log}-{self.seq}"

    @property
    def type(self) -> EventType:
        return cast("EventType", self.event.__struct_config__.tag)

    @property
    def place(self) -> EventPosition:
        return EventPosition(self.event.at_ms, self.position)


def parse_event_id(text: str) -> tuple[str, int] | None:
    """Parse an event id into log and number; None if it cannot be valid."""
    log, _, seq = text.partition("-")
    is_one = len(log) == LOG_CHARS and log.isalnum() and seq.isascii() and seq.isdigit() and len(seq) <= 15
    return (log, int(seq)) if is_one else None


LOG_CHARS: Final = 24  # of the name of a log: 96 bits of a digest (`name_log`)


class TokenSums(msgspec.Struct, frozen=True):
    """Estimated tokens of tool lists and results."""

    lists: int
    """Tool lists sent to clients and models."""
    definition_tokens: int
    """Tokens of the definitions in these lists."""
    full_tokens: int
    """Tokens these lists would have had with the definitions of all registered tools."""
    calls: int
    """Calls with a result."""
    result_tokens: int


METADATA: Final = sa.MetaData()
_POSITION: Final = BigInteger().with_variant(sa.Integer, "sqlite")
KEYS: Final = ("outcome", "door", "principal", "task_id", "server_id", "tool", "code", "request_id")
"""Columns that have the event field of the same name."""
SUMS: Final = TokenSums.__struct_fields__  # columns, and the event fields of the same name

# One row. Every writing transaction first locks it, which serialises writers on any engine: positions rise in
# the order of commits, so a reader that continues from one misses nothing.
HEAD: Final = Table(
    "audit_head",
    METADATA,
    Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    Column("schema_version", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
)
LOGS: Final = Table(
    "audit_logs",
    METADATA,
    Column("log", String(LOG_CHARS), primary_key=True),
    Column("node", Text, nullable=False),
    Column("taken", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False, server_default="0"),
)
# Narrow: counting reads every row of a time span, and needs nothing else.
EVENTS: Final = Table(
    "audit_events",
    METADATA,
    Column("position", _POSITION, primary_key=True, autoincrement=False),
    Column("node", Text, nullable=False),
    Column("log", String(LOG_CHARS), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    *(Column(name, Text) for name in (*KEYS, "session", "layer", "rule")),
    Column("speed", sa.SmallInteger),
    Column("profile", Text),
    Index("audit_events_named", "log", "seq", unique=True),
    Index("audit_events_by_time", "at_ms", "position"),
)
BODIES: Final = Table(
    "audit_bodies",
    METADATA,
    Column("position", _POSITION, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
TOKENS: Final = Table(
    "audit_tokens",
    METADATA,
    Column("day", sa.Integer, primary_key=True, autoincrement=False),
    Column("task_id", Text, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in SUMS),
)
_WHERE: Final = "where"


def _index(name: str) -> Index:
    """Rows with this column, by time. An index costs 2 µs an event: add one only if a scan is too slow."""
    return _partial_index(name, EVENTS.c[name].is_not(None))


def _partial_index(name: str, where: ColumnElement[bool]) -> Index:
    """Rows for which `where` is true. Both engines support it; see `_narrow_indexes`."""
    columns = (EVENTS.c[name], EVENTS.c.at_ms, EVENTS.c.position)
    return Index(f"audit_events_by_{name}", *columns, info={_WHERE: where})


for _name in ("principal", "server_id", "code", "session", "request_id"):
    _index(_name)
_BY_TASK: Final = _index("task_id")
_BY_TOOL: Final = _index("tool")
WENT_WRONG: Final = EVENTS.c.outcome != sa.literal_column("'ok'")
"""True for few rows, so searching them is quick. A query must contain exactly this condition to use the
index."""
_BY_OUTCOME: Final = _partial_index("outcome", WENT_WRONG)
_IS_DENIED: Final = EVENTS.c.outcome == "denied"
_IS_PENDING: Final = EVENTS.c.code.is_not_distinct_from(ApprovalRequired.code)
OUTCOME_GROUPS: Final[Mapping[str, ColumnElement[bool]]] = MappingProxyType(
    {
        "admitted": EVENTS.c.outcome != "denied",
        "failed": EVENTS.c.outcome.in_(["error", "tool_error"]),
        "pending": _IS_DENIED & _IS_PENDING,
        "rejected": _IS_DENIED & ~_IS_PENDING,
    }
)
"""Groups of calls that filters and counts name like an outcome. `pending`: denied until someone approves."""


def _narrow_indexes(engine: str) -> None:
    """Make the indexes of `engine` partial. Naming an engine loads it, so only the one in use is named."""
    for index in EVENTS.indexes:
        if _WHERE in index.info:
            index.dialect_options[engine]["where"] = index.info[_WHERE]


def _add_token_counts(connection: Connection) -> None:
    """Version 2: token counts, logs that can be forgotten, and events by task, tool and outcome."""
    TOKENS.create(connection)
    connection.execute(text("ALTER TABLE audit_logs ADD COLUMN seen_ms BIGINT NOT NULL DEFAULT 0"))
    newest_ms = select(sa.func.coalesce(sa.func.max(EVENTS.c.at_ms), 0)).scalar_subquery()
    connection.execute(sa.update(LOGS).values(seen_ms=newest_ms))
    for index in (_BY_TASK, _BY_TOOL, _BY_OUTCOME):
        index.create(connection)


def _add_profile_column(connection: Connection) -> None:
    """Version 3: calls by the version of a profile."""
    connection.execute(text("ALTER TABLE audit_events ADD COLUMN profile TEXT"))


STEPS: Final[Mapping[int, Callable[[Connection], None]]] = {2: _add_token_counts, 3: _add_profile_column}
"""Schema version to the migration from the one before."""
_SCHEMA_LOCK: Final = 0x746F6F6C61756469
"""An advisory lock: of replicas that start together, one creates or migrates the tables."""


def prepare_tables(connection: Connection, steps: Mapping[int, Callable[[Connection], None]] = STEPS) -> None:
    """Create or migrate the tables. Raises StartRefused if they are newer."""
    if connection.dialect.name == "postgresql":
        # Indexing ten million events takes longer than a query may, and so does waiting for it.
        connection.execute(text("SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
    newest = max(steps)
    _narrow_indexes(connection.dialect.name)
    if not sa.inspect(connection).has_table(HEAD.name):
        METADATA.create_all(connection, checkfirst=False)
        connection.execute(sa.insert(HEAD), {"id": 1, "schema_version": newest, "position": 0})
        return
    version = connection.execute(select(HEAD.c.schema_version)).scalar_one()
    if version > newest:
        raise StartRefused(
            f"a newer Toolgate wrote the audit index (schema {version}, this version knows {newest})",
            hint="start the newer version again; nothing was changed",
        )
    for step in range(version + 1, newest + 1):
        steps[step](connection)
    connection.execute(sa.update(HEAD).values(schema_version=newest))
