"""The listener over real sockets: clean HTTP/1.1 or nothing, and everything bounded."""

import asyncio
import contextlib
import gc
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolgate.surfaces.http.connection import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    HttpServer,
    HttpServerConnection,
    KnownHead,
)
from toolgate.surfaces.http.messages import HttpHandler, HttpRequest, Responder

pytestmark = pytest.mark.anyio

GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"


class Recording(HttpServer):
    """Keeps what each connection that was ever made knows of its client's heads."""

    def __init__(self, door: HttpHandler, **limits: Any) -> None:
        super().__init__(door, **limits)
        self.known: list[list[KnownHead]] = []

    def add_connection(self, connection: HttpServerConnection) -> bool:
        self.known.append(connection._known)
        return super().add_connection(connection)


class Bench:
    """A door that does what the path says, and the sockets to reach it."""

    def __init__(
        self, port: int, server: Recording, stop: asyncio.Event, serving: "asyncio.Task[None]"
    ) -> None:
        self.port = port
        self.server = server
        self.stop = stop
        self.serving = serving
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def hang_up(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def raw(self, *parts: bytes) -> bytes:
        """Everything the server sends until it closes the connection."""
        reader, writer = await self.connect()
        for part in parts:
            writer.write(part)
            await writer.drain()
        try:
            async with asyncio.timeout(60):
                return await reader.read()
        except ConnectionResetError:
            return b""


SEEN: dict[str, asyncio.Event] = {}


async def door(request: HttpRequest, responder: Responder) -> None:
    match request.path:
        case "/hang":
            try:
                SEEN["started"].set()
                await asyncio.Event().wait()
            finally:
                SEEN["cancelled"].set()
        case "/wait":
            SEEN["started"].set()
            await SEEN["go"].wait()
            responder.send(200, b'"done"')
        case "/stream":
            responder.start(200, [(b"content-type", b"text/event-stream")])
            for number in range(3):
                await responder.write(b"data: %d\n\n" % number)
            responder.end()
        case "/flood":
            responder.start(200, [])
            while True:
                await responder.write(b"x" * 65_536)
        case "/fail":
            raise RuntimeError("on purpose")
        case "/silent":
            return
        case "/headers":
            responder.send(200, b"; ".join(b"%b: %b" % header for header in sorted(request.headers.items())))
        case _:
            body = b"%b %b %b" % (request.method.encode(), request.path.encode(), request.body)
            is_json = request.path == "/json"
            responder.send(200, body, () if is_json else [(b"content-type", b"text/plain")])


@asynccontextmanager
async def listening(
    *, request_s: float = 5.0, keep_alive_s: float = 5.0, drain_s: float = 5.0, **limits: Any
) -> AsyncIterator[Bench]:
    SEEN.update({name: asyncio.Event() for name in ("started", "cancelled", "go")})
    listener = socket.create_server(("127.0.0.1", 0))
    stop = asyncio.Event()
    http = Recording(door, request_s=request_s, keep_alive_s=keep_alive_s, **limits)
    serving = asyncio.create_task(http.serve(listener, stop.wait, drain_s=drain_s))
    bench = Bench(listener.getsockname()[1], http, stop, serving)
    try:
        yield bench
    finally:
        await bench.hang_up()
        stop.set()
        async with asyncio.timeout(60):
            await serving
        listener.close()


def statuses(response: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d{3})", response)]


async def test_a_request_is_answered_and_the_connection_kept() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        for path in (b"a", b"b%20c"):
            writer.write(GET % path)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"connection: close" not in head
            await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        assert len(bench.server) == 1


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with listening() as bench:
        SEEN["go"].set()
        last = b"GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        response = await bench.raw(GET % b"wait" + GET % b"a" + last)

        assert statuses(response) == [200, 200, 200]
        assert response.index(b'"done"') < response.index(b"GET /a") < response.index(b"GET /b")


async def test_fuz_2_bodies_that_wait_their_turn_are_no_larger_together_than_one_may_be() -> None:
    post = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    half = post % (MAX_BODY_BYTES // 2) + b"x" * (MAX_BODY_BYTES // 2)
    async with listening() as bench:
        _, writer = await bench.connect()
        writer.write(GET % b"hang" + half + half)
        async with asyncio.timeout(60):
            await SEEN["started"].wait()
            assert not SEEN["cancelled"].is_set()
            writer.write(post % 1 + b"x")
            await SEEN["cancelled"].wait()


async def test_bodies_come_whole_however_they_are_sent() -> None:
    chunked = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    async with listening() as bench:
        response = await bench.raw(chunked, b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n")

        assert response.endswith(b"POST /x abcde")


async def test_a_client_that_expects_to_be_asked_is_asked() -> None:
    asks = b"Expect: 100-continue\r\nConnection: close\r\n\r\n"
    head = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n" + asks
    async with listening() as bench:
        response = await bench.raw(head, b"ab")

        assert statuses(response) == [100, 200]


async def test_head_has_no_body_and_old_clients_are_let_go() -> None:
    async with listening() as bench:
        head = await bench.raw(b"HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        old = await bench.raw(b"GET /x HTTP/1.0\r\n\r\n")

        assert head.endswith(b"\r\n\r\n")
        assert statuses(old) == [200]


async def test_a_stream_comes_in_chunks_and_ends() -> None:
    async with listening() as bench:
        response = await bench.raw(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

        assert b"transfer-encoding: chunked" in response
        assert response.endswith(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            id="length and chunks",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            400,
            id="two lengths",
        ),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", 400, id="a folded header"),
        pytest.param(b"GET / HTTP/1.1\nHost: x\n\n", 400, id="bare line feeds"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (MAX_HEAD_BYTES + 1), 431, id="a huge header"
        ),
        pytest.param(b"GET /" + b"a" * (MAX_HEAD_BYTES + 1), 431, id="a huge target"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 3_000 + b"\r\n", 431, id="many headers"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, id="TLS"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="HTTP/2"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            400,
            id="an upgrade",
        ),
        pytest.param(b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="a target that is not ASCII"),
        pytest.param(b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400, id="a target that is not UTF-8"),
    ],
)
async def test_fuz_13_what_is_not_clean_is_refused_and_cut_off(sent: bytes, status: int) -> None:
    async with listening() as bench:
        assert statuses(await bench.raw(sent)) in ([status], [200, status])


async def test_fuz_13_a_header_behind_the_body_is_none_of_the_request() -> None:
    head = b"POST /headers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    async with listening() as bench:
        response = await bench.raw(head + b"1\r\na\r\n0\r\nHost: y\r\nAuthorization: Bearer z\r\n\r\n")

        assert response.endswith(b"connection: close; host: x; transfer-encoding: chunked")


async def test_fuz_13_a_header_behind_the_body_that_does_not_end_is_cut_off() -> None:
    async with listening() as bench:
        _, writer = await bench.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        sent = await flood(writer, b"x" * 65_536)

        assert sent < 4 * MAX_BODY_BYTES


async def test_fuz_2_a_body_in_single_bytes_is_cut_off_before_it_has_kept_the_loop_busy() -> None:
    async with listening() as bench:
        _, writer = await bench.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = await flood(writer, b"1\r\nx\r\n" * 10_000)

        assert sent < 4 * MAX_BODY_BYTES


async def flood(writer: asyncio.StreamWriter, block: bytes) -> int:
    """Send until the server has had enough; how many bytes that took."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < 64 * MAX_BODY_BYTES:
            writer.write(block)
            await writer.drain()
            sent += len(block)
    return sent


async def test_fuz_2_a_body_past_the_limit_is_refused_by_its_length_and_by_its_size() -> None:
    async with listening() as bench:
        declared = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)
        assert statuses(await bench.raw(declared)) == [413]
        _, writer = await bench.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = await flood(writer, b"10000\r\n" + b"x" * 65_536 + b"\r\n")

        assert sent < 16 * MAX_BODY_BYTES


async def test_a_client_that_goes_away_cancels_its_request() -> None:
    async with listening() as bench:
        _, writer = await bench.connect()
        writer.write(GET % b"hang")
        async with asyncio.timeout(60):
            await SEEN["started"].wait()
            writer.transport.abort()
            await SEEN["cancelled"].wait()


@pytest.mark.parametrize("path", [b"fail", b"silent"])
async def test_a_door_that_fails_is_a_500_and_the_listener_lives(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as bench:
        assert statuses(await bench.raw(GET % path)) == [500]
        assert b"on purpose" not in await bench.raw(GET % path)


async def test_lod_5_a_client_that_does_not_finish_its_request_is_let_go() -> None:
    async with listening(request_s=0.2) as bench:
        head, body = await asyncio.gather(
            bench.raw(b"GET / HTTP/1.1\r\nHo"),
            bench.raw(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"),
        )

        assert (head, body) == (b"", b"")


async def test_an_idle_connection_is_let_go() -> None:
    async with listening(request_s=60, keep_alive_s=0.2) as bench:
        assert statuses(await bench.raw(GET % b"a")) == [200]


async def test_fuz_2_a_client_that_leaves_takes_its_body_with_it() -> None:
    """Without the collector's help, which may come long after so many bodies that memory is full."""
    request = (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % MAX_BODY_BYTES + b"x" * MAX_BODY_BYTES
    )
    async with listening() as bench:
        gc.collect()
        gc.disable()
        before = connections()
        try:
            _, writer = await bench.connect()
            writer.write(request)
            async with asyncio.timeout(60):
                while connections() == before:
                    await asyncio.sleep(0.01)
                writer.transport.abort()
                while connections() > before:
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


def connections() -> int:
    """How many there are in memory, used or not."""
    return sum(isinstance(one, HttpServerConnection) for one in gc.get_objects())


async def test_lod_4_a_client_that_does_not_read_is_let_go() -> None:
    async with listening(request_s=0.3) as bench:
        _, writer = await bench.connect()
        writer.write(GET % b"flood")
        async with asyncio.timeout(60):
            while not len(bench.server):
                await asyncio.sleep(0.01)
            while len(bench.server):
                await asyncio.sleep(0.05)


async def test_shu_1_what_is_under_way_is_finished_and_new_clients_are_not_taken() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        idle = await bench.connect()
        writer.write(GET % b"wait")
        async with asyncio.timeout(60):
            await SEEN["started"].wait()
            bench.stop.set()
            assert await idle[0].read() == b""
            SEEN["go"].set()
            assert (await reader.read()).endswith(b'"done"')
            await bench.serving
        idle[1].close()
        with pytest.raises(ConnectionRefusedError):
            await bench.connect()


async def test_shu_1_what_does_not_finish_in_time_is_cut_off() -> None:
    async with listening(drain_s=0.1) as bench:
        _, writer = await bench.connect()
        writer.write(GET % b"hang")
        async with asyncio.timeout(60):
            await SEEN["started"].wait()
            bench.stop.set()
            await bench.serving
            await SEEN["cancelled"].wait()


async def test_lod_9_one_connection_too_many_gets_an_error_and_the_others_live() -> None:
    async with listening(max_connections=2) as bench:
        reader, writer = await bench.connect()
        await bench.connect()

        assert statuses(await bench.raw(GET % b"a")) == [503]
        writer.write(GET % b"b")
        assert await reader.readuntil(b"GET /b ")


async def test_a_long_answer_arrives_whole_and_the_connection_goes_on() -> None:
    async with listening() as bench:
        reader, writer = await bench.connect()
        for size in (100, 100_000, 3_000_000, 10):
            writer.write(b"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"1" * size)
            async with asyncio.timeout(60):
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))

            assert body == b"POST /json " + b"1" * size
