"""What the pool does about servers that crash, hang, fail to start, fall silent or are not used."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, params, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.servers import ServerRecord
from toolgate.upstream.connection.contract import (
    ConnectionListener,
    PoolLimits,
    RpcResponse,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.pool.health import STDERR_TAIL_BYTES
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def hang() -> None:
    await asyncio.Event().wait()


async def never(_: Json) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError


def refuse(message: str = "it exited with 1", *, fatal: bool = False) -> Callable[[], Awaitable[None]]:
    async def on_start() -> None:
        raise StartFailed(message, fatal=fatal, state="env_missing" if fatal else "list_failed")

    return on_start


@pytest.mark.requirement("002-047")
async def test_chd_1_a_server_that_always_exits_is_started_five_times_in_ten_seconds_and_then_rarely() -> (
    None
):
    net = MemoryNet(one=MemoryServer(on_start=refuse()))
    async with pool_of(net) as pool:
        pool.apply({"one": record("one", prewarm=True), "two": record("two")})
        await pool.settled(["one", "two"])
        answered = await pool.call("two", CALL, params("echo"))
        await pass_time(300)
        health = pool.health()["one"]

    starts = net["one"].starts_s
    busiest = max(sum(start <= other < start + 10 for other in starts) for start in starts)
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert starts[:6] == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 10.0])
    assert busiest == 5
    assert gaps[-1] == pytest.approx(30)
    assert (health.state, health.last_error, health.restarts) == ("down", "it exited with 1", len(starts) - 1)
    assert answered.rpc.result is not None
    assert net["two"].starts_s == [0.0]


async def test_chd_1_a_server_that_crashes_after_each_start_is_down_after_five() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(prewarm=True)})
        states = []
        for _ in range(5):
            await pass_time(1)
            net["one"].crash("it exited with 3")
            await pass_time(0)
            states.append(pool.health()["one"].state)

        assert states == ["degraded", "degraded", "degraded", "degraded", "down"]
        with pytest.raises(ServerUnavailable, match=r"`one` is down$"):
            await pool.call("one", CALL, params("echo"))
        await pass_time(10)
        assert pool.health()["one"].state == "connected"


async def test_chd_1_the_log_tells_when_a_server_goes_down_and_comes_back_and_not_what_it_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    net = MemoryNet(one=MemoryServer(on_start=refuse("it exited with 1: my token is abc")))
    async with pool_of(net) as pool:
        pool.apply({"one": record("one", prewarm=True)})
        await pass_time(60)
        net["one"].on_start = None
        await pass_time(60)

    assert caplog.messages == [
        "server `one` is down: see `toolgate servers get one`",
        "server `one` is connected again",
    ]


async def test_chd_4_calls_in_flight_when_a_server_dies_fail_and_the_next_reconnects() -> None:
    net = MemoryNet(one=MemoryServer(on_call={"hang": never}))
    async with pool_of(net) as pool:
        pool.apply({"one": record(concurrency=50)})
        calls = [asyncio.create_task(pool.call("one", CALL, params("hang"))) for _ in range(50)]
        await pass_time(1)
        net["one"].crash()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        failed_s = now_s()
        await pool.call("one", CALL, params("echo"))

        assert {type(outcome) for outcome in outcomes} == {ServerUnavailable}
        assert (len(net["one"].calls), len(net["one"].starts_s)) == (51, 2)
        assert [failed_s, now_s()] == pytest.approx([1.0, 1.1])
        health = pool.health()["one"]
        assert (health.state, health.restarts, health.last_error) == ("connected", 1, "it exited with 1")


async def test_chd_15_a_thousand_crash_cycles_leave_nothing_behind() -> None:
    net = MemoryNet()
    async with pool_of(net, start_window_s=0.0) as pool:
        pool.apply({"one": record(prewarm=True)})
        await pool.settled(["one"])
        tasks = len(asyncio.all_tasks())
        for _ in range(1000):
            net["one"].crash()
            await pass_time(1)

        assert (len(net["one"].starts_s), len(net["one"].links)) == (1001, 1)
        assert len(asyncio.all_tasks()) == tasks
        assert pool.health()["one"].state == "connected"


async def test_chd_17_a_server_that_stops_for_a_while_recovers_without_a_restart() -> None:
    net = MemoryNet()
    server = net["one"]
    async with pool_of(net, list_ttl_s=10) as pool:
        pool.apply({"one": record(timeout_ms=2000)})
        await pool.settled(["one"])
        server.on_call, server.on_list = {"echo": never}, never
        await pass_time(21)
        with pytest.raises(CallTimedOut):
            await pool.call("one", CALL, params("echo"))
        still = (pool.health()["one"].state, pool.tools()["one"].is_stale)
        server.on_call, server.on_list = {}, None
        await pass_time(16)
        await pool.call("one", CALL, params("echo"))

        assert still == ("degraded", True)
        assert (pool.health()["one"].state, pool.tools()["one"].is_stale) == ("connected", False)
        assert len(server.starts_s) == 1


async def test_a_server_without_prewarm_is_reopened_by_a_call_and_keeps_its_tools_meanwhile() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        await pass_time(20)
        net["one"].crash()
        await pass_time(20)
        meanwhile = (len(net["one"].starts_s), pool.health()["one"].state, list(pool.tools()["one"].tools))
        await pool.call("one", CALL, params("echo"))

        assert meanwhile == (1, "degraded", ["echo"])
        assert (now_s(), len(net["one"].starts_s)) == (40.0, 2)


async def test_a_server_without_prewarm_is_reopened_by_the_next_discovery() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        net["one"].crash()
        await pass_time(119)
        before = len(net["one"].starts_s)
        await pass_time(2)

        assert (before, len(net["one"].starts_s), pool.health()["one"].state) == (1, 2, "connected")


async def test_a_call_waits_for_a_start_under_way_and_is_sent_once() -> None:
    async def start_slowly() -> None:
        await asyncio.sleep(3)

    net = MemoryNet(one=MemoryServer(on_start=start_slowly))
    async with pool_of(net) as pool:
        pool.apply({"one": record(timeout_ms=5000)})
        await pool.call("one", CALL, params("echo"))

        assert (now_s(), [seen.timeout_s for seen in net["one"].calls]) == (3.0, [2.0])


async def test_a_call_does_not_wait_longer_for_a_start_than_its_own_time() -> None:
    net = MemoryNet(one=MemoryServer(on_start=hang))
    async with pool_of(net) as pool:
        pool.apply({"one": record(timeout_ms=2000)})
        with pytest.raises(CallTimedOut, match="did not connect within the call's time; nothing was sent"):
            await pool.call("one", CALL, params("echo"))

        assert (now_s(), pool.health()["one"].in_flight) == (2.0, 0)


async def test_calls_that_wait_for_a_start_fail_with_it_and_so_do_those_in_the_backoff() -> None:
    async def fail_late() -> None:
        await asyncio.sleep(1)
        raise StartFailed("port already in use")

    net = MemoryNet(one=MemoryServer(on_start=fail_late))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        for _ in range(2):
            with pytest.raises(ServerUnavailable, match=r"`one` is down$"):
                await pool.call("one", CALL, params("echo"))

        assert (now_s(), len(net["one"].starts_s)) == (1.0, 1)


async def test_a_call_in_the_backoff_fails_and_one_after_it_is_served() -> None:
    net = MemoryNet(one=MemoryServer(on_start=refuse()))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pass_time(2)
        net["one"].on_start = None
        with pytest.raises(ServerUnavailable):
            await pool.call("one", CALL, params("echo"))
        await pass_time(8)
        await pool.call("one", CALL, params("echo"))

        assert net["one"].starts_s == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 10])


async def test_chd_13_a_fatal_failure_is_not_tried_again_by_itself() -> None:
    net = MemoryNet(one=MemoryServer(on_start=refuse("no command `nope`", fatal=True)))
    async with pool_of(net) as pool:
        pool.apply({"one": record(prewarm=True)})
        await pool.settled(["one"])
        tools, health = pool.tools()["one"], pool.health()["one"]
        await pass_time(3600)

        assert (tools.state, tools.detail) == ("env_missing", "no command `nope`")
        assert (health.state, health.last_error) == ("down", "no command `nope`")
        assert net["one"].starts_s == [0.0]


@pytest.mark.parametrize("by", ["call", "refresh", "record"])
async def test_after_a_fatal_failure_a_call_a_refresh_or_a_new_record_tries_again(by: str) -> None:
    net = MemoryNet(one=MemoryServer(on_start=refuse(fatal=True)))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        net["one"].on_start = None
        with pytest.raises(ServerUnavailable):
            await pool.call("one", CALL, params("echo"))

        match by:
            case "call":
                await pass_time(30)
                await pool.call("one", CALL, params("echo"))
            case "refresh":
                await pool.refresh("one")
            case _:
                pool.apply({"one": record(tags=("touched",))})
        await pass_time(1)

        assert pool.health()["one"].state == "connected"
        assert list(pool.tools()["one"].tools) == ["echo"]


async def test_a_transport_this_node_does_not_have_is_a_fatal_failure() -> None:
    async with Pool({}, on_change=lambda _: None) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])

        assert pool.health()["one"].last_error == "this node has no transport `stdio`"


async def test_an_opener_that_breaks_its_promises_costs_its_server_an_attempt_and_the_pool_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def break_promises() -> None:
        raise ZeroDivisionError

    net = MemoryNet(one=MemoryServer(on_start=break_promises))
    async with pool_of(net) as pool:
        pool.apply({"one": record("one"), "two": record("two")})
        await pool.settled(["one", "two"])
        states = {server_id: health.state for server_id, health in pool.health().items()}

    assert states == {"one": "down", "two": "connected"}
    assert "unexpected failure" in caplog.text


async def test_a_link_that_breaks_its_promises_while_listing_is_a_failed_list(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def break_promises(_: Json) -> RpcResponse:
        raise ZeroDivisionError

    async with pool_of(MemoryNet(one=MemoryServer(on_list=break_promises))) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])

        assert (pool.tools()["one"].state, pool.health()["one"].state) == ("list_failed", "degraded")
    assert "unexpected failure" in caplog.text


async def test_a_link_that_is_lost_while_it_is_being_opened_is_lost() -> None:
    net = MemoryNet()

    async def open_lost(
        record: ServerRecord, listener: ConnectionListener, **options: Any
    ) -> ServerConnection:
        link = await net.open(record, listener, **options)
        link.lose("gone")
        await asyncio.sleep(0)
        return link

    async with Pool({"stdio": open_lost}, on_change=lambda _: None) as pool:
        pool.apply({"one": record()})
        await pass_time(0.05)

        assert (pool.health()["one"].state, pool.health()["one"].last_error) == ("degraded", "gone")


@pytest.mark.requirement("002-090")
async def test_an_idle_server_is_closed_keeps_its_tools_and_wakes_by_a_call() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=60)})
        await pass_time(50)
        await pool.call("one", CALL, params("echo"))
        await pass_time(59)
        before = pool.health()["one"].state
        await pass_time(600)
        health = pool.health()["one"]
        asleep = (health.state, health.pid, list(pool.tools()["one"].tools), len(net["one"].links))
        await pool.call("one", CALL, params("echo"))
        awake = pool.health()["one"]

        assert (before, asleep) == ("connected", ("idle", None, ["echo"], 0))
        assert (awake.state, awake.restarts, len(net["one"].starts_s)) == ("connected", 0, 2)


async def test_a_server_with_a_call_in_flight_is_not_idle() -> None:
    async def long(_: Json) -> RpcResponse:
        await asyncio.sleep(150)
        return RpcResponse(result=b"{}")

    net = MemoryNet(one=MemoryServer(on_call={"long": long}))
    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=60, timeout_ms=200_000)})
        response = await pool.call("one", CALL, params("long"))

        assert (response.rpc, len(net["one"].starts_s)) == (RpcResponse(result=b"{}"), 1)


async def test_prewarm_keeps_an_unused_server_connected() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=60, prewarm=True)})
        await pass_time(600)

        assert (pool.health()["one"].state, len(net["one"].starts_s)) == ("connected", 1)


async def test_prewarm_restarts_a_crashed_server_at_once() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(prewarm=True)})
        await pass_time(20)
        net["one"].crash()
        await pass_time(1)

        assert net["one"].starts_s == pytest.approx([0, 20.1])


async def test_what_a_replaced_link_reports_reaches_no_one() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(prewarm=True)})
        await pool.settled(["one"])
        old = net["one"].links[0]
        net["one"].crash()
        await pass_time(1)
        old.listener.on_closed("again")
        old.listener.on_notification("notifications/tools/list_changed", b"{}")
        await pass_time(5)

        assert (pool.health()["one"].state, len(net["one"].lists_s)) == ("connected", 2)


async def test_chd_6_the_last_64_kib_of_stderr_are_kept_over_restarts() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(prewarm=True)})
        await pool.settled(["one"])
        for n in range(5000):
            net["one"].complain(b"line %06d, of no interest\n" % n)
        net["one"].crash()
        await pass_time(1)
        net["one"].complain("vorbei: \N{SKULL}\n".encode())
        tail = pool.health()["one"].stderr_tail

    assert tail.endswith("line 004999, of no interest\nvorbei: \N{SKULL}\n")
    assert len(tail.encode()) == STDERR_TAIL_BYTES


async def test_one_hanging_start_delays_no_other_of_forty() -> None:
    net = MemoryNet(s00=MemoryServer(on_start=hang))
    names = [f"s{n:02}" for n in range(40)]
    async with pool_of(net) as pool:
        pool.apply({name: record(name) for name in names})
        await pool.settled(names[1:])
        settled_s = now_s()
        await pool.settled(names)

        assert (settled_s, now_s()) == (0.0, PoolLimits().first_list_wait_s)
        states = [tools.state for tools in pool.tools().values()]
        assert (states.count("ready"), states.count("pending")) == (39, 1)


async def test_eight_hanging_starts_delay_the_others_by_two_seconds() -> None:
    names = [f"s{n:02}" for n in range(30)]
    net = MemoryNet(**{name: MemoryServer(on_start=hang) for name in names[:8]})
    async with pool_of(net) as pool:
        pool.apply({name: record(name) for name in names})
        await pool.settled(names[8:])

        assert now_s() == 2.0


async def test_at_most_so_many_links_are_opened_at_once() -> None:
    starting = most = 0

    async def start() -> None:
        nonlocal starting, most
        starting += 1
        most = max(most, starting)
        await asyncio.sleep(0.5)
        starting -= 1

    names = [f"s{n:02}" for n in range(40)]
    net = MemoryNet(**{name: MemoryServer(on_start=start) for name in names})
    async with pool_of(net, max_starting=16) as pool:
        pool.apply({name: record(name) for name in names})
        await pool.settled(names)

        assert (most, now_s()) == (16, 1.5)
        assert {health.state for health in pool.health().values()} == {"connected"}


async def test_chd_2_an_opener_that_never_ends_is_given_up() -> None:
    net = MemoryNet(one=MemoryServer(on_start=hang))
    async with pool_of(net, first_list_wait_s=60, start_timeout_s=10) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])

        assert (now_s(), net["one"].starting) == (10.0, 0)
        assert (pool.tools()["one"].state, pool.health()["one"].last_error) == (
            "list_timeout",
            "no connection within 10 s",
        )


async def test_a_changed_list_is_seen_on_reconnect() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(prewarm=True)})
        await pool.settled(["one"])
        net["one"].crash()
        net["one"].tools = (definition("newer"),)
        await pass_time(1)

        assert list(pool.tools()["one"].tools) == ["newer"]
