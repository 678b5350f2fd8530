"""Servers of both protocol revisions: each call is sent on one connection, chosen before."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.link_clients import SilentClient
from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, params, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.errors import ServerUnavailable
from toolgate.model.servers import HttpEndpoint
from toolgate.upstream.connection.contract import RpcResponse, StartFailed
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

FORMS = b'{"elicitation":{}}'
SESSION = SilentClient(capabilities=FORMS)
STATELESS = SilentClient(capabilities=FORMS, has_session=False)
NO_BACK_CHANNEL = RpcResponse(
    error=b'{"code":-32600,"message":"no back-channel for server-initiated requests"}'
)


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


@pytest.fixture
def net() -> MemoryNet:
    return MemoryNet(one=MemoryServer(is_of_both_revisions=True))


async def start(pool: Pool, **fields: Any) -> None:
    pool.apply({"one": record(**fields)})
    await pool.settled(["one"])


async def era_of(pool: Pool, client: SilentClient | None, tool: str = "echo") -> str:
    return (await pool.call("one", "tools/call", params(tool), client=client)).revision


async def test_a_call_uses_the_revision_of_a_client_that_takes_requests(net: MemoryNet) -> None:
    async with pool_of(net) as pool:
        await start(pool)
        eras = [await era_of(pool, client) for client in (None, STATELESS, SESSION, SilentClient(), SESSION)]
        health = pool.health()["one"]

    assert eras == ["modern", "modern", "legacy", "modern", "legacy"]
    assert (health.era, health.calls, health.session_links, len(net["one"].starts_s)) == ("modern", 5, 1, 2)


async def test_only_the_own_connection_of_a_server_lists(net: MemoryNet) -> None:
    async with pool_of(net) as pool:
        await start(pool)
        await era_of(pool, SESSION)

        assert len(net["one"].lists) == 1


async def test_calls_in_sessions_bring_back_the_own_connection_of_a_server_that_was_lost(
    net: MemoryNet,
) -> None:
    async with pool_of(net) as pool:
        await start(pool)
        await era_of(pool, SESSION)
        next(link for link in net["one"].links if link.server_info.revision == "modern").lose(
            "it exited with 1"
        )
        await asyncio.sleep(1)
        lost = pool.health()["one"].state
        era = await era_of(pool, SESSION)
        await asyncio.sleep(5)

        assert (lost, era, pool.health()["one"].state) == ("degraded", "legacy", "connected")
        assert len(net["one"].lists) == 2


async def test_a_server_that_rejects_sessions_is_called_on_its_own_connection() -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool)
        eras = [await era_of(pool, SESSION) for _ in range(3)]
        health = pool.health()["one"]

        assert (eras, net["one"].known_revisions) == (["modern"] * 3, [None, "legacy"])
        assert (health.state, health.last_error, len(net["one"].links)) == ("connected", "", 1)


async def test_a_session_that_cannot_be_opened_now_is_tried_again_later(net: MemoryNet) -> None:
    async def fail() -> None:
        raise StartFailed("it responded with status 503")

    async with pool_of(net) as pool:
        await start(pool)
        net["one"].on_start = fail
        meanwhile = await era_of(pool, SESSION)
        net["one"].on_start = None
        await asyncio.sleep(60)

        assert (meanwhile, await era_of(pool, SESSION)) == ("modern", "legacy")


async def test_sessions_that_cannot_be_opened_keep_one_call_waiting_and_not_each(net: MemoryNet) -> None:
    async def fail() -> None:
        await asyncio.sleep(9)
        raise StartFailed("it responded with status 503")

    behind_url = replace(
        record(), transport="streamable_http", stdio=None, http=HttpEndpoint(url="http://one.example")
    )
    async with pool_of(net) as pool:
        pool.apply({"one": behind_url})
        await pool.settled(["one"])
        net["one"].on_start = fail
        eras = [await era_of(pool, SESSION) for _ in range(5)]

        assert (eras, len(net["one"].starts_s)) == (["modern"] * 5, 2)


async def test_both_connections_share_the_room_of_the_record(net: MemoryNet) -> None:
    leave = asyncio.Event()

    async def wait(_arguments: Json) -> RpcResponse:
        await leave.wait()
        return RpcResponse(result=b"{}")

    net["one"].on_call = {"wait": wait}
    async with pool_of(net) as pool:
        await start(pool, concurrency=1)
        calls = [asyncio.ensure_future(era_of(pool, client, "wait")) for client in (STATELESS, SESSION)]
        await asyncio.sleep(1)
        load = pool.load()
        leave.set()

        assert (load.in_flight["one"], load.queued["one"], net["one"].most_in_flight) == (1, 1, 1)
        assert await asyncio.gather(*calls) == ["modern", "legacy"]


async def test_a_tool_that_needs_a_session_gets_one_from_its_next_call_on_and_is_sent_once(
    net: MemoryNet,
) -> None:
    async def refuse(_arguments: Json) -> RpcResponse:
        return NO_BACK_CHANNEL

    net["one"].on_call = {"ask": refuse}
    async with pool_of(net) as pool:
        await start(pool)
        eras = [await era_of(pool, STATELESS, tool) for tool in ("ask", "ask", "echo")]

        assert (eras, len(net["one"].calls)) == (["modern", "legacy", "modern"], 3)


async def test_a_server_that_cannot_do_what_its_record_forces_is_down(net: MemoryNet) -> None:
    net = MemoryNet()
    async with pool_of(net) as pool:
        await start(pool, protocol="session")
        health = pool.health()["one"]
        with pytest.raises(ServerUnavailable):
            await era_of(pool, SESSION)

    assert (health.state, 'its record requires `protocol = "session"`' in health.last_error) == ("down", True)


async def refuse() -> None:
    raise StartFailed("it exited with 1")


async def test_the_revision_is_remembered_and_probed_again_after_a_failed_start() -> None:
    net = MemoryNet(one=MemoryServer(era="legacy"))
    async with pool_of(net) as pool:
        pool.apply({"one": record(prewarm=True)})
        await pass_time(1)
        net["one"].crash()
        await pass_time(1)
        net["one"].on_start = refuse
        net["one"].crash()
        await pass_time(0.3)
        net["one"].on_start = None
        await pass_time(1)

    assert net["one"].known_revisions == [None, "legacy", "legacy", None]
