"""A stream that brings much at once is taken in turns, so that others are heard in between."""

import asyncio
from collections import Counter

import pytest

from tests.upstream.faulty_http import Peer, Request
from tests.upstream.http_pools import Gathered, in_s, post, serving
from toolgate.upstream import http_connection

pytestmark = pytest.mark.anyio

EVENT = b"data: {}\n\n"
MANY = EVENT * 50_000
LONG = b"data: " + b"x" * len(MANY) + b"\n\n"
A_TURN = 2 * http_connection._MUCH_BYTES


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
        await pool.send(post(), deadline=in_s(5), sink=turns)
    return turns


async def test_many_events_are_taken_in_small_parts_and_all_arrive() -> None:
    turns = await taken(MANY)

    assert turns.data == MANY
    assert max(turns.sizes.values()) <= A_TURN


async def test_one_long_event_is_taken_as_it_comes() -> None:
    turns = await taken(LONG)

    assert turns.data == LONG
    assert max(turns.sizes.values()) > A_TURN


async def test_what_comes_behind_a_stream_is_nobodys_answer() -> None:
    """It may still be held back when the stream has ended."""
    forged = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\nforged"
    first = Gathered(len(EVENT))

    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"first":
            await peer.open_stream()
            await first.has_begun.wait()
            await peer.send(streaming(MANY, forged * 1_000))
        else:
            await peer.answer(request.body)

    async with serving(script) as (_, pool):
        await pool.send(post(b"first"), deadline=in_s(5), sink=first)
        bodies = [(await pool.send(post(b"%d" % n), deadline=in_s(5))).body for n in range(100)]

    assert bodies == [b"%d" % n for n in range(100)]
