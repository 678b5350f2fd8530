"""A PostgreSQL database: connecting, checking and migrating it, and translating its errors.

Credentials stay in the connection parameters and never appear in a message. Every wait has a deadline: for a
connection, a lock, a statement, a dead peer. Reads use one snapshot and lock nothing.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, socket
from threading import Lock
from typing import Any, Final, TypeVar
from uuid import uuid4
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, NoResultFound

from toolgate.errors import InvalidRecord, StartRefused, StorageFailed, StorageUnavailable, ToolgateError
from toolgate.registry.database import statements
from toolgate.registry.database.tables import SCHEMA_VERSION
from toolgate.registry.database.transactions import Topic

CHANNEL: Final = "toolgate"  # every commit notifies it of what changed. The payload is a `Topic`
READERS: Final = 4  # connections are few: each replica has these, one writer and one listener
_SCHEMES: Final = ("postgresql://", "postgres://")
_PARAMETERS: Final[Mapping[str, Any]] = {
    "application_name": "toolgate",
    "connect_timeout": 5,
    # Of several hosts, use the one that accepts writes.
    "target_session_attrs": "read-write",
    # The keepalives detect within about ten seconds that a peer is gone.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# An acknowledged write is on disk, whatever the database's default. A hanging replica blocks the others for
# seconds only.
_SESSION: Final = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
SET statement_timeout = '10s';
SET lock_timeout = '5s';
SET idle_in_transaction_session_timeout = '15s';
"""
_MIGRATION: Final = "SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '2min'"
_MIGRATION_LOCK: Final = 0x746F6F6C67617465
"""The advisory lock of migrations: of replicas that start together, one migrates. It spells `toolgate`."""
_NOTICES: Final[Mapping[Topic, str]] = {
    "registry": f"SELECT pg_notify('{CHANNEL}', 'registry')",
    # Every node reports every few seconds, and can report again: no need to wait for the disk.
    "reports": (f"SELECT pg_notify('{CHANNEL}', 'reports'), set_config('synchronous_commit', 'off', true)"),
    "queue": f"SELECT pg_notify('{CHANNEL}', 'queue')",
    "runs": f"SELECT pg_notify('{CHANNEL}', 'runs')",
    # A node sends its log from what the index has: no need to wait for the disk.
    "audit": "SELECT set_config('synchronous_commit', 'off', true)",
    # The catalog can be rebuilt.
    "catalog": (f"SELECT pg_notify('{CHANNEL}', 'catalog'), set_config('synchronous_commit', 'off', true)"),
}
_FULL: Final = frozenset({"53100", "58030"})  # PostgreSQL's codes for a full disk and an input/output error
_PASSING: Final = ("starting up", "shutting down", "not yet accepting", "recovery", "too many clients")
"""Texts of temporary errors: libpq passes on the text of such an error, without a code."""
T = TypeVar("T")


class PostgresDatabase:
    """A database at `url`, connected on first use, from at most `READERS + 1` threads."""

    def __init__(self, url: str, *, topic: Topic = "registry") -> None:
        """`topic`: what a change without its own topic changes. Raises StartRefused if the URL is invalid."""
        self._topic = topic
        self._what = "audit index" if topic == "audit" else topic
        self.parameters = _parse_url(url)
        self._guard = Lock()
        self._connections: WeakSet[psycopg.Connection[Any]] = WeakSet()
        self._is_severed = False
        self._engine = create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=READERS + 1,
            max_overflow=0,
            hide_parameters=True,
            use_native_hstore=False,
        )
        self._snapshots = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._statements = self._engine.execution_options(isolation_level="AUTOCOMMIT")

    def prepare(self) -> statements.StoreHead:
        """Create or migrate the tables, and check every record. Raises StartRefused and then changes
        nothing."""
        with _refuse_start(self.where):
            with self._snapshots.connect() as connection:
                _check_server(connection, self.where)
                version = _read_schema_version(connection)
            statements.check_not_newer(version, what=self.where)
            if version < SCHEMA_VERSION:
                with self._engine.begin() as connection:
                    _ensure_tables(connection)
            with self._snapshots.connect() as connection:
                statements.read_listing(connection)
                return statements.read_head(connection)

    def read(self, work: Callable[[Connection], T], *, is_single: bool = False) -> T:
        def read_once() -> T:
            with (self._statements if is_single else self._snapshots).connect() as connection:
                return work(connection)

        with _translate_failures(f"cannot read the {self._what}"):
            return _retry_once(read_once)

    def change(self, work: Callable[[Connection], T], topic: Topic | None = None) -> T:
        """Run a writing transaction. It runs once more if its connection broke before the commit."""
        with _translate_failures(f"cannot write to the {self._what}"):
            return _retry_once(lambda: self._change(work, topic or self._topic))

    def close(self) -> None:
        """Close every idle connection. Idempotent."""
        self._engine.dispose()

    def sever(self) -> None:
        """Break all connections for good, including those on which a thread waits for a hanging database."""
        with self._guard:
            self._is_severed = True
            for connection in self._connections:
                with suppress(psycopg.Error, OSError), socket(fileno=os.dup(connection.fileno())) as line:
                    line.shutdown(SHUT_RDWR)  # the thread that uses it closes it

    def _change(self, work: Callable[[Connection], T], topic: Topic) -> T:
        with self._engine.connect() as connection:
            transaction = connection.begin()
            raw = connection.connection.driver_connection
            assert isinstance(raw, psycopg.Connection)
            with _translate_driver_errors(connection, raw):
                result = work(connection)
            with _require_known_outcome(raw), _translate_driver_errors(connection, raw):
                if (notice := _NOTICES.get(topic)) is not None:
                    # In one round trip; the commit below finds no transaction.
                    raw.execute(f"{notice}; COMMIT", prepare=False)
                transaction.commit()
            return result

    def _connect(self) -> psycopg.Connection[Any]:
        self._check_not_severed()
        connection = psycopg.connect(**self.parameters)
        try:
            with self._guard:
                self._connections.add(connection)
            self._check_not_severed()
            connection.execute(_SESSION)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_not_severed(self) -> None:
        if self._is_severed:
            raise psycopg.OperationalError("the store is being closed")

    @property
    def where(self) -> str:
        """The database's name and host, without credentials."""
        host = self.parameters.get("host") or "the local socket"
        return f"the database `{self.parameters.get('dbname', '')}` at `{host}`"


def _parse_url(url: str) -> Mapping[str, Any]:
    hint = "write it as postgresql://user:password@host:5432/name, with special characters percent-encoded"
    if not url.startswith(_SCHEMES):
        raise StartRefused("invalid database URL: it must begin with `postgresql://`", hint=hint)
    try:
        return {**_PARAMETERS, **conninfo_to_dict(url)}
    except psycopg.ProgrammingError:
        # Its message quotes the URL, password and all.
        raise StartRefused("cannot parse the database URL", hint=hint) from None


def _check_server(connection: Connection, where: str) -> None:
    fsync, encoding = connection.execute(
        text("SELECT current_setting('fsync'), current_setting('server_encoding')")
    ).one()
    if fsync != "on":
        raise StartRefused(
            f"{where} runs with `fsync = off`: acknowledged writes may be lost",
            hint="set `fsync = on` in postgresql.conf and reload it",
        )
    if encoding != "UTF8":
        raise StartRefused(
            f"{where} has the encoding {encoding}, not UTF8",
            hint="create the database with `ENCODING 'UTF8'`",
        )


def _read_schema_version(connection: Connection) -> int:
    # Not `to_regclass`: it may use what this connection cached before it waited for another replica.
    head = "SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'head' AND pg_table_is_visible(oid)"
    if connection.execute(text(head)).one_or_none() is None:
        return 0
    version = connection.execute(text("SELECT schema_version FROM head")).scalar_one()
    if not isinstance(version, int):
        raise statements.DamagedRow("the schema version is missing")
    return version


def _ensure_tables(connection: Connection) -> None:
    connection.execute(text(_MIGRATION))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
    # Read again: another replica may have been faster.
    version = _read_schema_version(connection)
    if version == 0:
        statements.create_tables(connection, epoch=uuid4().hex)
    elif version < SCHEMA_VERSION:
        statements.migrate(connection, version)


@contextmanager
def _refuse_start(where: str) -> Iterator[None]:
    try:
        yield
    except (statements.DamagedRow, NoResultFound) as exc:
        raise StartRefused(
            f"the registry in {where} is damaged: {exc}", hint="restore the database from a backup"
        ) from exc
    except DBAPIError as exc:
        if isinstance(exc.orig, psycopg.OperationalError):
            hint = "check the URL and its credentials, and that PostgreSQL runs and is reachable from here"
        else:
            hint = "give Toolgate its own database or schema, in which its user may create tables"
        raise StartRefused(f"cannot use {where}: {_cause(exc)}", hint=hint) from exc


def is_unreachable(refused: StartRefused) -> bool:
    """Whether no server responds, or one that will accept connections later. A wrong password is neither."""
    cause = refused.__cause__.orig if isinstance(refused.__cause__, DBAPIError) else None
    message = str(cause)
    is_refused_by_server = "FATAL" in message and not any(words in message for words in _PASSING)
    return isinstance(cause, psycopg.OperationalError) and not is_refused_by_server


@contextmanager
def _translate_driver_errors(connection: Connection, raw: psycopg.Connection[Any]) -> Iterator[None]:
    """Translate errors of `raw`, the driver's connection, as SQLAlchemy would."""
    try:
        yield
    except psycopg.Error as exc:
        # A connection that failed within a pipeline cannot be used again.
        is_broken = raw.closed or raw.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
        if is_broken:
            connection.invalidate(exc)
        raise DBAPIError("", {}, exc, hide_parameters=True, connection_invalidated=is_broken) from exc


@contextmanager
def _require_known_outcome(raw: psycopg.Connection[Any]) -> Iterator[None]:
    """Raise StorageUnavailable unless the commit of the block is known to be durable or undone."""
    causes: list[str] = []

    def on_notice(notice: psycopg.errors.Diagnostic) -> None:
        # PostgreSQL only warns when it stops waiting for a standby, and then reports the commit.
        if notice.severity_nonlocalized == "WARNING":
            causes.append(notice.message_primary or "a warning")

    raw.add_notice_handler(on_notice)
    failure: DBAPIError | None = None
    try:
        yield
    except DBAPIError as exc:
        if not isinstance(exc.orig, psycopg.OperationalError) and not exc.connection_invalidated:
            raise
        failure, causes = exc, [_cause(exc)]
    finally:
        raw.remove_notice_handler(on_notice)
    if causes:
        raise StorageUnavailable(
            f"the database did not confirm the commit ({'; '.join(causes)}): "
            "the change may or may not be stored",
            hint="read the record again before you repeat the change",
        ) from failure


def _retry_once(work: Callable[[], T]) -> T:
    """Run `work`, a second time if its connection was broken: the database may have restarted."""
    try:
        return work()
    except DBAPIError as exc:
        if not exc.connection_invalidated:
            raise
    return work()


@contextmanager
def _translate_failures(what: str) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, statements.DamagedRow, NoResultFound) as exc:
        kind: type[ToolgateError] = StorageUnavailable
        if not isinstance(exc, DBAPIError) or getattr(exc.orig, "sqlstate", None) in _FULL:
            kind = StorageFailed
        elif isinstance(exc.orig, psycopg.DataError):
            kind = InvalidRecord
        raise kind(f"{what}: {_cause(exc)}") from exc


def _cause(exc: DBAPIError | statements.DamagedRow | NoResultFound) -> str:
    """Return the first line of the message: others may quote rows."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    return str(cause).partition("\n")[0]
