"""The audit of a process: written down, and where the process governs, to be looked up."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from importlib import import_module
from threading import Timer
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from toolgate.app.background import in_background
from toolgate.app.parts import wall_ms
from toolgate.audit.following import NOTHING, followed
from toolgate.audit.index import AuditIndex, open_sqlite_index
from toolgate.audit.journal import Journal
from toolgate.audit.lines import Batch, parse_line
from toolgate.audit.tables import prepare_tables
from toolgate.audit.tail import Read
from toolgate.audit.tokens import DAY_MS
from toolgate.errors import StartRefused, ToolgateError
from toolgate.registry.locks import lock_beside
from toolgate.settings import Settings
from toolgate.telemetry import Metrics

AUDIT_FILE: Final = "audit.jsonl"
INDEX_FILE: Final = "audit.db"
PRUNE_EVERY_S: Final = 60.0
PRUNE_PAUSE_S: Final = 0.05
"""Between steps: whoever writes has its turn."""
CLOSE_S: Final = 3.0

T = TypeVar("T")
_log: Final = logging.getLogger(__name__)


@contextmanager
def open_journal(settings: Settings) -> Iterator[Journal]:
    """The audit log of one process, in a directory that is its own. Raises StartRefused."""
    path, kept = settings.data_dir / AUDIT_FILE, settings.audit
    with ExitStack() as stack:
        # Two processes that number the records of one log would each undo the other's order.
        stack.callback(os.close, lock_beside(path))
        try:
            journal = Journal(path, rotate_bytes=kept.file_mb * 1024**2, keep=kept.files)
        except OSError as exc:
            raise StartRefused(
                f"cannot use the audit log `{path}`: {exc.strerror}",
                hint="make room for it, mend it, or move it away",
            ) from exc
        stack.callback(journal.close)
        yield journal


def describe_journal(metrics: Metrics, journal: Journal) -> None:
    """The gauges of a process that writes down what happens: all of them."""
    log = journal.log
    metrics.gauge(
        "toolgate_audit_events_total", "Lines of the audit log, by the newest.", lambda: log.last_sequence
    )
    metrics.gauge(
        "toolgate_audit_failing", "1 while the audit log cannot be written.", lambda: float(log.is_failing)
    )
    metrics.gauge(
        "toolgate_audit_lag",
        "Lines of the audit log that who follows has still to take.",
        journal.lag,
        labels=("follower",),
    )


@asynccontextmanager
async def open_index(settings: Settings, journal: Journal) -> AsyncIterator[AuditIndex]:
    """What happened, to be looked up: all that this process writes down, and what nodes hand over."""

    async def deliver(read: Read) -> int:
        batch = await asyncio.to_thread(_parse, read)
        return await index.add(batch, node="", log=journal.name)

    async with _open_tables(settings) as index:
        with suppress(ToolgateError):  # who follows asks again
            # Before anything is recorded: where the file has lost its end, no number is to mean two events.
            journal.log.resume_after(await deliver(NOTHING))
        async with (
            followed(journal, deliver, who="the audit index"),
            in_background(_prune(index, settings.audit.days * DAY_MS, settings.audit.rows)),
        ):
            yield index


def _parse(read: Read) -> Batch:
    return Batch(read.after, read.upto, [line for raw in read.lines if (line := parse_line(raw)) is not None])


def _open_tables(settings: Settings) -> AbstractAsyncContextManager[AuditIndex]:
    if settings.database is None:
        return open_sqlite_index(settings.data_dir / INDEX_FILE)
    return open_postgres_index(settings.database)


@asynccontextmanager
async def open_postgres_index(url: str) -> AsyncIterator[AuditIndex]:
    """Tables beside those of the registry, over connections of their own."""
    # Only where it is used: the driver takes as long to load as we do.
    database = import_module("toolgate.registry.postgresql_database").PostgresDatabase(
        url, what="audit index"
    )
    impatience = Timer(CLOSE_S, database.sever)
    try:
        await asyncio.to_thread(database.change, prepare_tables, "audit")
        async with AuditIndex(_Beside(database)) as index:
            try:
                yield index
            finally:
                impatience.start()  # a database that hangs is left
    finally:
        impatience.cancel()
        database.close()


class _Beside:
    """Transactions in the registry's database that the registry is not told of."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def read(self, work: Callable[[Connection], T]) -> T:
        found: T = self._database.read(work)
        return found

    def change(self, work: Callable[[Connection], T]) -> T:
        found: T = self._database.change(work, "audit")
        return found


async def _prune(index: AuditIndex, age_ms: int, keep: int) -> None:
    """Drop what is too old or too much, in small steps."""
    while True:
        is_more = False
        try:
            is_more = await index.prune(before_ms=wall_ms() - age_ms, keep=keep)
        except ToolgateError as exc:
            _log.debug("the audit index was not pruned: %s", exc)
        await asyncio.sleep(PRUNE_PAUSE_S if is_more else PRUNE_EVERY_S)
