"""What every store does with the definitions that pins name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.stores import DURABLE_STORES, STORES, Clock, OpenStore
from toolgate.registry.store.side_tables import MAX_KEPT_BYTES
from toolgate.registry.store.sql_store import Store

pytestmark = pytest.mark.anyio

READ, WRITE = "a" * 64, "b" * 64
DEFINITIONS = {READ: b'{"name": "read",  "x-vendor": 1e400}', WRITE: b'{"name":"caf\xc3\xa9"}'}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with STORES[request.param](tmp_path, Clock()) as opened:
        yield opened


async def test_definitions_are_read_back_byte_for_byte_and_others_are_not_there(store: Store) -> None:
    await store.pinned.save(DEFINITIONS)

    assert await store.pinned.read([READ, WRITE, "c" * 64]) == DEFINITIONS
    assert await store.pinned.digests() == DEFINITIONS.keys()
    assert await store.pinned.read([]) == {}


async def test_a_digest_never_comes_to_mean_another_definition(store: Store) -> None:
    await store.pinned.save({READ: DEFINITIONS[READ]})
    await store.pinned.save({READ: b"{}", WRITE: DEFINITIONS[WRITE]})

    assert await store.pinned.read(DEFINITIONS) == DEFINITIONS


async def test_what_is_forgotten_is_gone_and_the_others_stay(store: Store) -> None:
    await store.pinned.save(DEFINITIONS)
    await store.pinned.forget([READ, "c" * 64])
    await store.pinned.forget([])

    assert await store.pinned.digests() == {WRITE}


async def test_more_are_kept_and_read_than_one_statement_takes(store: Store) -> None:
    many = {f"{number:064x}": b"{}" for number in range(1_201)}
    await store.pinned.save(many)

    assert await store.pinned.read(many) == many
    await store.pinned.forget(many)
    assert await store.pinned.digests() == frozenset()


async def test_what_is_too_large_to_be_compared_is_not_kept(store: Store) -> None:
    await store.pinned.save({READ: b" " * (MAX_KEPT_BYTES + 1)})
    await store.pinned.save({WRITE: b" " * MAX_KEPT_BYTES})

    assert await store.pinned.digests() == {WRITE}


@pytest.mark.parametrize("open_store", DURABLE_STORES.values(), ids=DURABLE_STORES)
async def test_definitions_outlive_the_process(open_store: OpenStore, tmp_path: Path) -> None:
    async with open_store(tmp_path, Clock()) as first:
        await first.pinned.save(DEFINITIONS)
    async with open_store(tmp_path, Clock()) as second:
        assert await second.pinned.read(DEFINITIONS) == DEFINITIONS
