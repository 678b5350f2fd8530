"""The audit index: events of logs in a database, each once, and queries over them.

The log is authoritative and the index follows it. So results may be seconds old, and a lost index is rebuilt
from the log. No call ever waits for it. Queries run in threads.
"""

import asyncio
import hashlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.exc import DBAPIError

from toolgate.audit.index import statements
from toolgate.audit.index.activity import read_activity, read_versions
from toolgate.audit.index.tables import LOG_CHARS, prepare_tables
from toolgate.audit.log.files import LineBatch
from toolgate.errors import StartRefused, StorageFailed, StorageUnavailable
from toolgate.telemetry.logs import FULL_DISK_HINT, describe_full_disk

T = TypeVar("T")
P = ParamSpec("P")
READERS: Final = 2  # one may count calls for long (`AuditIndex.counting`): the other serves pages
_BUSY_S: Final = 5.0  # the default of Python's `sqlite3`
_PRAGMAS: Final = (
    "journal_mode = WAL",
    # A crash of the machine may undo the newest transactions: their events are in the log.
    "synchronous = NORMAL",
    "wal_autocheckpoint = 4000",
    "trusted_schema = OFF",
)


class IndexDatabase(Protocol):
    """Runs transactions on the index."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one snapshot. It waits for no writer, and no writer waits for it."""

    def change(self, work: Callable[[Connection], T]) -> T:
        """Run `work` and commit, or change nothing."""


class IndexFile:
    """A SQLite file that no other store waits for."""

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

    def prepare(self) -> None:
        """Create the file and its tables if missing, for its owner only. Raises StartRefused."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self.change(prepare_tables)
            self.change(_analyze)
        except (OSError, StorageFailed) as exc:
            if full := describe_full_disk(self._path, exc):
                raise StartRefused(full, hint=FULL_DISK_HINT) from exc
            raise StartRefused(
                f"cannot use the audit index `{self._path}`: {exc}",
                hint="move it away: the gateway rebuilds it from the kept audit log",
            ) from exc

    def read(self, work: Callable[[Connection], T]) -> T:
        with _translate_errors("cannot read the audit index"), self._engine.connect() as connection:
            return work(connection)

    def change(self, work: Callable[[Connection], T]) -> T:
        with (
            _translate_errors("cannot write to the audit index"),
            self._engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            return work(connection)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._engine.dispose()


def _analyze(connection: Connection) -> None:
    """Let SQLite estimate which index selects fewer rows, from a sample of each."""
    connection.exec_driver_sql("PRAGMA analysis_limit = 400")
    connection.exec_driver_sql("ANALYZE")


def _on_connect(dbapi: sqlite3.Connection, _record: Any) -> None:
    for pragma in _PRAGMAS:
        dbapi.execute(f"PRAGMA {pragma}").fetchall()


def _on_begin(connection: Connection) -> None:
    # The driver begins no transactions (`isolation_level`). A writer takes the lock at once.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    try:
        yield
    # SQLite quotes damaged text in its message, and its driver then cannot decode the message.
    except (DBAPIError, UnicodeDecodeError) as exc:
        cause = exc.orig if isinstance(exc, DBAPIError) else exc
        raise StorageFailed(f"{what}: {cause}") from exc


QUERY_TIMEOUT_S: Final = 20.0  # for a query. Its thread runs to its end
PRUNE_STEP: Final = 1_000  # events deleted in one transaction: other writers run in between


def name_log(node: str, log: str) -> str:
    """The name of a log in the index. It includes the node, so that no node can write into another node's
    log."""
    return hashlib.sha256(f"{node}\n{log}".encode()).hexdigest()[:LOG_CHARS]


@asynccontextmanager
async def open_sqlite_index(path: Path) -> AsyncIterator["AuditIndex"]:
    """The index in a SQLite file, created if it is missing. Raises StartRefused."""
    file = IndexFile(path)
    try:
        await asyncio.to_thread(file.prepare)
        async with AuditIndex(file) as index:
            yield index
    finally:
        file.close()


def _query(
    read: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate["AuditIndex", P], Awaitable[T]]:
    """Turn `read` into a method of the index that runs in one of its threads."""

    @wraps(read)
    async def run(index: "AuditIndex", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await index.read(lambda connection: read(connection, *args, **kwargs))

    return run


class AuditIndex:
    """Inserts events and runs queries in threads. Use it with `async with`."""

    def __init__(self, database: IndexDatabase) -> None:
        """`database` has its tables, by `prepare_tables`."""
        self._database = database
        self._reader = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="audit-read")
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit-write")
        self.news = asyncio.Event()
        """Set when this process inserts the next events, and then replaced by a new event."""
        self.counting = asyncio.Lock()
        """Held while calls are counted, which occupies a reader for long."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await asyncio.shield(asyncio.to_thread(self._shut_down))

    def _shut_down(self) -> None:
        self._writer.shutdown(cancel_futures=True)
        self._reader.shutdown(cancel_futures=True)

    async def add(self, batch: LineBatch, *, node: str, log: str) -> int:
        """Insert a piece of a log. Returns the number up to which the index has the log.

        Known events are skipped, so a client may retry. A piece that would leave a gap is not inserted:
        continue after the returned number.
        """
        name = name_log(node, log)
        if not batch.upto:
            return await self.read(partial(statements.read_taken, log=name))
        now_ms = int(time.time() * 1e3)
        work = partial(statements.insert_batch, node=node, log=name, batch=batch, now_ms=now_ms)
        taken = await self._change(work)
        self.news.set()
        self.news = asyncio.Event()
        return taken

    newest = _query(statements.read_newest)
    page = _query(statements.read_page)
    following = _query(statements.read_after)
    find = _query(statements.read_one)
    around = _query(statements.read_around)
    activity = _query(read_activity)
    versions = _query(read_versions)
    tokens = _query(statements.read_tokens)
    uses = _query(statements.read_uses)
    last_use = _query(statements.read_last_use)
    extent = _query(statements.read_extent)

    async def prune(self, *, before_ms: int, keep: int) -> bool:
        """Delete some events that are too old or too many. Returns whether there may be more."""
        work = partial(statements.prune, before_ms=before_ms, keep=keep, step=PRUNE_STEP)
        return await self._change(work) == PRUNE_STEP

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._reader, partial(self._database.read, work))

    async def _change(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._writer, partial(self._database.change, work))

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(threads, work)
        except TimeoutError as exc:
            raise StorageUnavailable("the audit index did not respond in time") from exc
