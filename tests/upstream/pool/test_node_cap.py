"""The node's cap in the way of calls: what counts, and what a waiting call must not hold."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, params, pool_of, record, text_result
from tests.upstream.pool.test_clients import Person
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import CallTimedOut, NodeBusy, ServerUnavailable
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.upstream.pool.pool import CallOrigin, Pool, ServerResponse

pytestmark = pytest.mark.anyio

CALL = "tools/call"
LIMIT = 4


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


async def after_a_second(_: Json) -> RpcResponse:
    await pass_time(1)
    return RpcResponse(result=text_result("late"))


@pytest.fixture
def net() -> MemoryNet:
    servers = {name: MemoryServer(on_call={"slow": after_a_second}) for name in ("one", "two", "three")}
    return MemoryNet(**servers)


@pytest.fixture
async def pool(net: MemoryNet) -> AsyncIterator[Pool]:
    async with pool_of(net, max_calls=LIMIT) as pool:
        yield pool


async def apply(pool: Pool, **fields: Any) -> None:
    """Each of `fields` is the concurrency of a server."""
    pool.apply({name: record(name, concurrency=most) for name, most in fields.items()})
    await pool.settled(fields)


def begin(
    pool: Pool, server: str, tool: str = "slow", *, by: str = "ada", **options: Any
) -> asyncio.Task[ServerResponse]:
    origin = CallOrigin(principal_id=by, recheck=options.pop("recheck", None))
    return asyncio.create_task(pool.call(server, CALL, params(tool, **options), origin=origin))


@pytest.mark.requirement("002-102")
async def test_calls_at_all_servers_together_are_capped_and_others_wait(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, one=16, two=16, three=16)

    calls = [begin(pool, server) for server in ("one", "two", "three") for _ in range(2)]
    await pass_time(0.5)
    sent = sum(server.in_flight for server in net.servers.values())
    busy = (pool.slots.in_flight, pool.slots.queued, sent)
    await asyncio.gather(*calls)

    assert busy == (LIMIT, 2, LIMIT)
    assert asyncio.get_running_loop().time() == 2.0
    assert (pool.slots.in_flight, pool.slots.queued) == (0, 0)


async def test_past_the_queue_a_call_is_refused_at_once_and_never_sent(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, one=16)
    calls = [begin(pool, "one") for _ in range(2 * LIMIT)]
    await pass_time(0)

    with pytest.raises(NodeBusy):
        await begin(pool, "one")

    assert asyncio.get_running_loop().time() == 0.0
    await asyncio.gather(*calls)
    assert (len(net["one"].calls), pool.slots.refused) == (2 * LIMIT, 1)


async def test_calls_that_wait_for_a_slow_server_hold_no_slot_of_the_node(pool: Pool) -> None:
    await apply(pool, one=1, two=16)

    waiting = [begin(pool, "one") for _ in range(10)]
    await pass_time(0)
    busy = (pool.slots.in_flight, pool.slots.queued)
    await begin(pool, "two", "echo", by="bob")

    assert busy == (1, 0)
    assert asyncio.get_running_loop().time() == 0.0
    await asyncio.gather(*waiting)
    assert pool.slots.in_flight == 0


async def test_calls_that_wait_for_a_start_hold_no_slot_of_the_node(net: MemoryNet, pool: Pool) -> None:
    started = asyncio.Event()

    async def start() -> None:
        await started.wait()

    net["one"].on_start = start
    pool.apply({"one": record("one", concurrency=16), "two": record("two")})
    await pool.settled(["two"])

    waiting = [begin(pool, "one", "echo") for _ in range(10)]
    await pass_time(0)
    busy = (pool.slots.in_flight, pool.slots.queued)
    started.set()
    await asyncio.gather(*waiting)

    assert busy == (0, 0)
    assert (pool.slots.in_flight, pool.health()["one"].in_flight) == (0, 0)


async def test_calls_that_wait_for_the_node_hold_no_slot_of_their_server(net: MemoryNet) -> None:
    async with pool_of(net, max_calls=10) as pool:
        await apply(pool, one=16)
        flood = [begin(pool, "one", by="flood") for _ in range(18)]
        await pass_time(0)
        busy = (pool.slots.in_flight, pool.slots.queued, pool.health()["one"].in_flight)

        await begin(pool, "one", "echo", by="ada")

        assert busy == (8, 10, 8)
        assert asyncio.get_running_loop().time() == 0.0
        await asyncio.gather(*flood)


async def test_while_its_client_is_asked_a_call_holds_no_slot_of_the_node(net: MemoryNet) -> None:
    client = Person()
    server = net["one"]
    server.era = "legacy"

    async def ask_first(_: Json) -> RpcResponse:
        behind = server.calls[0].client
        assert behind is not None
        await behind.request("elicitation/create", b"{}")
        return RpcResponse(result=text_result("asked"))

    server.on_call = {"ask": ask_first}
    async with pool_of(net, max_calls=1) as pool:
        await apply(pool, one=1, two=1)
        asking = asyncio.create_task(
            pool.call("one", CALL, params("ask"), client=client, origin=CallOrigin(principal_id="ada"))
        )
        await pass_time(1)
        meanwhile = pool.slots.in_flight

        await begin(pool, "two", "echo", by="ada")
        client.responses.set()
        await asking

        assert (meanwhile, pool.slots.in_flight) == (0, 0)


async def test_a_call_that_waited_for_the_node_is_checked_again_before_it_is_sent(
    net: MemoryNet, pool: Pool
) -> None:
    await apply(pool, one=16)
    calls = [begin(pool, "one") for _ in range(LIMIT)]
    await pass_time(0)

    def refuse() -> None:
        raise ServerUnavailable("not any more")

    with pytest.raises(ServerUnavailable, match="not any more"):
        await begin(pool, "one", recheck=refuse)

    await asyncio.gather(*calls)
    assert (len(net["one"].calls), pool.slots.in_flight) == (LIMIT, 0)


async def test_a_call_that_waited_for_the_node_goes_to_the_server_as_it_is_by_then(
    net: MemoryNet, pool: Pool
) -> None:
    await apply(pool, one=16, two=16)
    calls = [begin(pool, "one") for _ in range(LIMIT)]
    await pass_time(0)
    moved = [begin(pool, "two", "echo", by=principal) for principal in ("ada", "bob")]
    await pass_time(0)

    pool.apply({"one": record("one", concurrency=16), "two": record("two", command="another")})
    await asyncio.gather(*moved, *calls)

    assert (len(net["two"].calls), len(net["two"].starts_s)) == (2, 2)
    assert (pool.slots.in_flight, pool.slots.queued) == (0, 0)


async def test_a_slot_survives_a_server_that_goes_away_while_a_call_waits(net: MemoryNet, pool: Pool) -> None:
    await apply(pool, one=16, two=16)
    calls = [begin(pool, "one") for _ in range(LIMIT)]
    await pass_time(0)
    gone = begin(pool, "two", "echo")
    await pass_time(0)

    pool.apply({"one": record("one", concurrency=16)})
    with pytest.raises(ServerUnavailable):
        await gone
    await asyncio.gather(*calls)

    assert (pool.slots.in_flight, pool.slots.queued) == (0, 0)


async def test_no_slot_is_lost_to_calls_that_end_in_different_ways(net: MemoryNet, pool: Pool) -> None:
    async def never(_: Json) -> RpcResponse:
        await asyncio.Event().wait()
        raise AssertionError

    net["one"].on_call = {"hang": never}
    pool.apply({"one": record("one", concurrency=2, timeout_ms=3000)})
    await pool.settled(["one"])

    calls = [begin(pool, "one", "hang", n=n) for n in range(6)] + [begin(pool, "one", "echo", by="bob")]
    await pass_time(1)
    for call in calls[::2]:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)

    assert any(isinstance(one, CallTimedOut) for one in ended)
    assert (pool.slots.in_flight, pool.slots.queued, pool.health()["one"].in_flight) == (0, 0, 0)
