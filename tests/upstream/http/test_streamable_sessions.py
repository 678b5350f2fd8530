"""Links over HTTP: sessions that are lost, and how a link ends."""

import asyncio

import pytest

from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request
from tests.upstream.http_links import (
    OK,
    SECRET,
    RecordingListener,
    call,
    calling,
    echoed,
    hang,
    linked,
    open_link,
    record_for,
)
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.upstream.http.client_connection import HttpLimits

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def test_ups_7_a_lost_session_is_opened_again_once_for_a_hundred_calls() -> None:
    mcp = FakeMcp("legacy")
    received = RecordingListener()
    async with linked(mcp, received) as (server, link):
        await call(link)
        mcp.sessions.clear()
        responses = await asyncio.gather(*(call(link, n) for n in range(100)))

        assert responses == [echoed(n) for n in range(100)]
        assert len(server.seen("initialize")) == 2
        executed = [
            request
            for request in server.seen("tools/call")
            if request.headers["mcp-session-id"] == "session-2"
        ]
        assert len(executed) == 100
        assert (received.notifications, received.closings) == (
            [("notifications/tools/list_changed", b"{}")],
            [],
        )


@pytest.mark.parametrize(
    ("status", "body", "is_lost"),
    [
        pytest.param(404, b"", True, id="404"),
        pytest.param(404, b'{"id":null,"error":{"code":-32001,"message":"x"}}', True, id="404 with an error"),
        pytest.param(
            400, b'{"id":null,"error":{"code":-32000,"message":"No valid session ID"}}', True, id="400"
        ),
        pytest.param(400, b'{"id":null,"error":{"code":-32000,"message":"bad"}}', False, id="another 400"),
        pytest.param(500, b"no session", False, id="500"),
    ],
)
async def test_how_servers_say_that_a_session_is_lost(status: int, body: bytes, is_lost: bool) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.headers["mcp-session-id"] == "session-1":
            await peer.respond(body, status=status)
        else:
            await peer.result(request, {"said": "ok"})

    async with linked(calling("legacy", script)) as (server, link):
        if is_lost:
            assert await call(link) == OK
        else:
            with pytest.raises(ServerUnavailable, match=f"status {status}"):
                await call(link)

        assert len(server.seen("initialize")) == 1 + is_lost


async def test_a_session_that_is_lost_again_at_once_is_not_chased() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(status=404)

    async with linked(calling("legacy", script)) as (server, link):
        with pytest.raises(ServerUnavailable, match="status 404"):
            await call(link)

        assert (len(server.seen("initialize")), len(server.seen("tools/call"))) == (2, 2)


async def test_a_session_that_cannot_be_opened_again_ends_the_link_once() -> None:
    mcp = FakeMcp("legacy")
    received = RecordingListener()
    async with linked(mcp, received, auth_ref="TOKEN") as (_, link):

        async def refuse(request: Request, peer: Peer) -> None:
            await peer.error(request, -32000, message=f"no more {SECRET}")

        mcp.sessions.clear()
        mcp.faults |= {"initialize": refuse, "server/discover": refuse}
        done = await asyncio.gather(*(call(link) for _ in range(10)), return_exceptions=True)

        assert {type(one) for one in done} == {ServerUnavailable}
        [reason] = received.closings
        assert "session was lost" in reason
        assert "no more [redacted]" in reason
        with pytest.raises(ServerUnavailable, match="session was lost"):
            await call(link)


@pytest.mark.parametrize(("was", "now"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_server_replaced_by_one_of_the_other_revision_ends_the_connection(was: str, now: str) -> None:
    async def refuse(request: Request, peer: Peer) -> None:
        if request.message["params"].get("arguments") == "bad":
            await peer.respond(status=400)
        else:
            await peer.result(request, {"said": "ok"})

    async def not_now(request: Request, peer: Peer) -> None:
        await peer.error(request, -32602, status=400)

    mcp = calling(was, refuse)
    received = RecordingListener()
    async with linked(mcp, received) as (server, link):
        with pytest.raises(ServerUnavailable, match="status 400"):
            await call(link, "bad")  # only the call is wrong: the connection stays open
        checks = len(server.seen("ping" if was == "legacy" else "server/discover"))
        assert (await call(link), received.closings) == (OK, [])

    other = FakeMcp(was)
    async with linked(other, received) as (_, link):
        other.eras = (now,)
        other.faults |= {"tools/call": not_now, "ping": not_now}
        with pytest.raises(ServerUnavailable, match="no longer supports"):
            await call(link)
        assert (checks, len(received.closings)) == (1 if was == "legacy" else 2, 1)


async def test_a_call_waits_for_a_new_session_only_until_its_own_deadline() -> None:
    mcp = FakeMcp("legacy")
    async with linked(mcp) as (_, link):
        mcp.sessions.clear()
        mcp.faults["initialize"] = hang

        with pytest.raises(CallTimedOut):
            await call(link, timeout_s=0.2)


@ERAS
async def test_a_server_that_is_gone_ends_the_link_once(era: str) -> None:
    received = RecordingListener()
    async with FaultyHttp(FakeMcp(era)) as server:
        link = await open_link(record_for(server.url), received)
        await call(link)
    done = []
    while not received.closings:  # the first may still meet the end of a pooled connection
        done += await asyncio.gather(*(call(link) for _ in range(3)), return_exceptions=True)

    assert {type(one) for one in done} == {ServerUnavailable}
    [reason] = received.closings
    assert "connection refused" in reason
    await link.aclose()


@ERAS
async def test_a_refused_connect_does_not_end_a_connection_that_serves_others(era: str) -> None:
    release = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await release.wait()
        await peer.result(request, {"said": "ok"})

    received = RecordingListener()
    server = FaultyHttp(calling(era, script))
    async with asyncio.timeout(60), server:
        link = await open_link(record_for(server.url), received)
        first = asyncio.ensure_future(call(link))
        while not server.seen("tools/call"):
            await asyncio.sleep(0)
        await server.stop_listening()
        with pytest.raises(ServerUnavailable, match="connection refused"):
            await call(link)
        release.set()

        assert (await first, received.closings) == (OK, [])
        await link.aclose()


@ERAS
async def test_a_link_closed_under_a_call_fails_it_without_a_word_to_the_listener(era: str) -> None:
    received = RecordingListener()
    async with linked(calling(era, hang), received) as (server, link):
        task = asyncio.ensure_future(call(link))
        while not server.seen("tools/call"):
            await asyncio.sleep(0)
        await link.aclose()

        with pytest.raises(ServerUnavailable):
            await task
        with pytest.raises(ServerUnavailable, match="was closed"):
            await call(link)
        assert received.closings == []


@ERAS
async def test_many_calls_over_few_connections_all_get_their_own_response(era: str) -> None:
    async with linked(FakeMcp(era), limits=HttpLimits(max_connections=4)) as (server, link):
        responses = await asyncio.gather(*(call(link, n) for n in range(200)))

        assert responses == [echoed(n) for n in range(200)]
        assert server.connections == 4
