"""A stream that brings much at once is taken in turns, so that others are heard in between."""

import asyncio
import time
from collections import Counter

import pytest

from tests.upstream.faulty_http import Peer, Request
from tests.upstream.http_pools import Gathered, echo, in_s, post, serving
from toolgate.upstream.http import client_connection

pytestmark = pytest.mark.anyio

EVENT = b"data: {}\n\n"
MANY = EVENT * 50_000
LONG = b"data: " + b"x" * len(MANY) + b"\n\n"
A_TURN = 2 * client_connection._LARGE_CHUNK_BYTES


class Turns(Gathered):
    """Notes how much comes in each turn of the loop."""

    def __init__(self, wanted: int) -> None:
        super().__init__(wanted)
        self.sizes: Counter[int] = Counter()
        self._turn = 0
        self._count()

    def feed(self, chunk: bytes) -> bool:
        self.sizes[self._turn] += len(chunk)
        is_enough = super().feed(chunk)
        if is_enough:
            self._next.cancel()
        return is_enough

    def _count(self) -> None:
        self._turn += 1
        self._next = asyncio.get_running_loop().call_soon(self._count)


def streaming(text: bytes, behind: bytes = b"") -> bytes:
    """A stream with `text`, and what comes behind its end."""
    return b"%x\r\n%b\r\n0\r\n\r\n%b" % (len(text), text, behind)


async def taken(text: bytes) -> Turns:
    turns = Turns(len(text))

    async def script(_request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await turns.has_begun.wait()
        await peer.send(streaming(text))

    async with serving(script) as (_, pool):
        await pool.send(post(), deadline=in_s(60), sink=turns)
    return turns


async def test_many_events_are_taken_in_small_parts_and_all_arrive() -> None:
    turns = await taken(MANY)

    assert turns.data == MANY
    assert max(turns.sizes.values()) <= A_TURN


async def test_one_long_event_is_taken_as_it_comes() -> None:
    turns = await taken(LONG)

    assert turns.data == LONG
    assert max(turns.sizes.values()) > A_TURN


async def test_bytes_behind_a_stream_are_no_response() -> None:
    """It may still be held back when the stream has ended."""
    forged = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\nforged"
    first = Gathered(len(EVENT))

    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"first":
            await peer.open_stream()
            await first.has_begun.wait()
            await peer.send(streaming(MANY, forged * 1_000))
        else:
            await peer.respond(request.body)

    async with serving(script) as (_, pool):
        await pool.send(post(b"first"), deadline=in_s(60), sink=first)
        bodies = [(await pool.send(post(b"%d" % n), deadline=in_s(60))).body for n in range(100)]

    assert bodies == [b"%d" % n for n in range(100)]


async def test_the_streams_of_one_server_give_way_one_after_the_other() -> None:
    """UPS-3: however many of its streams are noisy, a server has one share of the loop."""
    async with serving(echo) as (_, pool):
        first_s, second_s, third_s = (pool.resume_stream_at_s(1.0) for _ in range(3))

    assert (second_s - first_s, third_s - second_s) == pytest.approx((30.0, 30.0))


class Slow(Gathered):
    """Keeps the loop for a while with everything it is fed."""

    def feed(self, chunk: bytes) -> bool:
        until_s = time.perf_counter() + 2 * client_connection.NOISY_S
        while time.perf_counter() < until_s:
            pass
        return super().feed(chunk)


async def test_a_stream_that_keeps_the_loop_gives_way_however_little_it_brings() -> None:
    sink = Slow(len(EVENT) * 20)

    async def script(_request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await sink.has_begun.wait()
        for _ in range(20):
            await peer.chunk(EVENT)

    async with serving(script) as (_, pool):
        await pool.send(post(), deadline=in_s(60), sink=sink)

        assert sink.data == EVENT * 20
        assert pool.streams_yield_until_s > 0
