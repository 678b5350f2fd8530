"""The HTTP client against a server that does everything wrong."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from tests.upstream.certificates import Authority
from tests.upstream.faulty_http import FaultyHttp, Peer, Request, Script
from toolgate.upstream.egress import Egress, parse_target
from toolgate.upstream.http import ConnectFailed, HttpPool
from toolgate.upstream.http_connection import (
    Answer,
    ExchangeFailed,
    ExchangeTimedOut,
    HttpLimits,
    StreamRefused,
)

pytestmark = pytest.mark.anyio

ANY = Egress(allow_private=True)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def post(body: bytes = b"{}") -> bytes:
    return b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def in_s(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def serving(
    script: Script, *, limits: HttpLimits | None = None, url: str = ""
) -> AsyncIterator[tuple[FaultyHttp, HttpPool]]:
    async with FaultyHttp(script) as server:
        pool = HttpPool(parse_target(url or server.url), ANY, limits=limits)
        try:
            async with asyncio.timeout(10):
                yield server, pool
        finally:
            pool.close()


async def echo(request: Request, peer: Peer) -> None:
    await peer.answer(request.body)


class Gathered:
    """A sink that wants `wanted` bytes and refuses any with an X."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.data = b""
        self.has_begun = asyncio.Event()

    def begin(self) -> None:
        self.has_begun.set()

    def feed(self, chunk: bytes) -> bool:
        if b"X" in chunk:
            raise StreamRefused("an X")
        self.data += chunk
        return len(self.data) >= self.wanted


async def test_a_loop_is_what_the_test_says(anyio_backend: tuple[str, dict[str, object]]) -> None:
    is_uvloop = isinstance(asyncio.get_running_loop(), uvloop.Loop)

    assert is_uvloop == anyio_backend[1]["use_uvloop"]


async def test_requests_in_turn_share_one_connection() -> None:
    async with serving(echo) as (server, pool):
        answers = [await pool.send(post(b"%d" % n), deadline=in_s(5)) for n in range(20)]

        assert [answer.body for answer in answers] == [b"%d" % n for n in range(20)]
        assert server.connections == 1


async def test_the_answer_is_status_headers_and_body() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n")
        await peer.send(b"HTTP/1.1 202 Accepted\r\nX-Late:  a b \t\r\nContent-Length: 2\r\n\r\nok")

    async with serving(script) as (_, pool):
        answer = await pool.send(post(), deadline=in_s(5))

        assert answer == Answer(202, {b"x-late": b"a b", b"content-length": b"2"}, b"ok")


async def test_requests_at_once_have_a_connection_each_up_to_the_limit() -> None:
    async with serving(echo, limits=HttpLimits(max_connections=3)) as (server, pool):
        answers = await asyncio.gather(*(pool.send(post(b"%d" % n), deadline=in_s(5)) for n in range(40)))

        assert [answer.body for answer in answers] == [b"%d" % n for n in range(40)]
        assert server.connections == 3


async def test_a_request_that_finds_no_free_connection_waits_only_until_its_deadline() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.gone()

    async with serving(script, limits=HttpLimits(max_connections=1)) as (server, pool):
        first = asyncio.ensure_future(pool.send(post(b"1"), deadline=in_s(0.2)))
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
            await peer.answer(request.body)

    async with serving(script, limits=HttpLimits(max_connections=1)) as (_, pool):
        bodies = [b"die", b"1", b"die", b"2"]
        done = await asyncio.gather(
            *(pool.send(post(body), deadline=in_s(5)) for body in bodies), return_exceptions=True
        )

        assert [type(one).__name__ for one in done] == [
            "ExchangeFailed",
            "Answer",
            "ExchangeFailed",
            "Answer",
        ]


async def test_ups_14_a_connection_that_dies_after_the_request_was_sent_is_not_tried_again() -> None:
    async def script(request: Request, peer: Peer) -> None:
        peer.reset()

    async with serving(script) as (server, pool):
        with pytest.raises(ExchangeFailed, match="closed the connection"):
            await pool.send(post(), deadline=in_s(5))

        assert len(server.requests) == 1


async def test_a_pooled_connection_the_server_has_closed_is_skipped() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.answer(request.body)
        if request.body == b"last":
            peer.close()

    async with serving(script) as (server, pool):
        await pool.send(post(b"last"), deadline=in_s(5))
        while pool.size:
            await asyncio.sleep(0)
        answer = await pool.send(post(b"next"), deadline=in_s(5))

        assert (answer.body, server.connections) == (b"next", 2)


async def test_a_close_that_the_event_loop_has_yet_to_see_is_noticed_before_writing() -> None:
    received = []

    def serve(listener: socket.socket, turn: threading.Barrier) -> None:
        for _ in range(2):
            accepted, _ = listener.accept()
            with accepted:
                received.append(accepted.recv(65536))
                accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                turn.wait(5)
            turn.wait(5)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        turn = threading.Barrier(2)
        served = threads.submit(serve, listener, turn)
        target = parse_target(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        pool = HttpPool(target, ANY, limits=HttpLimits(fresh_s=0.0))
        for body in (b"first", b"second"):
            await pool.send(post(body), deadline=in_s(5))
            turn.wait(5)  # blocks the loop on purpose
            turn.wait(5)
        served.result(5)
        pool.close()

    assert received == [post(b"first"), post(b"second")]


async def test_ups_2_silence_ends_at_the_deadline_and_the_connection_is_gone() -> None:
    has_ended = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"hang":
            await peer.gone()
            has_ended.set()
        else:
            await peer.answer(request.body)

    async with serving(script, limits=HttpLimits(max_connections=1)) as (_, pool):
        with pytest.raises(ExchangeTimedOut):
            await pool.send(post(b"hang"), deadline=in_s(0.1))

        await has_ended.wait()
        assert (await pool.send(post(b"next"), deadline=in_s(5))).body == b"next"


async def test_ups_2_a_reset_in_the_middle_of_an_answer_is_a_failure() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 1024)
        peer.reset()

    async with serving(script) as (_, pool):
        with pytest.raises(ExchangeFailed, match="closed the connection"):
            await pool.send(post(), deadline=in_s(5))


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

        assert in_s(0) - started < 1.0


async def test_a_cancelled_request_closes_its_connection() -> None:
    has_arrived, has_ended = asyncio.Event(), asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        has_arrived.set()
        await peer.gone()
        has_ended.set()

    async with serving(script) as (_, pool):
        task = asyncio.ensure_future(pool.send(post(), deadline=in_s(5)))
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
            await pool.send(post(), deadline=in_s(5))
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
        answer = await pool.send(post(), deadline=in_s(5))

        assert (answer.status, len(answer.body)) == (500, 64 * 1024)
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
            await pool.send(post(), deadline=in_s(5))


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
            await pool.send(post(), deadline=in_s(5))


async def test_an_answer_nobody_asked_for_never_reaches_the_next_request() -> None:
    async def script(request: Request, peer: Peer) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
        await peer.send(answer + b"mine" + (answer + b"evil" if request.body == b"1" else b""))

    async with serving(script) as (server, pool):
        answers = [await pool.send(post(body), deadline=in_s(5)) for body in (b"1", b"2")]

        assert [answer.body for answer in answers] == [b"mine", b"mine"]
        assert server.connections == 2


@pytest.mark.parametrize("line", ["Connection: close", ""], ids=["said", "by its length"])
async def test_a_connection_the_server_ends_is_not_used_again(line: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if line:
            await peer.answer(request.body, headers=[line])
        else:
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\n" + request.body)
        peer.close()

    async with serving(script) as (server, pool):
        answers = [await pool.send(post(b"%d" % n), deadline=in_s(5)) for n in range(3)]

        assert [answer.body for answer in answers] == [b"0", b"1", b"2"]
        assert server.connections == 3


async def test_ssr_2_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with FaultyHttp(echo) as sentinel:

        async def script(request: Request, peer: Peer) -> None:
            await peer.answer(status=307, headers=[f"Location: {sentinel.url}"])

        async with serving(script) as (_, pool):
            answer = await pool.send(post(), deadline=in_s(5))

            assert (answer.status, sentinel.connections) == (307, 0)


async def test_an_idle_connection_is_closed_after_a_while() -> None:
    has_ended = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await peer.answer(request.body)
        await peer.gone()
        has_ended.set()

    async with serving(script, limits=HttpLimits(idle_s=0.1)) as (_, pool):
        await pool.send(post(), deadline=in_s(5))

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
            answer = await pool.send(post(), deadline=in_s(5), sink=sink)
            assert (answer.is_stream, answer.body) == (True, b"")
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
        await pool.send(post(), deadline=in_s(5), sink=Gathered(3))

        await has_ended.wait()


async def test_a_stream_that_its_sink_refuses_is_broken_off() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b"X")
        await peer.gone()

    async with serving(script) as (_, pool):
        with pytest.raises(ExchangeFailed, match="an X"):
            await pool.send(post(), deadline=in_s(5), sink=Gathered(3))


async def test_a_sink_is_left_alone_where_the_answer_is_no_stream() -> None:
    async with serving(echo) as (_, pool):
        sink = Gathered(1)
        answer = await pool.send(post(b"plain"), deadline=in_s(5), sink=sink)

        assert (answer.body, sink.data, sink.has_begun.is_set()) == (b"plain", b"", False)


async def test_closing_the_pool_fails_what_is_under_way_and_what_waits() -> None:
    has_arrived = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        has_arrived.set()
        await peer.gone()

    async with serving(script, limits=HttpLimits(max_connections=1)) as (_, pool):
        tasks = [asyncio.ensure_future(pool.send(post(), deadline=in_s(5))) for _ in range(2)]
        await has_arrived.wait()
        pool.close()
        done = await asyncio.gather(*tasks, return_exceptions=True)

        assert [type(one) for one in done] == [ExchangeFailed, ConnectFailed]
        with pytest.raises(ConnectFailed):
            await pool.send(post(), deadline=in_s(5))


async def test_a_refused_connection_says_so_and_sent_nothing() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        pool = HttpPool(parse_target(f"http://127.0.0.1:{unused.getsockname()[1]}/"), ANY)

        with pytest.raises(ConnectFailed, match=r"cannot connect to `127\.0\.0\.1:\d+`: .*refused"):
            await pool.send(post(), deadline=in_s(5))


async def test_ups_1_a_server_that_never_accepts_is_given_up_at_the_connect_timeout() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with socket.socket() as first, socket.socket() as second:
            for filler in (first, second):
                filler.setblocking(False)
                filler.connect_ex(address)
            limits = HttpLimits(connect_timeout_s=0.2)
            pool = HttpPool(parse_target(f"http://127.0.0.1:{address[1]}/"), ANY, limits=limits)
            started = in_s(0)

            with pytest.raises(ConnectFailed, match=r"no answer within 0\.2 s"):
                await pool.send(post(), deadline=in_s(5))
            assert 0.15 < in_s(0) - started < 2


async def test_ups_1_the_connect_timeout_holds_for_the_tls_handshake_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = parse_target(f"https://127.0.0.1:{silent.getsockname()[1]}/")
        limits = HttpLimits(connect_timeout_s=0.2)
        pool = HttpPool(target, ANY, tls=ssl.create_default_context(), limits=limits)

        with pytest.raises(ConnectFailed, match=r"no answer within 0\.2 s"):
            await pool.send(post(), deadline=in_s(5))


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with FaultyHttp(echo) as server:
        target = parse_target(f"http://two.example:{server.port}/")
        pool = HttpPool(target, Egress(allow_private=True, resolver=both))
        answer = await pool.send(post(b"here"), deadline=in_s(5))
        pool.close()

        assert answer.body == b"here"


async def test_ssr_9_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FaultyHttp(echo) as proxy, serving(echo) as (server, pool):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        await pool.send(post(), deadline=in_s(5))

        assert (proxy.connections, len(server.requests)) == (0, 1)


@pytest.mark.parametrize(
    ("names", "days", "is_trusted", "reason"),
    [
        pytest.param(["127.0.0.1"], 1, True, None, id="good"),
        pytest.param(["127.0.0.1"], -1, True, "expired", id="expired"),
        pytest.param(["127.0.0.1"], 1, False, "self-signed|unable to get", id="unknown authority"),
        pytest.param(["other.example"], 1, True, "mismatch|not valid for", id="wrong host"),
    ],
)
async def test_ups_12_a_certificate_must_be_trusted_current_and_the_hosts_own(
    tmp_path: Path, names: list[str], days: int, is_trusted: bool, reason: str | None
) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=authority.path if is_trusted else None)
    async with FaultyHttp(echo, tls=authority.server_context(names, days=days)) as server:
        pool = HttpPool(parse_target(server.url), ANY, tls=trust)
        try:
            if reason is None:
                answers = [await pool.send(post(b"%d" % n), deadline=in_s(5)) for n in range(3)]
                assert ([answer.body for answer in answers], server.connections) == ([b"0", b"1", b"2"], 1)
            else:
                with pytest.raises(ConnectFailed, match=f"certificate is not trusted .*({reason})"):
                    await pool.send(post(b"secret"), deadline=in_s(5))
                assert server.requests == []
        finally:
            pool.close()
