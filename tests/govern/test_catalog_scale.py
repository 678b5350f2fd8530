"""Thousands of tools come into the catalog in slices, are all found, and are searched quickly.

How long that takes is printed (`-s`), for ten thousand under `TOOLGATE_SOAK=1`; a busy machine fails no test.
"""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.scenarios.soak import rounds
from tests.surfaces.rest_world import open_rest, stdio
from tests.upstream.memory_link import MemoryNet, definition
from toolgate.gateway.search import HybridIndex
from toolgate.govern.catalog import CatalogQuery, find_visible, search_catalog
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.govern.control import Control
from toolgate.model.principals import Principal
from toolgate.registry.store.engines import open_sqlite_store

pytestmark = pytest.mark.anyio

SERVERS: Final = rounds(suite=20, soak=500)
TOOLS: Final = 20
WORDS: Final = [
    *("read", "write", "file", "directory", "search", "query", "table", "row", "column", "issue", "branch"),
    *("commit", "message", "channel", "user", "calendar", "event", "mail", "send", "list", "create", "page"),
]


def tools(seed: int) -> tuple[bytes, ...]:
    chance = random.Random(seed)

    def text(count: int) -> str:
        return " ".join(chance.choices(WORDS, k=count))

    def schema() -> dict[str, object]:
        arguments = {f"{text(1)}_{n}": {"type": "string", "description": text(8)} for n in range(5)}
        return {"type": "object", "properties": arguments}

    return tuple(
        definition(f"{text(1)}_{n}", description=text(25), inputSchema=schema()) for n in range(TOOLS)
    )


@asynccontextmanager
async def measuring(what: str) -> AsyncIterator[None]:
    """Print how long a block takes, and the longest that the loop stood still meanwhile."""
    longest_s, clock = 0.0, time.perf_counter

    async def look() -> None:
        nonlocal longest_s
        while True:
            before_s = clock()
            await asyncio.sleep(0.005)
            longest_s = max(longest_s, clock() - before_s - 0.005)

    looking, began_s = asyncio.create_task(look()), clock()
    try:
        yield
    finally:
        looking.cancel()
    sys.stdout.write(f"\n{what}: {clock() - began_s:.2f} s, longest lag {longest_s * 1e3:.0f} ms\n")


async def test_the_catalog_takes_in_and_finds_thousands_of_tools(tmp_path: Path) -> None:
    net = MemoryNet()
    ids = [f"s{n:03}" for n in range(SERVERS)]
    for n, server_id in enumerate(ids):
        net.servers[server_id].tools = tools(n)
    async with open_rest(net) as world, open_sqlite_store(tmp_path / "registry.db", lambda: 0) as store:
        await world.seed(server=[stdio(server_id) for server_id in ids])
        await world.cataloged()
        # All is listed by now, and to be taken into an empty table.
        keeper = CatalogProjection(
            store,
            world.control.gateway,
            searching=HybridIndex(),
            clock_ms=lambda: 0,
            artifacts=world.control.artifacts,
        )
        async with measuring(f"{SERVERS * TOOLS} tools taken in"), keeper:
            for server_id in ids:
                await keeper.make(server_id)
        assert len(await store.catalog.rows()) == SERVERS * TOOLS
        assert keeper.searching.groups() == set(ids)
        await _search(world.control)


async def _search(control: Control) -> None:
    chance, times_s = random.Random(0), []
    for _ in range(200):
        words = " ".join(chance.choices(WORDS, k=4))
        began_s = time.perf_counter()
        found = await search_catalog(
            control, await find_visible(control, Principal(id="a", role="agent")), CatalogQuery(words)
        )
        times_s.append(time.perf_counter() - began_s)
        assert len(found) > TOOLS
    ordered = sorted(times_s)
    sys.stdout.write(f"search: p50 {ordered[100] * 1e3:.1f} ms, p99 {ordered[197] * 1e3:.1f} ms\n")
