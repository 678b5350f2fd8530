"""Streams of HTTP servers that stay open, break off and are resumed."""

import asyncio

import pytest

from tests.upstream.faulty_http import FakeMcp, Peer, Request
from tests.upstream.http_links import OK, RecordingListener, linked, params, response
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"n": 1}}
TELLS = {"tools": {"listChanged": True}}
ERAS = pytest.mark.parametrize(("era", "stream"), [("legacy", "GET"), ("modern", "subscriptions/listen")])


@ERAS
async def test_a_server_that_says_so_is_listened_to(era: str, stream: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"})
        await peer.event(CHANGED)
        await peer.gone()

    received = RecordingListener()
    async with linked(FakeMcp(era, faults={stream: script}, capabilities=TELLS), received) as (server, link):
        await received.until_notified(1)
        rpc = await link.request("tools/call", params(arguments=1), timeout_s=60)

        assert received.notifications == [("notifications/tools/list_changed", b'{"n": 1}')]
        assert rpc == RpcResponse(result=b'{"echo": 1}')
        [request] = server.seen(stream)
        if era == "modern":
            assert request.message["params"]["notifications"] == {"toolsListChanged": True}
            assert request.headers["mcp-method"] == "subscriptions/listen"
        else:
            assert (request.headers["mcp-session-id"], request.headers["accept"]) == (
                "session-1",
                "text/event-stream",
            )


@ERAS
async def test_a_server_that_says_nothing_of_it_is_not_listened_to(era: str, stream: str) -> None:
    async with linked(FakeMcp(era)) as (server, link):
        await link.request("tools/call", params(arguments=1), timeout_s=60)

        assert server.seen(stream) == []


@ERAS
async def test_a_server_without_such_a_stream_is_asked_once(era: str, stream: str) -> None:
    received = RecordingListener()
    async with linked(FakeMcp(era, capabilities=TELLS), received) as (server, link):
        for n in range(50):
            await link.request("tools/call", params(arguments=n), timeout_s=60)

        assert (len(server.seen(stream)), received.closings) == (1, [])


@ERAS
async def test_ups_6_a_broken_stream_is_opened_again_not_before_half_a_second_whatever_retry_says(
    era: str, stream: str
) -> None:
    openings: list[float] = []

    async def script(request: Request, peer: Peer) -> None:
        openings.append(asyncio.get_running_loop().time())
        await peer.open_stream()
        await peer.chunk(b"retry: 0\nid: 7\n\n")
        if len(openings) == 1:
            peer.reset()
        else:
            await peer.gone()

    received = RecordingListener()
    async with linked(FakeMcp(era, faults={stream: script}, capabilities=TELLS), received) as (server, _):
        await received.until_notified(1)

        assert received.notifications == [
            ("notifications/tools/list_changed", b"{}")
        ]  # some may have been missed
        assert openings[1] - openings[0] >= 0.5
        if era == "legacy":
            assert [request.headers.get("last-event-id") for request in server.seen("GET")] == [None, "7"]


async def test_a_refused_subscription_is_not_tried_again() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.event(
            {"jsonrpc": "2.0", "id": request.message["id"], "error": {"code": 1, "message": "no"}}
        )
        await peer.end_stream()

    mcp = FakeMcp(faults={"subscriptions/listen": script}, capabilities=TELLS)
    async with linked(mcp) as (server, link):
        for n in range(50):
            await link.request("tools/call", params(arguments=n), timeout_s=60)

        assert len(server.seen("subscriptions/listen")) == 1


async def test_a_new_session_has_a_new_stream() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.gone()

    mcp = FakeMcp("legacy", faults={"GET": script}, capabilities=TELLS)
    async with linked(mcp) as (server, link):
        while not server.seen("GET"):
            await asyncio.sleep(0)
        mcp.sessions.clear()
        await link.request("tools/call", params(arguments=1), timeout_s=60)
        while len(server.seen("GET")) < 2:
            await asyncio.sleep(0)

        assert [request.headers["mcp-session-id"] for request in server.seen("GET")] == [
            "session-1",
            "session-2",
        ]


@pytest.mark.parametrize("how", ["ended", "broken"])
async def test_a_stream_that_stops_before_its_answer_is_resumed_where_it_stopped(how: str) -> None:
    asked: list[Request] = []

    async def begin(request: Request, peer: Peer) -> None:
        asked.append(request)
        await peer.open_stream()
        await peer.chunk(b"id: first\nretry: 10\ndata:\n\n")
        if how == "ended":
            await peer.end_stream()
        else:
            peer.reset()

    async def go_on(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        if request.headers["last-event-id"] == "first":
            await peer.chunk(b"id: second\ndata:\n\n")
            if how == "broken":
                peer.reset()
                return
        else:
            await peer.event(response(asked[0]))
        await peer.end_stream()

    mcp = FakeMcp("legacy", faults={"tools/call": begin, "GET": go_on})
    async with linked(mcp) as (server, link):
        rpc = await link.request("tools/call", params(arguments=1), timeout_s=60)

        assert rpc == OK
        assert len(server.seen("tools/call")) == 1
        assert [request.headers["last-event-id"] for request in server.seen("GET")] == ["first", "second"]


@pytest.mark.parametrize("status", [404, 405, 200])
async def test_a_stream_that_cannot_be_resumed_is_an_unknown_outcome(status: int) -> None:
    async def begin(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b"id: first\ndata:\n\n")
        await peer.end_stream()

    async def refuse(request: Request, peer: Peer) -> None:
        await peer.respond(status=status)

    mcp = FakeMcp("legacy", faults={"tools/call": begin, "GET": refuse})
    async with linked(mcp) as (server, link):
        with pytest.raises(ServerUnavailable, match=r"does not resume its stream .*unknown outcome"):
            await link.request("tools/call", params(arguments=1), timeout_s=60)

        assert (len(server.seen("tools/call")), len(server.seen("initialize"))) == (1, 1)


async def test_a_server_that_is_gone_when_its_stream_is_resumed_leaves_an_unknown_outcome() -> None:
    async def begin(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b"id: first\ndata:\n\n")
        await server.stop_listening()
        peer.reset()

    async with linked(FakeMcp("legacy", faults={"tools/call": begin})) as (server, link):
        with pytest.raises(ServerUnavailable, match="connection refused: unknown outcome"):
            await link.request("tools/call", params(arguments=1), timeout_s=60)


async def test_resuming_ends_at_the_deadline_of_the_call() -> None:
    async def begin(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b"id: first\nretry: 99999\ndata:\n\n")
        await peer.end_stream()

    async with linked(FakeMcp("legacy", faults={"tools/call": begin})) as (_, link):
        with pytest.raises(CallTimedOut):
            await link.request("tools/call", params(arguments=1), timeout_s=0.3)


async def test_a_flood_of_requests_from_a_server_is_not_answered_without_bound() -> None:
    answered = 0
    release = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        while answered < 32:
            await peer.event({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            await asyncio.sleep(0)
        for _ in range(1000):
            await peer.event({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        await peer.event(response(request))
        await peer.end_stream()

    async def take(request: Request, peer: Peer) -> None:
        nonlocal answered
        answered += 1
        await release.wait()
        await peer.respond(status=202)

    mcp = FakeMcp("legacy", faults={"tools/call": script, "answer": take})
    async with linked(mcp) as (_, link):
        rpc = await link.request("tools/call", params(arguments=1), timeout_s=60)
        release.set()

        assert rpc == OK
        assert 32 <= answered <= 96  # so many at once, given up after two seconds
