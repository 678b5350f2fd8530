"""The SQLite file of a registry: created whole or not at all, used by one process, checked before use.

Never changes a file that a newer program wrote or that is damaged: the start fails instead. A file of an
older program is migrated in one transaction, after a backup next to it.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from toolgate.disk import lock_file, sync_directory
from toolgate.errors import StartRefused, StorageFailed
from toolgate.registry.database import statements
from toolgate.registry.database.tables import SCHEMA_VERSION
from toolgate.registry.database.transactions import Topic
from toolgate.telemetry.logs import FULL_DISK_HINT, describe_full_disk

_BEGIN: Final = "BEGIN IMMEDIATE"
_BUSY_S: Final = 0.5  # how long to wait for another program that locks the file before the start fails
_RESTORE: Final = "restore the file from a backup, or move it away to start with an empty registry"
_PASSING: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY})
"""A later transaction may succeed: the disk is full, or another program has the write lock."""
_PRAGMAS: Final = (
    # Other programs can read while Toolgate writes. The lock file keeps out another Toolgate.
    "journal_mode = WAL",
    # A commit returns after its fsync.
    "synchronous = FULL",
    "cell_size_check = ON",
    "trusted_schema = OFF",
)
T = TypeVar("T")


class SqliteDatabase:
    """Runs transactions on its open file, only on the thread that opened it."""

    def __init__(self, path: Path) -> None:
        """Raises StartRefused if the file is in use, damaged, or cannot be opened."""
        self._lock = lock_file(path)
        self._is_closed = False
        self._broken_by: str | None = None
        try:
            with _refuse_start(path):
                _check_leftovers(path)
                if not path.exists():
                    _create(path)
                version = _read_schema_version(path)
                statements.check_not_newer(version, what=f"`{path}`")
                path.chmod(0o600)
                if version < SCHEMA_VERSION:
                    _back_up(path)
                self._engine = _create_engine(path)
                self._connection, self.head = _connect(self._engine, version)
        except BaseException:
            os.close(self._lock)
            raise

    def read(self, work: Callable[[Connection], T], *, is_single: bool = False) -> T:  # noqa: ARG002 (a file)
        try:
            return self._run(work)
        except (DBAPIError, statements.DamagedRow) as exc:
            raise StorageFailed(f"cannot read the registry: {_cause(exc)}") from exc

    def change(self, work: Callable[[Connection], T], topic: Topic) -> T:  # noqa: ARG002 (no other process listens)
        """Run a writing transaction. After an I/O error all others fail until a restart: a failed fsync may
        have dropped the very pages that a second one would report as written."""
        if self._broken_by is not None:
            raise StorageFailed(f"the registry is read-only after an error: {self._broken_by}")
        try:
            return self._run(work)
        except (DBAPIError, statements.DamagedRow) as exc:
            cause = exc.orig if isinstance(exc, DBAPIError) else None
            if not isinstance(cause, sqlite3.Error) or cause.sqlite_errorcode not in _PASSING:
                self._broken_by = _cause(exc)
            raise StorageFailed(f"cannot write to the registry: {_cause(exc)}") from exc

    def close(self) -> None:
        """Release the file. Idempotent. SQLite moves its log into the file as it closes."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._connection.close()
            self._engine.dispose()
        finally:
            os.close(self._lock)

    def _run(self, work: Callable[[Connection], T]) -> T:
        """Run a transaction. Afterwards, take the write lock again; see `_hold_write_lock`."""
        try:
            with self._connection.begin():
                return work(self._connection)
        finally:
            _hold_write_lock(self._connection)


def _cause(exc: DBAPIError | statements.DamagedRow) -> str:
    return str(exc.orig if isinstance(exc, DBAPIError) else exc)


def _check_leftovers(path: Path) -> None:
    """Reject a log without its file: SQLite would replay it into a new one."""
    if _wal(path).exists() and not path.exists():
        raise StartRefused(f"`{_wal(path)}` belongs to a registry file that is missing", hint=_RESTORE)
    if path.exists() and path.stat().st_size == 0:
        raise StartRefused(f"`{path}` is empty", hint=_RESTORE)


def _wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _create(path: Path) -> None:
    with _write_draft(path, path) as draft:
        engine = _create_engine(draft, pragmas=("synchronous = FULL",))
        with engine.begin() as connection:
            statements.create_tables(connection, epoch=uuid4().hex)
        engine.dispose()


@contextmanager
def _write_draft(path: Path, target: Path) -> Iterator[Path]:
    """Yield an empty file next to `path`, for its owner only, then move it to `target` as a whole."""
    draft = path.with_name(path.name + ".new")
    for leftover in (draft, draft.with_name(draft.name + "-journal"), _wal(draft)):
        leftover.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    yield draft
    draft.replace(target)
    sync_directory(target.parent)


def _read_schema_version(path: Path) -> int:
    """Read the version through a read-only connection."""
    # Without a log there is nothing to share, so SQLite need not even create its index file.
    mode = "mode=ro" if _wal(path).exists() else "mode=ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?{mode}"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as peek:
        (version,) = peek.execute("SELECT schema_version FROM head").fetchone() or (None,)
    if not isinstance(version, int):
        raise statements.DamagedRow("the schema version is missing")
    return version


def _back_up(path: Path) -> None:
    """Copy the file as the older program left it, so that a downgrade can use it."""
    with _write_draft(path, path.with_name(f"{path.name}.before-{SCHEMA_VERSION}")) as draft:
        with closing(sqlite3.connect(path, timeout=_BUSY_S)) as old, closing(sqlite3.connect(draft)) as copy:
            old.backup(copy)
        with draft.open("rb") as written:
            os.fsync(written.fileno())


def _connect(engine: Engine, version: int) -> tuple[Connection, statements.StoreHead]:
    """Connect, migrate the tables if needed, and check every record."""
    connection = engine.connect()
    try:
        with connection.begin():
            if version < SCHEMA_VERSION:
                statements.migrate(connection, version)
            head = _verify(connection)
        _hold_write_lock(connection)
    except BaseException:
        with suppress(DBAPIError, sqlite3.Error):
            connection.close()
        raise
    return connection, head


def _verify(connection: Connection) -> statements.StoreHead:
    """Check every page and every record. Damage in the log shows when the log is read."""
    problem = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
    if problem != "ok":
        raise statements.DamagedRow(str(problem))
    statements.read_listing(connection)
    return statements.read_head(connection)


def _hold_write_lock(connection: Connection) -> None:
    """Hold the write lock between transactions: other programs may read the file but must not write to it.

    If a program takes the lock between a commit and this call, which is rare, the next transaction waits.
    """
    dbapi = connection.connection.driver_connection
    assert dbapi is not None  # it is open
    with suppress(sqlite3.Error):
        if not dbapi.in_transaction:
            dbapi.execute(_BEGIN)


@contextmanager
def _refuse_start(path: Path) -> Iterator[None]:
    try:
        yield
    except statements.DamagedRow as exc:
        raise StartRefused(f"`{path}` is damaged: {exc}", hint=_RESTORE) from exc
    # SQLite quotes damaged text in its error, and its driver then fails to decode the error.
    except (OSError, DBAPIError, sqlite3.Error, UnicodeDecodeError) as exc:
        cause = exc.orig if isinstance(exc, DBAPIError) else exc
        if full := describe_full_disk(path, cause):  # then the file is not damaged and must stay
            raise StartRefused(full, hint=FULL_DISK_HINT) from cause
        if isinstance(exc, OSError):
            raise StartRefused(f"cannot open `{path}`: {exc.strerror}") from exc
        raise StartRefused(
            f"`{path}` is not a registry, is damaged, or is locked by another program: {cause}", hint=_RESTORE
        ) from exc


def _create_engine(path: Path, pragmas: tuple[str, ...] = _PRAGMAS) -> Engine:
    # The driver begins no transactions by itself: `on_begin` does, so that they include DDL.
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        hide_parameters=True,
        connect_args={"timeout": _BUSY_S, "isolation_level": None},
    )

    def on_connect(dbapi: sqlite3.Connection, _record: object) -> None:
        for pragma in pragmas:
            dbapi.execute(f"PRAGMA {pragma}").fetchall()

    def on_begin(connection: Connection) -> None:
        dbapi = connection.connection.driver_connection
        if dbapi is None or not dbapi.in_transaction:  # otherwise the lock is held and nothing was written
            connection.exec_driver_sql(_BEGIN)

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine
