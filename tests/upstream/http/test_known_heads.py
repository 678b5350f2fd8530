"""A server's head that was parsed before is looked up. Nothing a server says may profit from that."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.upstream.faulty_http import Peer, Request
from tests.upstream.http_pools import echo, in_s, post, serving
from toolgate.upstream.http.client_connection import ExchangeFailed, HttpClientConnection, HttpLimits
from toolgate.upstream.http.connection_pool import HttpPool

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"


async def test_equal_heads_bring_their_own_bodies() -> None:
    async with serving(echo) as (_, pool):
        sent = [b"x" * size for size in (1, 5, 0, 2_000, 30)]

        assert [(await pool.send(post(body), deadline=in_s(60))).body for body in sent] == sent
        assert pool.size == 1


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
        first = await pool.send(post(b"first"), deadline=in_s(60))
        second = await pool.send(post(b"second"), deadline=in_s(60))

        assert (first.body, second.body) == (b"abc", b"_" + HEAD + b"xyz")


async def test_a_known_head_with_its_body_is_late_waits_for_it() -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.body == b"late":
            await peer.send(HEAD)
            await asyncio.sleep(0.05)
            await peer.send(b"abc")
        else:
            await peer.send(HEAD + b"abc")

    async with serving(script) as (_, pool):
        for body in (b"now", b"late", b"now", b"late"):
            assert (await pool.send(post(body), deadline=in_s(60))).body == b"abc"


class Line(asyncio.Transport):
    """The end of a connection: its pieces come in as the test says."""

    def __init__(self, pool: HttpPool) -> None:
        super().__init__({"socket": socket.socket()})
        self.is_cut = False
        self.connection = HttpClientConnection(pool, HttpLimits(), asyncio.get_running_loop())
        self.connection.connection_made(self)

    async def respond(self, *pieces: bytes) -> bytes:
        waiter = self.connection.exchange(post(), None, in_s(60))
        for piece in pieces:
            self.connection.data_received(piece)
        return bytes((await waiter).body)

    @property
    def is_head_known(self) -> bool:
        return self.connection._known is not None

    def write(self, data: object) -> None:
        """Whatever is sent, the test answers."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_cut

    def abort(self) -> None:
        self.is_cut = True
        self.get_extra_info("socket").close()


@asynccontextmanager
async def line() -> AsyncIterator[Line]:
    """A connection on which `HEAD` is known."""
    async with serving(echo) as (_, pool):
        made = Line(pool)
        assert await made.respond(HEAD + b"abc") == b"abc"
        yield made
        made.abort()


async def test_a_body_in_pieces_behind_a_known_head_is_put_together() -> None:
    async with line() as connection:
        bodies = [
            await connection.respond(HEAD + b"a", b"bc"),
            await connection.respond(HEAD, b"d", b"e", b"f"),
            await connection.respond(HEAD + b"ghi"),
            await connection.respond(HEAD.replace(b"3", b"5") + b"jk", b"lmn"),
        ]

        assert bodies == [b"abc", b"def", b"ghi", b"jklmn"]
        assert not connection.is_cut


async def test_a_head_is_known_again_with_its_body_came_in_pieces() -> None:
    async with serving(echo) as (_, pool):
        connection = Line(pool)

        assert await connection.respond(HEAD + b"a", b"bc") == b"abc"
        assert connection.is_head_known
        connection.abort()


async def test_a_head_that_came_in_pieces_is_not_known() -> None:
    async with serving(echo) as (_, pool):
        connection = Line(pool)

        assert await connection.respond(HEAD[:1], HEAD[1:] + b"abc") == b"abc"
        assert not connection.is_head_known
        connection.abort()


async def test_a_known_head_may_not_announce_more_than_any_other() -> None:
    async with line() as connection:
        with pytest.raises(ExchangeFailed, match="longer than"):
            await connection.respond(HEAD.replace(b"3", b"99999999") + b"abc")


async def test_what_follows_an_answer_in_pieces_ends_the_connection_and_answers_no_one() -> None:
    async with line() as connection:
        assert await connection.respond(HEAD + b"a", b"bc" + HEAD + b"xyz") == b"abc"
        assert connection.is_cut


async def test_a_connection_lost_within_a_body_behind_a_known_head_is_an_unknown_outcome() -> None:
    async with line() as connection:
        waiter = connection.connection.exchange(post(), None, in_s(60))
        connection.connection.data_received(HEAD + b"a")
        connection.connection.connection_lost(None)

        with pytest.raises(ExchangeFailed, match="closed the connection"):
            await waiter
