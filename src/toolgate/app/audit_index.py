"""Opens the index of the audit log, in `up` and on a control plane."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Timer
from typing import Final

from toolgate.app.components import run_in_background, wall_clock_ms
from toolgate.audit.index.index import AuditIndex, open_sqlite_index
from toolgate.audit.index.statements import DAY_MS
from toolgate.audit.index.tables import prepare_tables
from toolgate.audit.log.files import LogChunk, parse_lines
from toolgate.audit.log.journal import EMPTY_CHUNK, Journal, follow_log
from toolgate.errors import ToolgateError
from toolgate.lazy_modules import load_lazily
from toolgate.settings import Settings

INDEX_FILE: Final = "audit.db"
PRUNE_EVERY_S: Final = 60.0  # a choice: events stay for days, so a minute does not matter
PRUNE_PAUSE_S: Final = 0.05
"""The pause between steps, in which other writers run."""
CLOSE_S: Final = 3.0  # as for the store: `StoreLimits.close_s`

_log: Final = logging.getLogger(__name__)


@asynccontextmanager
async def open_index(settings: Settings, journal: Journal) -> AsyncIterator[AuditIndex]:
    """The index of all events: of this process, and of the nodes that forward theirs."""

    async def deliver(read: LogChunk) -> int:
        batch = await asyncio.to_thread(parse_lines, read.lines, after=read.after, upto=read.upto)
        return await index.add(batch, node="", log=journal.name)

    if settings.database is None:
        opening = open_sqlite_index(settings.data_dir / INDEX_FILE)
    else:
        opening = open_postgres_index(settings.database)
    async with opening as index:
        with suppress(ToolgateError):  # the follower retries
            # Before the first record: if the log lost its end, no number may be used for two events.
            journal.log.resume_after(await deliver(EMPTY_CHUNK))
        async with (
            follow_log(journal, deliver, who="the audit index"),
            run_in_background(_keep_pruning(index, settings.audit.days * DAY_MS, settings.audit.rows)),
        ):
            yield index


@asynccontextmanager
async def open_postgres_index(url: str) -> AsyncIterator[AuditIndex]:
    """The index in the registry's database, over separate connections."""
    database = load_lazily("toolgate.registry.database.postgresql").PostgresDatabase(url, topic="audit")
    impatience = Timer(CLOSE_S, database.sever)
    try:
        await asyncio.to_thread(database.change, prepare_tables)
        async with AuditIndex(database) as index:
            try:
                yield index
            finally:
                impatience.start()  # a database that hangs is abandoned
    finally:
        impatience.cancel()
        database.close()


async def _keep_pruning(index: AuditIndex, age_ms: int, keep: int) -> None:
    while True:
        is_more = False
        try:
            is_more = await index.prune(before_ms=wall_clock_ms() - age_ms, keep=keep)
        except ToolgateError as exc:
            _log.debug("cannot prune the audit index; retrying: %s", exc)
        await asyncio.sleep(PRUNE_PAUSE_S if is_more else PRUNE_EVERY_S)
