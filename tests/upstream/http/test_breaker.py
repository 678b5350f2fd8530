"""UPS-1: a server that cannot be connected to costs a few callers the connect timeout, the rest nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.upstream.fault_proxy import open_fault_proxy
from tests.upstream.faulty_http import FaultyHttp, Peer, Request
from tests.upstream.http_pools import in_s, post
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.upstream.http.client_connection import ConnectFailed, ExchangeTimedOut, HttpLimits
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, parse_target

pytestmark = pytest.mark.anyio

in_virtual_time = pytest.mark.parametrize("anyio_backend", [VIRTUAL], ids=["virtual"])
LIMITS = HttpLimits()


class Line:
    """Counts the attempts to connect, each of which ends as `fate` does."""

    def __init__(self, fate: Callable[[], Awaitable[list[str]]]) -> None:
        self.fate = fate
        self.attempts_s: list[float] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        self.attempts_s.append(in_s(0))
        return await self.fate()

    def pool(self, port: int = 80, limits: HttpLimits = LIMITS) -> HttpPool:
        egress = Egress(allow_private=True, resolver=self.resolve)
        return HttpPool(parse_target(f"http://there.example:{port}/"), egress, limits=limits)


async def never_resolve() -> list[str]:
    await asyncio.Event().wait()
    raise AssertionError


async def here() -> list[str]:
    return ["127.0.0.1"]


async def fail(pool: HttpPool, *, times: int, timeout_s: float = 30.0) -> set[str]:
    """The distinct errors of this many requests, one after the other."""
    notified = set()
    for _ in range(times):
        with pytest.raises((ConnectFailed, ExchangeTimedOut)) as caught:
            await pool.send(post(), deadline=in_s(timeout_s))
        notified.add(str(caught.value))
    return notified


@in_virtual_time
async def test_ups_1_after_five_failures_requests_fail_at_once_with_the_same_reason() -> None:
    line = Line(never_resolve)
    pool = line.pool()
    notified = await fail(pool, times=5)
    waited_s = in_s(0)
    notified |= await fail(pool, times=100)

    assert notified == {"cannot connect to `there.example:80`: no response within 5 s"}
    assert (waited_s, in_s(0), line.attempts_s) == (25.0, 25.0, [0.0, 5.0, 10.0, 15.0, 20.0])


@in_virtual_time
async def test_ups_1_then_one_request_in_five_seconds_tries_for_all() -> None:
    line = Line(never_resolve)
    pool = line.pool()
    await fail(pool, times=5)
    await pass_time(LIMITS.cooldown_s)
    sending = [asyncio.create_task(pool.send(post(), deadline=in_s(30))) for _ in range(50)]
    await pass_time(0)
    refused = sum(one.done() for one in sending)
    await asyncio.gather(*sending, return_exceptions=True)
    await fail(pool, times=10)

    assert (refused, line.attempts_s[5:]) == (49, [30.0])


@in_virtual_time
async def test_ups_1_callers_with_little_time_open_the_breaker_too() -> None:
    line = Line(never_resolve)
    pool = line.pool()
    notified = await fail(pool, times=6, timeout_s=2.0)

    assert notified == {
        "no connection within the deadline",
        "cannot connect to `there.example:80`: no response in time",
    }
    assert (in_s(0), len(line.attempts_s)) == (10.0, 5)


@in_virtual_time
async def test_ups_1_callers_that_go_away_soon_say_nothing_about_the_server() -> None:
    line = Line(never_resolve)
    pool = line.pool()
    for _ in range(20):
        going = asyncio.create_task(pool.send(post(), deadline=in_s(30)))
        await pass_time(0.5)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)

    assert len(line.attempts_s) == 20


async def test_ups_1_a_server_that_accepts_again_is_found_and_the_failures_are_forgotten() -> None:
    async def once(request: Request, peer: Peer) -> None:
        await peer.respond(request.body, headers=["Connection: close"])

    line = Line(here)
    async with asyncio.timeout(60), FaultyHttp(once) as server, open_fault_proxy(server.port) as proxy:
        pool = line.pool(proxy.port, HttpLimits(connect_timeout_s=0.1, cooldown_s=2.0))
        proxy.turn_deaf()
        notified = await fail(pool, times=7)
        attempts = len(line.attempts_s)
        proxy.turn_hearing()
        response = None
        while response is None:
            try:
                response = await pool.send(post(b"here"), deadline=in_s(60))
            except ConnectFailed:
                await asyncio.sleep(0.01)
        proxy.turn_deaf()
        found = len(line.attempts_s)
        await fail(pool, times=4)
        pool.close()

    assert (attempts, response.body, len(notified)) == (5, b"here", 1)
    assert len(line.attempts_s) - found == 4
