"""Every store there is, opened for a test; and the clock they share."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.postgres import shared_server
from tests.registry.memory_store import MemoryStore
from toolgate.model.revisions import ChangeBatch, Kind, RecordWrite
from toolgate.registry.store import DEFAULT_STORE_LIMITS, StoreLimits
from toolgate.registry.store.engines import open_sqlite_store
from toolgate.registry.store.postgresql import open_postgres_store
from toolgate.registry.store.sql_store import Store

DEADLINE_S: Final = 240
"""No wait in a test is longer: past it something hangs."""

OpenStore = Callable[..., AbstractAsyncContextManager[Store]]
"""Takes a directory, a clock and, if a test needs smaller ones, limits."""


class Clock:
    """A wall clock that moves when told to, also backwards."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


@asynccontextmanager
async def open_memory(
    _directory: Path, clock: Clock, limits: StoreLimits = DEFAULT_STORE_LIMITS
) -> AsyncIterator[Store]:
    store = MemoryStore(clock, limits=limits)
    yield store
    await store.aclose()


@asynccontextmanager
async def open_sqlite(
    directory: Path, clock: Clock, limits: StoreLimits = DEFAULT_STORE_LIMITS
) -> AsyncIterator[Store]:
    async with open_sqlite_store(directory / "registry.db", clock, limits) as store:
        yield store


@asynccontextmanager
async def open_postgres(
    directory: Path, clock: Clock, limits: StoreLimits = DEFAULT_STORE_LIMITS, **options: Any
) -> AsyncIterator[Store]:
    async with open_postgres_store(schema_url(directory), clock, limits=limits, **options) as store:
        yield store


@cache
def schema_url(directory: Path) -> str:
    """A schema of its own for each directory; a database each would take long to make."""
    return shared_server().create_schema()


STORES: Final[dict[str, OpenStore]] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
    "postgresql": open_postgres,
}
DURABLE_STORES: Final = {name: opened for name, opened in STORES.items() if name != "memory"}


def put(record_id: str, *, kind: Kind = "server", if_revision: int | None = None, **body: Any) -> RecordWrite:
    return RecordWrite(kind=kind, id=record_id, body=body, if_revision=if_revision)


def delete(record_id: str, *, kind: Kind = "server", if_revision: int | None = None) -> RecordWrite:
    return RecordWrite(kind=kind, id=record_id, body=None, if_revision=if_revision)


async def read_watch(store: Store, since: int, *, upto: int) -> list[ChangeBatch]:
    """What a watcher sees, up to and with the bookmark or batch of revision `upto`."""
    seen: list[ChangeBatch] = []
    async with asyncio.timeout(DEADLINE_S), store.watch(since) as batches:
        async for batch in batches:
            seen.append(batch)
            if batch.revision >= upto and any(not each.changes for each in seen):
                break
    return seen


def execute(path: Path, statement: str) -> None:
    """Change a closed SQLite file behind the store's back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()
