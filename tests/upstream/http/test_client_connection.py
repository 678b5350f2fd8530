"""The HTTP client against a server that does everything wrong."""

import asyncio
import gc

import pytest

from tests.upstream.faulty_http import Peer, Request
from tests.upstream.http_pools import Gathered, in_s, post, serving
from toolgate.upstream.http.client_connection import (
    ExchangeFailed,
    ExchangeTimedOut,
    HttpClientConnection,
    HttpLimits,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def test_ups_14_a_connection_that_dies_after_the_request_was_sent_is_not_tried_again() -> None:
    async def script(request: Request, peer: Peer) -> None:
        peer.reset()

    async with serving(script) as (server, pool):
        with pytest.raises(ExchangeFailed, match="closed the connection"):
            await pool.send(post(), deadline=in_s(60))

        assert len(server.requests) == 1


@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
async def test_ups_6_an_answer_in_single_bytes_is_given_up_before_it_has_kept_the_loop_busy(
    kind: bytes,
) -> None:
    async def script(request: Request, peer: Peer) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind
        await peer.send(head)
        while True:
            await peer.send(b"1\r\n \r\n" * 100_000)

    async with serving(script) as (_, pool):
        with pytest.raises(ExchangeFailed, match="too many pieces"):
            await pool.send(post(), deadline=in_s(60), sink=Gathered(10_000_000))


async def test_ups_5_a_connection_that_is_over_keeps_nothing_of_its_answers() -> None:
    """Without the collector's help, which may come long after so many answers that memory is full."""

    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(b"x" * 1_000_000, headers=["Connection: close"])

    gc.collect()
    gc.disable()
    try:
        async with serving(script) as (_, pool):
            before = connections()
            for _ in range(3):
                await pool.send(post(), deadline=in_s(60))
            while connections() > before:
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


def connections() -> int:
    """How many there are in memory, used or not."""
    return sum(isinstance(one, HttpClientConnection) for one in gc.get_objects())


async def test_ups_2_silence_ends_at_the_deadline_and_the_connection_is_gone() -> None:
    has_ended = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"hang":
            await peer.gone()
            has_ended.set()
        else:
            await peer.respond(request.body)

    async with serving(script, limits=HttpLimits(max_connections=1)) as (_, pool):
        with pytest.raises(ExchangeTimedOut):
            await pool.send(post(b"hang"), deadline=in_s(1))

        await has_ended.wait()
        assert (await pool.send(post(b"next"), deadline=in_s(60))).body == b"next"


async def test_ups_2_a_reset_in_the_middle_of_an_answer_is_a_failure() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 1024)
        peer.reset()

    async with serving(script) as (_, pool):
        with pytest.raises(ExchangeFailed, match="closed the connection"):
            await pool.send(post(), deadline=in_s(60))


async def test_ups_3_an_answer_in_drops_does_not_move_the_deadline() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
        while True:
            await peer.send(b"x")
            await asyncio.sleep(0.01)

    async with serving(script) as (_, pool):
        started = in_s(0)
        with pytest.raises(ExchangeTimedOut):
            await pool.send(post(), deadline=started + 0.2)

        assert in_s(0) - started < 30


async def test_a_cancelled_request_closes_its_connection() -> None:
    has_arrived, has_ended = asyncio.Event(), asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        has_arrived.set()
        await peer.gone()
        has_ended.set()

    async with serving(script) as (_, pool):
        task = asyncio.ensure_future(pool.send(post(), deadline=in_s(60)))
        await has_arrived.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        await has_ended.wait()
        assert not pool.is_busy


@pytest.mark.parametrize("framing", ["length", "chunked", "until close"])
async def test_an_answer_longer_than_the_limit_is_broken_off(framing: str) -> None:
    has_ended = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        length = {"length": b"Content-Length: 99999999\r\n", "chunked": b"Transfer-Encoding: chunked\r\n"}
        await peer.send(b"HTTP/1.1 200 OK\r\n" + length.get(framing, b"") + b"\r\n")
        part = b"x" * 4096
        try:
            while True:
                await (peer.chunk(part) if framing == "chunked" else peer.send(part))
        except ConnectionError:
            has_ended.set()
            raise

    async with serving(script, limits=HttpLimits(max_body_bytes=100_000)) as (_, pool):
        with pytest.raises(ExchangeFailed, match="longer than 100000 bytes"):
            await pool.send(post(), deadline=in_s(60))
        await has_ended.wait()


async def test_ups_5_of_an_error_page_only_the_beginning_is_read() -> None:
    sent = 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal sent
        await peer.send(b"HTTP/1.1 500 Oops\r\nContent-Length: 50000000\r\n\r\n")
        while sent < 50_000_000:
            await peer.send(b"<p>" * 10_000)
            sent += 30_000

    async with serving(script) as (_, pool):
        response = await pool.send(post(), deadline=in_s(60))

        assert (response.status, len(response.body)) == (500, 64 * 1024)
        assert sent < 10_000_000


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\nContent-Length: 0\r\n\r\n", id="one line"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n" + b"X: yy\r\n" * 30_000 + b"Content-Length: 0\r\n\r\n", id="many"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, id="never ended"),
        pytest.param(b"HTTP/1.1 103 Hints\r\n\r\n" * 10_000, id="interim answers"),
    ],
)
async def test_a_response_head_is_bounded(head: bytes) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(head)
        await peer.gone()

    async with serving(script) as (_, pool):
        with pytest.raises(ExchangeFailed, match="head is too long"):
            await pool.send(post(), deadline=in_s(60))


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        pytest.param(b"220 mail.example ESMTP\r\n", "not HTTP/1.1", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
            "compressed",
            id="encoded",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "not HTTP/1.1",
            id="two lengths",
        ),
        pytest.param(
            b"HTTP/1.1 101 Yes\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nhello",
            "not HTTP/1.1",
            id="upgrade",
        ),
    ],
)
async def test_what_was_not_asked_for_is_refused(response: bytes, reason: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(response)
        await peer.gone()

    async with serving(script) as (_, pool):
        with pytest.raises(ExchangeFailed, match=reason):
            await pool.send(post(), deadline=in_s(60))


async def test_an_answer_no_one_asked_for_never_reaches_the_next_request() -> None:
    async def script(request: Request, peer: Peer) -> None:
        response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
        await peer.send(response + b"mine" + (response + b"evil" if request.body == b"1" else b""))

    async with serving(script) as (server, pool):
        responses = [await pool.send(post(body), deadline=in_s(60)) for body in (b"1", b"2")]

        assert [response.body for response in responses] == [b"mine", b"mine"]
        assert server.connections == 2


async def test_what_a_server_says_on_an_idle_connection_costs_it_the_connection() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(request.body)
        if request.body == b"1":
            speak.set()
            await resume.wait()
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")

    speak, resume = asyncio.Event(), asyncio.Event()
    async with serving(script) as (_, pool):
        await pool.send(post(b"1"), deadline=in_s(60))
        await speak.wait()
        resume.set()
        while pool.size:
            await asyncio.sleep(0)
        response = await pool.send(post(b"2"), deadline=in_s(60))

        assert response.body == b"2"


async def test_a_stream_that_its_sink_refuses_is_broken_off() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b"X")
        await peer.gone()

    async with serving(script) as (_, pool):
        with pytest.raises(ExchangeFailed, match="an X"):
            await pool.send(post(), deadline=in_s(60), sink=Gathered(3))
