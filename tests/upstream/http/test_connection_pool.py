"""The HTTP client: connections, their reuse and their end."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from tests.upstream.faulty_http import FaultyHttp, Peer, Request
from tests.upstream.http_pools import ANY, Gathered, echo, in_s, post, serving
from toolgate.upstream.http.client_connection import (
    ConnectFailed,
    ExchangeFailed,
    ExchangeTimedOut,
    HttpLimits,
    HttpResponse,
)
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import parse_target

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def test_a_loop_is_what_the_test_says(anyio_backend: tuple[str, dict[str, object]]) -> None:
    is_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)

    assert is_uvloop == anyio_backend[1]["use_uvloop"]


async def test_requests_in_turn_share_one_connection() -> None:
    async with serving(echo) as (server, pool):
        responses = [await pool.send(post(b"%d" % n), deadline=in_s(60)) for n in range(20)]

        assert [response.body for response in responses] == [b"%d" % n for n in range(20)]
        assert server.connections == 1


async def test_the_answer_is_status_headers_and_body() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n")
        await peer.send(b"HTTP/1.1 202 Accepted\r\nX-Late:  a b \t\r\nContent-Length: 2\r\n\r\nok")

    async with serving(script) as (_, pool):
        response = await pool.send(post(), deadline=in_s(60))

        assert response == HttpResponse(202, {b"x-late": b"a b", b"content-length": b"2"}, b"ok")


async def test_requests_at_once_have_a_connection_each_up_to_the_limit() -> None:
    async with serving(echo, limits=HttpLimits(max_connections=3)) as (server, pool):
        responses = await asyncio.gather(*(pool.send(post(b"%d" % n), deadline=in_s(60)) for n in range(40)))

        assert [response.body for response in responses] == [b"%d" % n for n in range(40)]
        assert server.connections == 3


async def test_a_request_that_finds_no_free_connection_waits_only_until_its_deadline() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.gone()

    async with serving(script, limits=HttpLimits(max_connections=1)) as (server, pool):
        first = asyncio.ensure_future(pool.send(post(b"1"), deadline=in_s(2)))
        second = asyncio.ensure_future(pool.send(post(b"2"), deadline=in_s(0.1)))

        with pytest.raises(ExchangeTimedOut, match="no connection"):
            await second
        with pytest.raises(ExchangeTimedOut):
            await first
        assert [request.body for request in server.requests] == [b"1"]


async def test_a_waiting_request_gets_the_place_of_one_that_failed() -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"die":
            peer.reset()
        else:
            await peer.respond(request.body)

    async with serving(script, limits=HttpLimits(max_connections=1)) as (_, pool):
        bodies = [b"die", b"1", b"die", b"2"]
        done = await asyncio.gather(
            *(pool.send(post(body), deadline=in_s(60)) for body in bodies), return_exceptions=True
        )

        assert [type(one).__name__ for one in done] == [
            "ExchangeFailed",
            "HttpResponse",
            "ConnectionStale",
            "HttpResponse",
        ]


async def test_a_pooled_connection_the_server_has_closed_is_skipped() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(request.body)
        if request.body == b"last":
            peer.close()

    async with serving(script) as (server, pool):
        await pool.send(post(b"last"), deadline=in_s(60))
        while pool.size:
            await asyncio.sleep(0)
        response = await pool.send(post(b"next"), deadline=in_s(60))

        assert (response.body, server.connections) == (b"next", 2)


async def test_a_close_that_the_event_loop_has_yet_to_see_is_noticed_before_writing() -> None:
    received = []

    def serve(listener: socket.socket, turn: threading.Barrier) -> None:
        for _ in range(2):
            accepted, _ = listener.accept()
            with accepted:
                received.append(accepted.recv(65536))
                accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                turn.wait(60)
            turn.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        turn = threading.Barrier(2)
        served = threads.submit(serve, listener, turn)
        target = parse_target(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        pool = HttpPool(target, ANY, limits=HttpLimits(fresh_s=0.0))
        for body in (b"first", b"second"):
            await pool.send(post(body), deadline=in_s(60))
            turn.wait(60)  # blocks the loop on purpose
            turn.wait(60)
        served.result(60)
        pool.close()

    assert received == [post(b"first"), post(b"second")]


@pytest.mark.parametrize("line", ["Connection: close", ""], ids=["said", "by its length"])
async def test_a_connection_the_server_ends_is_not_used_again(line: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if line:
            await peer.respond(request.body, headers=[line])
        else:
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\n" + request.body)
        peer.close()

    async with serving(script) as (server, pool):
        responses = [await pool.send(post(b"%d" % n), deadline=in_s(60)) for n in range(3)]

        assert [response.body for response in responses] == [b"0", b"1", b"2"]
        assert server.connections == 3


@pytest.mark.parametrize(
    ("content", "connections"), [("timeout=1", 3), ("timeout=60, max=9", 1), ("max=9", 1)]
)
async def test_a_connection_that_the_server_is_about_to_close_is_not_used_again(
    content: str, connections: int
) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(request.body, headers=[f"Keep-Alive: {content}"])

    async with serving(script) as (server, pool):
        for n in range(3):
            await pool.send(post(b"%d" % n), deadline=in_s(60))

        assert server.connections == connections


async def test_ssr_2_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with FaultyHttp(echo) as sentinel:

        async def script(request: Request, peer: Peer) -> None:
            await peer.respond(status=307, headers=[f"Location: {sentinel.url}"])

        async with serving(script) as (_, pool):
            response = await pool.send(post(), deadline=in_s(60))

            assert (response.status, sentinel.connections) == (307, 0)


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    has_ended = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(request.body)
        await peer.gone()
        has_ended.set()

    async with serving(script, limits=HttpLimits(idle_s=0.1)) as (_, pool):
        await pool.send(post(), deadline=in_s(60))

        await has_ended.wait()


async def test_a_stream_goes_to_its_sink_and_its_connection_back_to_the_pool() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b"abc")
        await peer.chunk(b"def")
        await peer.chunk(b"after the answer")
        await peer.end_stream()

    async with serving(script) as (server, pool):
        sinks = [Gathered(6), Gathered(6)]
        for sink in sinks:
            response = await pool.send(post(), deadline=in_s(60), sink=sink)
            assert (response.is_stream, response.body) == (True, b"")
            while pool.is_busy:
                await asyncio.sleep(0)

        assert [sink.data[:6] for sink in sinks] == [b"abcdef", b"abcdef"]
        assert server.connections == 1


async def test_a_stream_that_goes_on_after_its_answer_loses_its_connection() -> None:
    has_ended = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b"abc")
        await peer.gone()
        has_ended.set()

    async with serving(script) as (_, pool):
        await pool.send(post(), deadline=in_s(60), sink=Gathered(3))

        await has_ended.wait()


async def test_a_sink_is_left_alone_where_the_answer_is_no_stream() -> None:
    async with serving(echo) as (_, pool):
        sink = Gathered(1)
        response = await pool.send(post(b"plain"), deadline=in_s(60), sink=sink)

        assert (response.body, sink.data, sink.has_begun.is_set()) == (b"plain", b"", False)


async def test_closing_the_pool_fails_what_is_under_way_and_what_waits() -> None:
    has_arrived = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        has_arrived.set()
        await peer.gone()

    async with serving(script, limits=HttpLimits(max_connections=1)) as (_, pool):
        tasks = [asyncio.ensure_future(pool.send(post(), deadline=in_s(60))) for _ in range(2)]
        await has_arrived.wait()
        pool.close()
        done = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(one) for one in done] == [ExchangeFailed, ConnectFailed]
        with pytest.raises(ConnectFailed):
            await pool.send(post(), deadline=in_s(60))
