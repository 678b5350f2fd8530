"""Watched resources: the server is told of them now and after every reconnect, and what it says is heard."""

import pytest

from tests.upstream.memory_link import MemoryNet, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time

pytestmark = pytest.mark.anyio

A = frozenset({"memo://a"})
AB = frozenset({"memo://a", "memo://b"})
NONE: frozenset[str] = frozenset()
UPDATED = "notifications/resources/updated"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


async def test_a_server_is_notified_what_is_watched_when_that_changes() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        for uris in (A, A, AB, NONE):
            pool.watch("one", uris)

        assert net["one"].watched == [A, AB, NONE]


async def test_what_is_watched_is_notified_again_after_a_reconnect_and_after_another_launch() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        pool.watch("one", A)
        net["one"].crash()
        await pass_time(1)
        pool.apply({"one": record(command="other")})
        await pass_time(1)

        assert (net["one"].watched, len(net["one"].starts_s)) == ([A, A, A], 3)


async def test_what_is_watched_at_a_server_that_is_not_there_is_notified_when_it_comes() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.watch("one", A)
        pool.watch("two", A)
        pool.watch("two", NONE)
        pool.apply({"one": record("one"), "two": record("two")})
        await pool.settled(["one", "two"])

        assert (net["one"].watched, net["two"].watched) == ([A], [])


async def test_a_change_to_a_watched_resource_is_notified_and_nothing_else() -> None:
    net = MemoryNet()
    updated: list[tuple[str, str]] = []
    async with pool_of(net, on_updated=lambda server_id, uri: updated.append((server_id, uri))) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        pool.watch("one", A)
        for params in (b'{"uri":"memo://a"}', b'{"uri":"memo://b"}', b'{"uri":5}', b"[]", b"\xff", b"{}"):
            net["one"].notify(UPDATED, params)
        pool.watch("one", NONE)
        net["one"].notify(UPDATED, b'{"uri":"memo://a"}')

    assert updated == [("one", "memo://a")]


async def test_a_watched_server_is_not_idle_and_comes_back_by_itself() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=5)})
        await pool.settled(["one"])
        pool.watch("one", A)
        await pass_time(60)
        watched = (pool.health()["one"].state, len(net["one"].starts_s))
        net["one"].crash()
        await pass_time(1)
        again = (pool.health()["one"].state, len(net["one"].starts_s))
        pool.watch("one", NONE)
        await pass_time(6)

        assert (watched, again) == (("connected", 1), ("connected", 2))
        assert pool.health()["one"].state == "idle"


async def test_an_idle_server_is_opened_to_be_watched() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=5)})
        await pass_time(10)
        idle = pool.health()["one"].state
        pool.watch("one", A)
        await pass_time(1)

        assert (idle, pool.health()["one"].state, net["one"].watched) == ("idle", "connected", [A])
