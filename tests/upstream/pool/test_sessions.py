"""`sharing = "per_session"`: who gets which link, when it ends, and what it costs the others."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.contract.link_clients import SilentClient
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
from toolgate.errors import CallTimedOut, ServerBusy, ServerUnavailable
from toolgate.model.servers import ServerRecord
from toolgate.upstream.connection.contract import RpcResponse, StartFailed
from toolgate.upstream.pool.connectors import ALL_CAPABILITIES
from toolgate.upstream.pool.pool import CallOrigin, Pool

pytestmark = pytest.mark.anyio

CALL = "tools/call"
ROOTS = b'{"roots":{}}'


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


def own(server_id: str = "one", **fields: Any) -> ServerRecord:
    return record(server_id, sharing="per_session", **fields)


async def start(pool: Pool, *records: ServerRecord) -> None:
    pool.apply({one.server_id: one for one in records or (own(),)})
    await pool.settled([one.server_id for one in records or (own(),)])


async def call(pool: Pool, session: str = "", name: str = "echo", **options: Any) -> None:
    await pool.call("one", CALL, params(name), origin=CallOrigin(session), **options)


async def hang(_: Json) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError


def session_pids(net: MemoryNet) -> list[int | None]:
    """The links open now, but for the one that lists."""
    return [link.pid for link in net["one"].links][1:]


async def test_each_session_has_a_link_of_its_own_and_keeps_it() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool)
        for session in ("a", "b", "a", "", "b"):
            await call(pool, session)
        health, load = pool.health()["one"], pool.load()

        assert (len(session_pids(net)), health.session_links, health.calls, load.children) == (3, 3, 5, 4)


async def test_the_server_is_notified_what_the_client_of_the_session_can_do() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool)
        await call(pool, "a", client=SilentClient(capabilities=ROOTS))
        await call(pool, "b", client=SilentClient())
        await call(pool, "c")

        assert net["one"].capabilities_sent == [ALL_CAPABILITIES, ROOTS, b"{}", b"{}"]
        assert net["one"].known_revisions == [None, "legacy", "modern", "modern"]


async def test_a_session_that_ends_closes_its_links_to_all_servers_and_no_other() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool, own("one"), own("two"), record("three"))
        for session in ("a", "b"):
            for server_id in ("one", "two", "three"):
                await pool.call(server_id, CALL, params("echo"), origin=CallOrigin(session))
        before = [pool.health()[server_id].session_links for server_id in ("one", "two", "three")]
        pool.end_session("a")
        pool.end_session("no-one")
        await pass_time(1)
        after = [pool.health()[server_id].session_links for server_id in ("one", "two", "three")]

        assert (before, after) == ([2, 2, 0], [1, 1, 0])
        assert [len(net[server_id].links) for server_id in ("one", "two", "three")] == [2, 2, 1]
        assert pool.health()["one"].calls == 2


async def test_calls_of_a_session_that_ends_fail_and_those_of_others_go_on() -> None:
    net = MemoryNet(one=MemoryServer(on_call={"hang": hang}))
    async with pool_of(net) as pool:
        await start(pool)
        calls = [asyncio.create_task(call(pool, session, "hang")) for session in ("a", "b")]
        await pass_time(1)
        pool.end_session("a")
        await pass_time(1)
        states = [one.done() for one in calls]
        calls[1].cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)

    assert states == [True, False]
    assert isinstance(ended[0], ServerUnavailable)


@pytest.mark.parametrize(("timeout_s", "idle_s"), [(0, 300.0), (20, 20.0)])
async def test_an_unused_link_of_a_session_is_closed_and_the_next_call_opens_another(
    timeout_s: int, idle_s: float
) -> None:
    closings: list[str] = []

    async def on_close() -> None:
        closings.append("to the end")

    net = MemoryNet(one=MemoryServer(on_close=on_close))
    async with pool_of(net) as pool:
        await start(pool, own(idle_timeout_s=timeout_s, prewarm=True))
        await call(pool, "a")
        await pass_time(idle_s - 1)
        kept = pool.health()["one"].session_links
        await pass_time(2)
        closed = (pool.health()["one"].session_links, session_pids(net), tuple(closings))
        await call(pool, "a")

        assert (kept, closed, pool.health()["one"].session_links) == (1, (0, [], ("to the end",)), 1)


async def test_a_link_with_a_call_in_flight_is_not_unused() -> None:
    net = MemoryNet(one=MemoryServer(on_call={"hang": hang}))
    async with pool_of(net) as pool:
        await start(pool, own(idle_timeout_s=5, timeout_ms=60_000))
        with pytest.raises(CallTimedOut, match="60 s"):
            await call(pool, "a", "hang")


async def test_one_session_too_many_is_rejected_at_once_and_has_room_when_another_ends() -> None:
    async with pool_of(MemoryNet(), session_connections=2) as pool:
        await start(pool)
        for session in ("a", "b"):
            await call(pool, session)
        with pytest.raises(ServerBusy, match="`one` serves 2 sessions on this node") as caught:
            await call(pool, "c")
        await call(pool, "a")
        pool.end_session("b")
        await call(pool, "c")

    assert "close sessions" in caught.value.hint


async def test_bud_5_no_one_takes_all_sessions_of_a_server() -> None:
    async with pool_of(MemoryNet(), session_connections=10) as pool:
        await start(pool)
        for number in range(8):
            await call(pool, f"ada-{number}", client=SilentClient())
        with pytest.raises(ServerBusy, match="`one` serves 8 sessions"):
            await call(pool, "ada-8", client=SilentClient())
        await call(pool, "bob", client=SilentClient("bob"))
        await call(pool, "ada-0", client=SilentClient())

        assert pool.health()["one"].session_links == 9


async def test_budgets_hold_for_each_link_and_follow_the_record() -> None:
    net = MemoryNet(one=MemoryServer(on_call={"hang": hang}))
    async with pool_of(net, queue=0) as pool:
        await start(pool, own(concurrency=1))
        calls = [asyncio.create_task(call(pool, session, "hang")) for session in ("a", "b")]
        await pass_time(1)
        with pytest.raises(ServerBusy, match="1 calls in flight"):
            await call(pool, "a")
        pool.apply({"one": own(concurrency=2)})
        await call(pool, "a")
        in_flight = (pool.health()["one"].in_flight, pool.load().in_flight, len(net["one"].starts_s))
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    assert in_flight == (2, {"one": 2}, 3)


async def test_chd_4_a_lost_link_costs_its_session_alone_and_the_next_call_opens_another() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool)
        await call(pool, "a")
        await call(pool, "b")
        before = session_pids(net)
        net["one"].links[1].lose("it exited with 9")
        await pass_time(1)
        health = pool.health()["one"]
        await call(pool, "a")
        await call(pool, "b")
        after = session_pids(net)

    assert (health.state, health.last_error, health.session_links) == ("connected", "it exited with 9", 1)
    assert (after[0], len({*before, *after})) == (before[1], 3)


async def test_chd_1_a_session_with_its_link_cannot_be_opened_backs_off_alone() -> None:
    async def refuse() -> None:
        raise StartFailed("no room for another child")

    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool)
        await call(pool, "a")
        net["one"].on_start = refuse
        for _ in range(3):
            with pytest.raises(ServerUnavailable, match="`one` is down"):
                await call(pool, "b")
        await call(pool, "a")
        starts, health = len(net["one"].starts_s), pool.health()["one"]
        net["one"].on_start = None
        await pass_time(1)
        await call(pool, "b")

    assert (starts, health.state, health.last_error) == (3, "connected", "no room for another child")


async def test_a_changed_launch_lets_calls_of_sessions_finish_and_opens_new_links() -> None:
    async def slow(_: Json) -> RpcResponse:
        await asyncio.sleep(5)
        return RpcResponse(result=text_result("slow"))

    net = MemoryNet(one=MemoryServer(on_call={"slow": slow}))
    async with pool_of(net) as pool:
        await start(pool)
        calling = asyncio.create_task(call(pool, "a", "slow"))
        await pass_time(1)
        old = session_pids(net)
        await start(pool, own(command="other"))
        await call(pool, "a")
        await calling
        await pass_time(1)
        new = session_pids(net)

        assert len(old) == len(new) == 1
        assert old != new


@pytest.mark.parametrize("how", ["removed", "disabled", "shared from now on"])
async def test_links_of_sessions_end_with_the_record(how: str) -> None:
    records = {
        "removed": {},
        "disabled": {"one": own(enabled=False)},
        "shared from now on": {"one": record()},
    }
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool)
        await call(pool, "a")
        pool.apply(records[how])
        await pass_time(1)
        links = len(net["one"].links)
        if how != "shared from now on":
            with pytest.raises(ServerUnavailable):
                await call(pool, "a")

        assert links == (1 if how == "shared from now on" else 0)


async def test_leaving_closes_the_links_of_sessions_and_cuts_their_drains_short() -> None:
    net = MemoryNet(one=MemoryServer(on_call={"hang": hang}))
    async with pool_of(net) as pool:
        await start(pool)
        calling = asyncio.create_task(call(pool, "a", "hang"))
        await pass_time(1)
        await start(pool, own(command="other"))
        await call(pool, "a")
        pool.apply({"one": own(command="other")})
        left_s = asyncio.get_running_loop().time()
    ended = await asyncio.gather(calling, return_exceptions=True)

    assert (net["one"].links, asyncio.get_running_loop().time()) == ([], left_s)
    assert isinstance(ended[0], ServerUnavailable)


async def test_what_the_link_of_a_session_says_of_lists_leads_to_a_list() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool)
        await call(pool, "a")
        net["one"].tools = (definition("other"),)
        net["one"].links[1].listener.on_notification("notifications/tools/list_changed", b"{}")
        await pass_time(2)

        assert list(pool.tools()["one"].tools) == ["other"]


async def test_a_server_that_no_one_listed_for_long_is_listed_when_a_session_opens() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool, own(idle_timeout_s=5))
        await pass_time(1000)
        idle, lists = pool.health()["one"].state, len(net["one"].lists_s)
        net["one"].tools = (definition("other"),)
        await call(pool, "a")
        await pass_time(1)

        assert (idle, lists, list(pool.tools()["one"].tools)) == ("idle", 1, ["other"])


async def test_a_trial_of_such_a_server_claims_all_capabilities() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        report = await pool.test(own())

    assert (list(report.tools), net["one"].capabilities_sent) == (["echo"], [ALL_CAPABILITIES])
    assert "roots" in msgspec.json.decode(ALL_CAPABILITIES)
