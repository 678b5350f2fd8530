"""What can be asked of the index: which events, from where on, and how one is named.

The tables of the index, the same on every engine: what events are looked up by, apart from what they say.

Everything in them came from logs. Nothing here opens or commits: see `index`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, cast

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    literal_column,
    select,
    text,
    update,
)

from toolgate.audit.events import AuditEvent
from toolgate.errors import StartRefused

EventType = Literal[
    "call", "admin", "credential", "definition", "invocation", "approval", "spawn", "scope", "session"
]
"""The tags of the events that are listed."""
MAX_KEY_CHARS: Final = 400
"""Of a text that events are looked up by. Longer ones are looked up by their beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events: those that have all of `equals`, from `since_ms` on, and before `until_ms`."""

    equals: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Column to value. An empty value means: those that have none."""
    since_ms: int | None = None
    until_ms: int | None = None


class EventPosition(NamedTuple):
    """Where an event stands among all: by time, and of one moment by arrival."""

    at_ms: int
    position: int


class IndexedEvent(NamedTuple):
    """An event as the index has it."""

    position: int
    """In the order of arrival. It only rises."""
    node: str
    log: str
    """Which log it is of: one a process and data directory."""
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
    """Log and sequence; None where no event has such an id."""
    log, _, seq = text.partition("-")
    is_one = len(log) == LOG_CHARS and log.isalnum() and seq.isascii() and seq.isdigit() and len(seq) <= 15
    return (log, int(seq)) if is_one else None


LOG_CHARS: Final = 24
"""Of the name of a log."""


SCHEMA_VERSION: Final = 3
METADATA: Final = MetaData()

# One row. It is read for update first in every transaction that writes, which puts writers in a line on any
# engine: positions rise in the order of commits, so whoever reads on from one misses nothing.
HEAD: Final = Table(
    "audit_head",
    METADATA,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
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
# Narrow: counting looks at every row of a time, and needs nothing else.
EVENTS: Final = Table(
    "audit_events",
    METADATA,
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("node", Text, nullable=False),
    Column("log", String(LOG_CHARS), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("outcome", Text),
    Column("door", Text),
    Column("principal", Text),
    Column("task_id", Text),
    Column("server_id", Text),
    Column("tool", Text),
    Column("code", Text),
    Column("request_id", Text),
    Column("session", Text),
    Column("layer", Text),
    Column("rule", Text),
    Column("speed", SmallInteger),
    Column("profile", Text),
    Index("audit_events_named", "log", "seq", unique=True),
    Index("audit_events_by_time", "at_ms", "position"),
)
BODIES: Final = Table(
    "audit_bodies",
    METADATA,
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
TOKENS: Final = Table(
    "audit_tokens",
    METADATA,
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("task_id", Text, primary_key=True),
    Column("lists", BigInteger, nullable=False),
    Column("definition_tokens", BigInteger, nullable=False),
    Column("full_tokens", BigInteger, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("result_tokens", BigInteger, nullable=False),
)
KEYS: Final = ("outcome", "door", "principal", "task_id", "server_id", "tool", "code", "request_id")
"""Columns in a row, each a text of events by the same name."""
_WHERE: Final = "where"


def _index(name: str) -> Index:
    """Rows that have it, by time. Each costs two microseconds an event: only where a scan takes too long."""
    return _partial_index(name, EVENTS.c[name].is_not(None))


def _partial_index(name: str, where: ColumnElement[bool]) -> Index:
    """Rows of which `where` is true. Both engines can do it; see `_narrow_indexes`."""
    columns = (EVENTS.c[name], EVENTS.c.at_ms, EVENTS.c.position)
    return Index(f"audit_events_by_{name}", *columns, info={_WHERE: where})


for _name in ("principal", "server_id", "code", "session", "request_id"):
    _index(_name)
_BY_TASK: Final = _index("task_id")
_BY_TOOL: Final = _index("tool")
WENT_WRONG: Final = EVENTS.c.outcome != literal_column("'ok'")
"""Of few rows, so that those who look for one are quick. A query has to say it, too, in these very words."""
_BY_OUTCOME: Final = _partial_index("outcome", WENT_WRONG)


def _narrow_indexes(engine: str) -> None:
    """Tell `engine` which rows its indexes are of. To name an engine is to load it: only the one in use."""
    for index in EVENTS.indexes:
        if _WHERE in index.info:
            index.dialect_options[engine]["where"] = index.info[_WHERE]


def _add_token_counts(connection: Connection) -> None:
    """Tokens are counted, logs can be forgotten, and events are found by task, tool and outcome, too."""
    TOKENS.create(connection)
    connection.execute(text("ALTER TABLE audit_logs ADD COLUMN seen_ms BIGINT NOT NULL DEFAULT 0"))
    connection.execute(
        update(LOGS).values(seen_ms=select(func.coalesce(func.max(EVENTS.c.at_ms), 0)).scalar_subquery())
    )
    for index in (_BY_TASK, _BY_TOOL, _BY_OUTCOME):
        index.create(connection)


def _add_profile_column(connection: Connection) -> None:
    """Calls are compared by the versions of profiles that decided."""
    connection.execute(text("ALTER TABLE audit_events ADD COLUMN profile TEXT"))


STEPS: Final[Mapping[int, Callable[[Connection], None]]] = {2: _add_token_counts, 3: _add_profile_column}
"""Schema version to what makes it of the one before."""
_SCHEMA_LOCK: Final = 0x746F6F6C61756469
"""Held while tables are made or changed, so that replicas that start together do it once."""


def prepare_tables(connection: Connection) -> None:
    """Make the tables, or bring older ones up to date. Raises StartRefused where they are newer."""
    if connection.dialect.name == "postgresql":
        # To index ten million events takes longer than any question may, and so does waiting for who does it.
        connection.execute(text("SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '10min'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _SCHEMA_LOCK})
    _narrow_indexes(connection.dialect.name)
    if not inspect(connection).has_table(HEAD.name):
        METADATA.create_all(connection, checkfirst=False)
        connection.execute(insert(HEAD), {"id": 1, "schema_version": SCHEMA_VERSION, "position": 0})
        return
    version = connection.execute(select(HEAD.c.schema_version)).scalar_one()
    if version > SCHEMA_VERSION:
        raise StartRefused(
            f"the audit index is of a newer Toolgate (schema {version}, this one knows {SCHEMA_VERSION})",
            hint="start the newer version again; nothing was touched",
        )
    for step in range(version + 1, SCHEMA_VERSION + 1):
        STEPS[step](connection)
    connection.execute(update(HEAD).values(schema_version=SCHEMA_VERSION))
