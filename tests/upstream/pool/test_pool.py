"""The pool as a whole: what follows from a change of records, from waiting, asking, trying and leaving."""

import asyncio
import time

import pytest

from tests.upstream.memory_link import (
    Json,
    MemoryNet,
    MemoryServer,
    definition,
    params,
    pool_of,
    record,
    text_result,
)
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import NotFound, ServerUnavailable
from toolgate.model.protocol import LEGACY_VERSIONS, MODERN_VERSION
from toolgate.model.tools import ServerTools
from toolgate.upstream.connection.contract import RpcResponse, StartFailed
from toolgate.upstream.pool.connectors import TrialReport
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import ServerResponse

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def hang() -> None:
    await asyncio.Event().wait()


async def after_three_seconds(_: Json) -> RpcResponse:
    await asyncio.sleep(3)
    return RpcResponse(result=text_result("late"))


async def test_records_show_at_once_and_their_tools_when_listed() -> None:
    changed: list[str] = []
    async with pool_of(MemoryNet(), on_change=changed.append) as pool:
        records = {"one": record("one"), "off": record("off", enabled=False)}
        pool.apply(records)
        at_once = dict(pool.tools())
        await pool.settled(records)

        assert at_once == {name: ServerTools(record=records[name]) for name in ("one", "off")}
        assert list(pool.tools()["one"].tools) == ["echo"]
        assert (pool.tools()["off"], pool.health()["off"].state) == (at_once["off"], "disabled")
    assert changed == ["one"]


@pytest.mark.requirement("002-014", "002-047")
async def test_health_of_a_connected_server() -> None:
    began_ms = time.time_ns() // 1_000_000
    tools = (definition("a"), definition("b"), b"{}")
    async with pool_of(MemoryNet(one=MemoryServer(era="legacy", tools=tools))) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        health = pool.health()["one"]

    assert health == ServerHealth(
        state="connected",
        since_ms=health.since_ms,
        pid=1000,
        era="legacy",
        version=LEGACY_VERSIONS[0],
        tools=2,
        quarantined=1,
        last_list_ms=0,
        verified_ms=health.verified_ms,
    )
    assert began_ms <= health.since_ms <= health.verified_ms <= time.time_ns() // 1_000_000


@pytest.mark.requirement("002-077")
async def test_applying_the_same_records_again_does_nothing() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        for _ in range(3):
            pool.apply({"one": record()})
            await pool.settled(["one"])

    assert (len(net["one"].starts_s), len(net["one"].lists_s)) == (1, 1)


async def test_a_record_with_other_rules_keeps_its_link_and_its_tools() -> None:
    net = MemoryNet()
    changed: list[str] = []
    async with pool_of(net, on_change=changed.append) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        before = pool.tools()["one"]
        pool.apply({"one": record(allowed_tools=("echo",))})
        after = pool.tools()["one"]

    assert (after.record.allowed_tools, after.tools is before.tools) == (("echo",), True)
    assert (len(net["one"].starts_s), changed) == (1, ["one"])


@pytest.mark.requirement("002-078")
async def test_a_changed_launch_reconnects_while_calls_in_flight_and_in_line_finish_on_the_old_link() -> None:
    net = MemoryNet(one=MemoryServer(on_call={"slow": after_three_seconds}))
    async with pool_of(net) as pool:
        pool.apply({"one": record(concurrency=1)})
        await pool.settled(["one"])
        slow = [asyncio.create_task(pool.call("one", CALL, params("slow"))) for _ in range(2)]
        await pass_time(1)
        old = net["one"].links[0]
        pool.apply({"one": record(command="other", concurrency=1)})
        await pool.settled(["one"])
        both = len(net["one"].links)
        await pool.call("one", CALL, params("echo"))
        answered_s = now_s()
        responses = await asyncio.gather(*slow)
        await pass_time(0)

        assert (both, answered_s) == (2, 1.0)
        assert responses == [ServerResponse(RpcResponse(result=text_result("late")), "modern")] * 2
        assert now_s() == 6.0
        assert old not in net["one"].links
        assert len(net["one"].links) == 1


async def test_a_drain_has_an_end() -> None:
    async def never(_: Json) -> RpcResponse:
        await asyncio.Event().wait()
        raise AssertionError

    net = MemoryNet(one=MemoryServer(on_call={"hang": never}))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        hanging = asyncio.create_task(pool.call("one", CALL, params("hang")))
        await pass_time(1)
        pool.apply({"one": record(command="other")})
        with pytest.raises(ServerUnavailable):
            await hanging

        assert now_s() == 11.0


async def test_a_call_that_waits_for_a_link_fails_when_the_launch_changes() -> None:
    net = MemoryNet(one=MemoryServer(on_start=hang))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        waiting = asyncio.create_task(pool.call("one", CALL, params("echo")))
        await pass_time(1)
        pool.apply({"one": record(command="other")})
        with pytest.raises(ServerUnavailable, match="changed meanwhile; nothing was sent"):
            await waiting

        assert now_s() == 1.0


@pytest.mark.parametrize("how", ["removed", "disabled"])
async def test_a_server_that_is_taken_away_is_closed_at_once_and_its_calls_fail(how: str) -> None:
    net = MemoryNet(one=MemoryServer(on_call={"slow": after_three_seconds}))
    async with pool_of(net) as pool:
        pool.apply({"one": record(concurrency=1)})
        await pool.settled(["one"])
        calls = [asyncio.create_task(pool.call("one", CALL, params("slow"))) for _ in range(3)]
        await pass_time(1)
        pool.apply({} if how == "removed" else {"one": record(concurrency=1, enabled=False)})
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [ServerUnavailable] * 3
        assert (now_s(), len(net["one"].calls), net["one"].links) == (1.0, 1, [])
        assert {name: tools.tools for name, tools in pool.tools().items()} == (
            {} if how == "removed" else {"one": {}}
        )


async def test_a_server_removed_while_it_starts_leaves_nothing() -> None:
    net = MemoryNet(one=MemoryServer(on_start=hang))
    async with pool_of(net) as pool:
        tasks = len(asyncio.all_tasks())
        pool.apply({"one": record()})
        refreshing = asyncio.create_task(pool.refresh("one"))
        await pass_time(1)
        starting = net["one"].starting
        pool.apply({})
        await pool.settled(["one"])
        await refreshing
        await pass_time(0)

        assert (starting, net["one"].starting, net["one"].links) == (1, 0, [])
        assert (dict(pool.tools()), len(asyncio.all_tasks())) == ({}, tasks)


async def test_a_server_removed_before_it_began_to_start_is_never_started() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        pool.apply({})
        await pass_time(1)

    assert net["one"].starts_s == []


async def test_settled_waits_for_the_first_list_only() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        net["one"].on_start = hang
        net["one"].crash()
        await pass_time(200)
        asked_s = now_s()
        await pool.settled(["one", "unknown"])

        assert now_s() == asked_s


async def test_settled_waits_no_longer_than_the_time_since_the_server_came() -> None:
    net = MemoryNet(one=MemoryServer(on_start=hang))
    async with pool_of(net, first_list_wait_s=5) as pool:
        pool.apply({"one": record()})
        await pass_time(3)
        await pool.settled(["one"])
        first_s = now_s()
        await pool.settled(["one"])

        assert (first_s, now_s()) == (5.0, 5.0)


async def test_settled_returns_when_a_first_attempt_fails() -> None:
    async def fail() -> None:
        await asyncio.sleep(2)
        raise StartFailed("no route")

    async with pool_of(MemoryNet(one=MemoryServer(on_start=fail))) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])

        assert (now_s(), pool.tools()["one"].state, pool.tools()["one"].detail) == (
            2.0,
            "list_failed",
            "no route",
        )


async def test_refresh_lists_now_and_returns_with_the_result() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=10), "off": record("off", enabled=False)})
        await pass_time(60)
        net["one"].tools = (definition("new"),)
        await pool.refresh("one")
        await pool.refresh("off")

        assert list(pool.tools()["one"].tools) == ["new"]
        with pytest.raises(NotFound):
            await pool.refresh("two")


async def test_refresh_during_a_list_waits_for_the_next_one() -> None:
    net = MemoryNet()
    server = net["one"]

    async def slow(_: Json) -> RpcResponse:
        tools = server.tools
        await asyncio.sleep(2)
        return RpcResponse(result=b'{"tools":[%b]}' % b",".join(tools))

    server.on_list = slow
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pass_time(1)
        server.tools = (definition("new"),)
        await pool.refresh("one")

        assert (now_s(), list(pool.tools()["one"].tools)) == (4.0, ["new"])


async def test_a_test_connects_next_to_the_pool_and_reports() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        live = pool.health()["one"]
        net["one"].tools = (definition("a"), b'{"name":"bad","inputSchema":7}')
        report = await pool.test(record())

        assert report == TrialReport(
            connect_ms=report.connect_ms,
            list_ms=report.list_ms,
            era="modern",
            version=MODERN_VERSION,
            tools=report.tools,
            quarantined=report.quarantined,
        )
        assert None not in {report.connect_ms, report.list_ms}
        assert (list(report.tools), list(report.quarantined)) == (["a"], ["bad"])
        assert (pool.health()["one"], len(net["one"].links)) == (live, 1)


async def test_a_test_reports_what_failed() -> None:
    async def fail() -> None:
        raise StartFailed("no command `nope`", fatal=True)

    async def broken(_: Json) -> RpcResponse:
        return RpcResponse(error=b"{}")

    net = MemoryNet(one=MemoryServer(on_start=fail), two=MemoryServer(on_list=broken))
    async with pool_of(net) as pool:
        no_start = await pool.test(record("one"))
        no_list = await pool.test(record("two"))

    assert no_start == TrialReport(error="no command `nope`")
    assert no_list == TrialReport(
        connect_ms=no_list.connect_ms,
        era="modern",
        version=MODERN_VERSION,
        error="the server rejected `tools/list`: {}",
    )
    assert no_list.connect_ms is not None
    assert net["two"].links == []


async def test_leaving_closes_every_link_and_leaves_no_task() -> None:
    tasks = len(asyncio.all_tasks())
    net = MemoryNet()
    async with pool_of(net) as pool:
        names = [f"s{n}" for n in range(20)]
        pool.apply({name: record(name) for name in names})
        await pool.settled(names)
        links = sum(len(net[name].links) for name in names)

    assert (links, sum(len(net[name].links) for name in names)) == (20, 0)
    assert (len(asyncio.all_tasks()), now_s()) == (tasks, 0.0)


async def test_shu_6_leaving_while_servers_start_and_links_drain_takes_no_time() -> None:
    net = MemoryNet(one=MemoryServer(on_start=hang), two=MemoryServer(on_call={"slow": after_three_seconds}))
    async with pool_of(net) as pool:
        pool.apply({"one": record("one"), "two": record("two")})
        await pool.settled(["two"])
        slow = asyncio.create_task(pool.call("two", CALL, params("slow")))
        await pass_time(1)
        pool.apply({"one": record("one"), "two": record("two", command="other")})
    outcome = await asyncio.gather(slow, return_exceptions=True)

    assert (now_s(), net["one"].starting, net["two"].links) == (1.0, 0, [])
    assert isinstance(outcome[0], ServerUnavailable)


async def test_leaving_cuts_a_drain_under_way_short() -> None:
    net = MemoryNet(one=MemoryServer(on_call={"slow": after_three_seconds}))
    async with pool_of(net) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])
        slow = asyncio.create_task(pool.call("one", CALL, params("slow")))
        await pass_time(1)
        pool.apply({"one": record(command="other")})
        await pass_time(1)
        pool.apply({"one": record(command="another")})
        await pass_time(0.5)
    outcome = await asyncio.gather(slow, return_exceptions=True)

    assert (now_s(), net["one"].links) == (2.5, [])
    assert isinstance(outcome[0], ServerUnavailable)


async def test_leaving_by_an_error_closes_all_the_same_and_lets_it_through() -> None:
    net = MemoryNet()

    async def fail() -> None:
        async with pool_of(net) as pool:
            pool.apply({"one": record()})
            await pool.settled(["one"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert net["one"].links == []


async def test_leaving_by_cancellation_closes_all_the_same() -> None:
    net = MemoryNet()

    async def serve() -> None:
        async with pool_of(net) as pool:
            pool.apply({"one": record()})
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    await pass_time(1)
    links = len(net["one"].links)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    assert (links, net["one"].links, serving.cancelled()) == (1, [], True)


async def test_leaving_does_not_wait_for_a_link_that_never_closes(caplog: pytest.LogCaptureFixture) -> None:
    async with pool_of(MemoryNet(one=MemoryServer(on_close=hang))) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])

    assert now_s() == 10.0
    assert "did not stop within 10 s" in caplog.text


async def test_a_link_that_fails_to_close_is_logged_and_nothing_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise OSError("no such process")

    async with pool_of(MemoryNet(one=MemoryServer(on_close=fail))) as pool:
        pool.apply({"one": record()})
        await pool.settled(["one"])

    assert "its connection did not close" in caplog.text
