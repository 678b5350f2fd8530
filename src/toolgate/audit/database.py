"""How an engine runs transactions on the index. Used from threads; failures are ours, not the library's."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError

from toolgate.errors import StartRefused, StorageFailed
from toolgate.telemetry.disks import HINT, describe_full_disk

T = TypeVar("T")

READERS: Final = 2
_BUSY_S: Final = 5.0
_PRAGMAS: Final = (
    "journal_mode = WAL",
    # A crash of the machine may undo the newest transactions: their events are in the log.
    "synchronous = NORMAL",
    "wal_autocheckpoint = 4000",
    "trusted_schema = OFF",
)


class Database(Protocol):
    """Where the index is."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """`work` over one unchanging state. Waits for no writer, and no writer waits for it."""

    def change(self, work: Callable[[Connection], T]) -> T:
        """`work` and a commit, or nothing at all."""


class SqliteFile:
    """A file of its own: writing to it waits for no other store, and no other waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = create_engine(
            URL.create("sqlite", database=str(path)),
            pool_size=READERS + 1,
            max_overflow=0,
            hide_parameters=True,
            connect_args={"timeout": _BUSY_S, "isolation_level": None, "check_same_thread": False},
        )
        event.listen(self._engine, "connect", _on_connect)
        event.listen(self._engine, "begin", _on_begin)

    def prepare(self, work: Callable[[Connection], None]) -> None:
        """Make the file where it is missing, for its owner only, and do `work`. Raises StartRefused."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.change(work)
            self.change(_analyze)
        except (OSError, StorageFailed) as exc:
            if full := describe_full_disk(self._path, exc):
                raise StartRefused(full, hint=HINT) from exc
            raise StartRefused(
                f"cannot use the audit index `{self._path}`: {exc}",
                hint="move it away: it is made again from the audit log, as far as that goes back",
            ) from exc

    def read(self, work: Callable[[Connection], T]) -> T:
        with _failing("cannot read the audit index"), self._engine.connect() as connection:
            return work(connection)

    def change(self, work: Callable[[Connection], T]) -> T:
        with (
            _failing("cannot write to the audit index"),
            self._engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            return work(connection)

    def close(self) -> None:
        """Give the file back. Idempotent."""
        self._engine.dispose()


def _analyze(connection: Connection) -> None:
    """Have SQLite know which index leads to fewer rows. It looks at a sample of each."""
    connection.exec_driver_sql("PRAGMA analysis_limit = 400")
    connection.exec_driver_sql("ANALYZE")


def _on_connect(dbapi: sqlite3.Connection, _record: Any) -> None:
    for pragma in _PRAGMAS:
        dbapi.execute(f"PRAGMA {pragma}").fetchall()


def _on_begin(connection: Connection) -> None:
    # The driver's own idea of when a transaction begins is off. A writer says at once that it is one.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    # SQLite quotes damaged text in its complaint, and its driver then cannot read the complaint.
    except (DBAPIError, UnicodeDecodeError) as exc:
        cause = exc.orig if isinstance(exc, DBAPIError) else exc
        raise StorageFailed(f"{what}: {cause}") from exc
