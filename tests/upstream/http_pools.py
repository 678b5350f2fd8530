"""A pool and the server it talks to, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.upstream.faulty_http import FaultyHttp, Peer, Request, Script
from toolgate.upstream.http.client_connection import DEFAULT_LIMITS, HttpLimits
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, parse_target
from toolgate.upstream.http.sse import StreamRefused

ANY = Egress(allow_private=True)


def post(body: bytes = b"{}") -> bytes:
    return b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def in_s(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def serving(
    script: Script, *, limits: HttpLimits | None = None, url: str = ""
) -> AsyncIterator[tuple[FaultyHttp, HttpPool]]:
    async with FaultyHttp(script) as server:
        pool = HttpPool(parse_target(url or server.url), ANY, limits=limits or DEFAULT_LIMITS)
        try:
            async with asyncio.timeout(60):
                yield server, pool
        finally:
            pool.close()


async def echo(request: Request, peer: Peer) -> None:
    await peer.respond(request.body)


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

    def deadline(self, deadline: float) -> float:
        return deadline
