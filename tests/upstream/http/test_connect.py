"""How the HTTP client gets its connections, and when it does not."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from tests.upstream.certificates import Authority
from tests.upstream.faulty_http import FaultyHttp
from tests.upstream.http_pools import ANY, echo, in_s, post, serving
from toolgate.upstream.http.client_connection import ConnectFailed, HttpLimits
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, parse_target

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def test_a_pool_closed_while_it_connects_sends_nothing() -> None:
    is_asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(host: str, port: int) -> list[str]:
        is_asked.set()
        await go_on.wait()
        return ["127.0.0.1"]

    async with FaultyHttp(echo) as server:
        target = parse_target(f"http://slow.example:{server.port}/")
        pool = HttpPool(target, Egress(allow_private=True, resolver=slow))
        task = asyncio.ensure_future(pool.send(post(), deadline=in_s(60)))
        await is_asked.wait()
        pool.close()
        go_on.set()

        with pytest.raises(ConnectFailed, match="closed by the gateway"):
            await task
        assert server.requests == []


async def test_a_refused_connection_says_so_and_sent_nothing() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        pool = HttpPool(parse_target(f"http://127.0.0.1:{unused.getsockname()[1]}/"), ANY)

        with pytest.raises(ConnectFailed, match=r"cannot connect to `127\.0\.0\.1:\d+`: .*refused"):
            await pool.send(post(), deadline=in_s(60))


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

            with pytest.raises(ConnectFailed, match=r"no response within 0\.2 s"):
                await pool.send(post(), deadline=in_s(60))
            assert 0.15 < in_s(0) - started < 30


async def test_ups_1_the_connect_timeout_holds_for_the_tls_handshake_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = parse_target(f"https://127.0.0.1:{silent.getsockname()[1]}/")
        limits = HttpLimits(connect_timeout_s=0.2)
        pool = HttpPool(target, ANY, tls=ssl.create_default_context(), limits=limits)

        with pytest.raises(ConnectFailed, match=r"no response within 0\.2 s"):
            await pool.send(post(), deadline=in_s(60))


async def test_the_next_address_is_tried_when_one_does_not_accept() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with FaultyHttp(echo) as server:
        target = parse_target(f"http://two.example:{server.port}/")
        pool = HttpPool(target, Egress(allow_private=True, resolver=both))
        response = await pool.send(post(b"here"), deadline=in_s(60))
        pool.close()

        assert response.body == b"here"


async def test_ssr_9_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FaultyHttp(echo) as proxy, serving(echo) as (server, pool):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        await pool.send(post(), deadline=in_s(60))

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
                responses = [await pool.send(post(b"%d" % n), deadline=in_s(60)) for n in range(3)]
                assert ([response.body for response in responses], server.connections) == (
                    [b"0", b"1", b"2"],
                    1,
                )
            else:
                with pytest.raises(ConnectFailed, match=f"certificate is not trusted .*({reason})"):
                    await pool.send(post(b"secret"), deadline=in_s(60))
                assert server.requests == []
        finally:
            pool.close()
