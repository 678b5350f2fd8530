"""Which engine a registry is in: a PostgreSQL URL, or else the path of a SQLite file.

What PostgreSQL needs is loaded only for those who use it: its driver takes as long to load as we do.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

from toolgate.lazy_modules import load_lazily
from toolgate.registry.database.sqlite import RegistryFile
from toolgate.registry.database.transactions import TransactionRunner
from toolgate.registry.store.contract import Store
from toolgate.registry.store.sqlite import SqliteDatabase, open_sqlite_store


def is_postgres_url(target: str | Path) -> bool:
    """Whether `target` is a database to connect to, not a file."""
    return isinstance(target, str) and target.startswith(("postgresql:", "postgres:"))


def open_store(
    target: str | Path, clock_ms: Callable[[], int], *, waits: bool = False
) -> AbstractAsyncContextManager[Store]:
    """The store at `target`, made if it is missing. Raises StartRefused.

    `waits`: for a database that cannot be reached, until it can.
    """
    if is_postgres_url(target):
        open_postgres_store: Callable[..., AbstractAsyncContextManager[Store]]
        open_postgres_store = load_lazily("toolgate.registry.store.postgresql").open_postgres_store
        return open_postgres_store(target, clock_ms, waits=waits)
    return open_sqlite_store(Path(target), clock_ms)


@contextmanager
def open_database(target: str | Path) -> Iterator[TransactionRunner]:
    """The tables at `target` without the event loop, made if they are missing. Raises StartRefused."""
    if is_postgres_url(target):
        database = load_lazily("toolgate.registry.database.postgresql").PostgresDatabase(target)
        database.prepare()
        try:
            yield database
        finally:
            database.close()
    else:
        file = RegistryFile(Path(target))
        try:
            yield SqliteDatabase(file)
        finally:
            file.close()
