"""A server's head that was parsed before is looked up. Nothing a server says may profit from that."""

import asyncio

import pytest

from tests.upstream.faulty_http import Peer, Request
from tests.upstream.http_pools import echo, in_s, post, serving

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"


async def test_equal_heads_bring_their_own_bodies() -> None:
    async with serving(echo) as (_, pool):
        bodies = [(await pool.send(post(b"%d" % number), deadline=in_s(5))).body for number in range(10, 20)]

        assert bodies == [b"%d" % number for number in range(10, 20)]
        assert len(pool.heads) == 1


async def test_a_body_that_looks_like_a_known_answer_is_a_body() -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"first":
            await peer.send(HEAD + b"abc")
            return
        trick = HEAD + b"xyz"
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n_" % (len(trick) + 1))
        await asyncio.sleep(0.05)
        await peer.send(trick)

    async with serving(script) as (_, pool):
        first = await pool.send(post(b"first"), deadline=in_s(5))
        second = await pool.send(post(b"second"), deadline=in_s(5))

        assert (first.body, second.body) == (b"abc", b"_" + HEAD + b"xyz")


async def test_a_known_head_whose_body_is_late_waits_for_it() -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"late":
            await peer.send(HEAD)
            await asyncio.sleep(0.05)
            await peer.send(b"abc")
        else:
            await peer.send(HEAD + b"abc")

    async with serving(script) as (_, pool):
        for body in (b"now", b"late", b"now", b"late"):
            assert (await pool.send(post(body), deadline=in_s(5))).body == b"abc"
