"""The change log as a watcher gets it: narrowed to what it watches, with a sign of life when idle."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from toolgate.errors import Compacted, StorageUnavailable
from toolgate.govern.watches import narrow_batch
from toolgate.model.revisions import Batch, Kind
from toolgate.registry.replication.sync import Position
from toolgate.registry.store.contract import Store

BOOKMARK_S: Final = 5.0
"""A watcher that hears nothing for much longer than this knows that it is cut off."""


async def watch_batches(
    store: Store, since: Position, *, kind: Kind | None = None, idle_s: float = BOOKMARK_S
) -> AsyncGenerator[Batch, None]:
    """Batches after `since` that concern `kind` (None: all); see `Store.watch`.

    After the replay comes a bookmark, and then one whenever nothing was sent for `idle_s`. Raises Compacted
    when the epoch is not the store's; empty, it is not looked at. Raises StorageUnavailable where a bookmark
    would say that the watcher is up to date, and nobody here can know: another replica may.
    """
    if since.epoch and since.epoch != store.epoch:
        raise Compacted("the registry has another history than the one of this epoch")
    now_s = asyncio.get_running_loop().time
    due_s: float | None = None  # until the replay is over, a bookmark would say that it is
    idle = Batch(revision=since.revision, digest=since.digest)
    async with store.watch(since.revision, since.digest) as batches:
        while True:
            batch = await _next(batches, due_s, idle=idle)
            if batch is None:
                return
            idle = Batch(revision=batch.revision, digest=batch.digest)
            narrowed = batch if kind is None else narrow_batch(batch, (kind,))
            is_bookmark = not batch.changes
            if is_bookmark and not store.is_current:
                raise StorageUnavailable("this control does not hear from its database")
            if is_bookmark or narrowed.changes or (due_s is not None and due_s <= now_s()):
                yield narrowed
                due_s = now_s() + idle_s if is_bookmark or due_s is not None else None


async def _next(batches: AsyncIterator[Batch], due_s: float | None, *, idle: Batch) -> Batch | None:
    """The next batch, or `idle` when there is none by `due_s`. None: the store was closed.

    A watch loses nothing when it is cancelled while it waits: its cursor moves with what it returns.
    """
    try:
        async with asyncio.timeout_at(due_s):
            return await anext(batches, None)
    except TimeoutError:
        return idle
