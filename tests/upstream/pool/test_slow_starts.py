"""Servers that take minutes to start, as package runners do while they download: TRY-5."""

import asyncio

import pytest

from tests.upstream.memory_link import MemoryNet, MemoryServer, params, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import ServerUnavailable
from toolgate.upstream.connection.contract import PoolLimits

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def now_s() -> float:
    return asyncio.get_running_loop().time()


def takes(seconds: float) -> MemoryServer:
    return MemoryServer(on_start=lambda: asyncio.sleep(seconds))


@pytest.mark.parametrize("seconds", [25, 90])
async def test_try_5_a_package_runner_that_downloads_for_long_is_started_once_and_comes_up(
    seconds: float,
) -> None:
    net = MemoryNet(one=takes(seconds))
    async with pool_of(net) as pool:
        pool.apply({"one": record(command="npx")})
        await pass_time(seconds - 1)
        meanwhile = pool.health()["one"]
        await pass_time(2)
        health = pool.health()["one"]

    assert (meanwhile.state, meanwhile.restarts) == ("starting", 0)
    assert (health.state, health.tools, health.restarts) == ("connected", 1, 0)
    assert net["one"].starts_s == [0.0]


async def test_a_call_to_a_server_that_still_starts_says_so_soon() -> None:
    net = MemoryNet(one=takes(60))
    async with pool_of(net) as pool:
        pool.apply({"one": record(command="npx", timeout_ms=120_000)})
        with pytest.raises(ServerUnavailable) as first:
            await pool.call("one", CALL, params("echo"))
        waited_s = now_s()
        await pass_time(48 - waited_s)
        with pytest.raises(ServerUnavailable) as second:
            await pool.call("one", CALL, params("echo"))
        at_once_s = now_s()

    assert (waited_s, at_once_s) == (PoolLimits().slow_start_s, 48)
    assert str(first.value) == 'server "one" is still starting (10 s): npx is downloading packages'
    assert str(second.value) == 'server "one" is still starting (48 s): npx is downloading packages'
    assert second.value.hint == "nothing to do; raise start_timeout_s if the network is slow"


async def test_a_server_that_runs_and_does_not_respond_is_not_downloading() -> None:
    net = MemoryNet(one=takes(60))
    async with pool_of(net) as pool:
        pool.apply({"one": record(command="npx")})
        await pass_time(5)
        listener = net["one"].listener
        assert listener is not None
        listener.on_reading()
        await pass_time(7)
        health = pool.health()["one"]
        with pytest.raises(ServerUnavailable, match=r"\(12 s\): it is running, but has not responded$"):
            await pool.call("one", CALL, params("echo"))

    assert health.hint == "it is running, but has not responded"


async def test_a_call_to_a_server_that_is_up_within_its_time_waits_for_it() -> None:
    net = MemoryNet(one=takes(9))
    async with pool_of(net) as pool:
        pool.apply({"one": record(command="npx")})
        response = await pool.call("one", CALL, params("echo"))

    assert response.rpc.result is not None


async def test_nothing_else_waits_for_runners_that_download() -> None:
    slow = {f"slow-{number}": takes(120) for number in range(8)}
    net = MemoryNet(**slow)
    async with pool_of(net) as pool:
        pool.apply({**{one: record(one, command="uvx") for one in slow}, "quick": record("quick")})
        await pool.call("quick", CALL, params("echo"))
        called_s = now_s()
        await pool.settled([*slow, "quick"])
        listed_s = now_s()
        await asyncio.wait_for(pool.refresh("slow-1"), 60)
        refreshed_s = now_s()
        states = {one: health.state for one, health in pool.health().items()}
        await pass_time(120)
        later = {health.state for health in pool.health().values()}

    limits = PoolLimits()
    assert called_s == limits.start_slot_s
    assert listed_s == limits.first_list_wait_s
    assert refreshed_s == limits.slow_start_s
    assert states == {**dict.fromkeys(slow, "starting"), "quick": "connected"}
    assert later == {"connected"}


async def test_a_runner_is_given_up_at_the_limit_of_its_record_and_any_other_server_after_ten_seconds() -> (
    None
):
    net = MemoryNet(runner=takes(10_000), patient=takes(10_000), plain=takes(10_000))
    async with pool_of(net, backoff_s=1_000, backoff_max_s=1_000) as pool:
        pool.apply(
            {
                "runner": record("runner", command="/opt/node/bin/npx"),
                "patient": record("patient", command="serve", start_timeout_s=60),
                "plain": record("plain", command="serve"),
            }
        )
        down_s: dict[str, float] = {}
        while len(down_s) < 3:
            await pass_time(1)
            down = [one for one, health in pool.health().items() if health.state == "down"]
            down_s |= {one: now_s() for one in down if one not in down_s}

    assert down_s == pytest.approx({"plain": 12, "patient": 62, "runner": 302}, abs=1)


async def test_a_server_that_is_down_is_seen_starting_again_only_if_that_takes_long() -> None:
    net = MemoryNet(one=MemoryServer())
    async with pool_of(net) as pool:
        pool.apply({"one": record(command="npx", prewarm=True)})
        await pass_time(20)
        net["one"].on_start = lambda: asyncio.sleep(30)
        net["one"].crash("it exited with 1")
        await pass_time(1)
        soon = pool.health()["one"].state
        await pass_time(15)
        later = pool.health()["one"].state
        await pass_time(20)

        assert (soon, later, pool.health()["one"].state) == ("degraded", "starting", "connected")


async def test_the_log_says_that_a_server_takes_long_to_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    net = MemoryNet(one=takes(30))
    async with pool_of(net) as pool:
        pool.apply({"one": record(command="npx")})
        await pass_time(40)

    assert caplog.messages == [
        "server `one` is still starting: npx is downloading packages",
        "server `one` is connected",
    ]
