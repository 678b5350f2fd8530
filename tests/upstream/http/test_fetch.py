"""Documents fetched from elsewhere: only from where the gateway may connect to, over TLS, and bounded."""

import ssl
from pathlib import Path

import pytest

from tests.upstream.certificates import Authority
from tests.upstream.faulty_http import FaultyHttp, Peer, Request, Script
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import MAX_DOCUMENT_BYTES, Fetcher, FetchFailed

pytestmark = pytest.mark.anyio

ANY = Egress(allow_private=True)


async def respond(_request: Request, peer: Peer) -> None:
    await peer.respond(b'{"a": 1}')


async def redirect(_request: Request, peer: Peer) -> None:
    await peer.respond(b"{}", status=302, headers=["Location: https://elsewhere.example/"])


async def too_much(_request: Request, peer: Peer) -> None:
    await peer.respond(b" " * (MAX_DOCUMENT_BYTES + 1))


async def no_json(_request: Request, peer: Peer) -> None:
    await peer.respond(b"<html>")


async def too_deep(_request: Request, peer: Peer) -> None:
    await peer.respond(b"[" * 10_000 + b"]" * 10_000)


async def hang_up(_request: Request, peer: Peer) -> None:
    peer.close()


async def test_a_document_is_fetched_with_nothing_but_a_plain_request() -> None:
    async with FaultyHttp(respond) as server:
        assert await Fetcher(ANY).get_json(server.url) == {"a": 1}

    (request,) = server.requests
    assert not {"authorization", "cookie"} & {name.lower() for name in request.headers}


@pytest.mark.parametrize("script", [redirect, too_much, no_json, too_deep, hang_up])
async def test_what_is_no_document_fails_and_nothing_else_is_asked(script: Script) -> None:
    async with FaultyHttp(script) as server:
        with pytest.raises(FetchFailed):
            await Fetcher(ANY).get_json(server.url)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        pytest.param("http://issuer.example/keys", "must be reached by `https`", id="without TLS"),
        pytest.param("http://10.0.0.1/keys", "must be reached by `https`", id="without TLS, privately"),
        pytest.param("https://169.254.169.254/keys", "link-local", id="cloud metadata"),
        pytest.param("file:///etc/passwd", "scheme", id="a file"),
        pytest.param("https://user:secret@issuer.example/", "user information", id="user information"),
        pytest.param("https://issuer.example/\r\nX: y", "percent-encoded", id="a line break"),
    ],
)
async def test_ssr_1_a_place_the_gateway_does_not_ask(url: str, reason: str) -> None:
    with pytest.raises(FetchFailed, match=reason) as refused:
        await Fetcher(ANY).get_json(url)

    assert "secret" not in str(refused.value)


async def test_ssr_1_private_networks_are_asked_only_where_that_is_allowed() -> None:
    async with FaultyHttp(respond) as server:
        with pytest.raises(FetchFailed, match="loopback"):
            await Fetcher(Egress(allow_private=False)).get_json(server.url)

    assert server.connections == 0


async def test_ups_12_only_a_certificate_that_is_trusted_will_do(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with FaultyHttp(respond, tls=authority.server_context(["127.0.0.1"], days=1)) as server:
        trusting = Fetcher(ANY, tls=ssl.create_default_context(cafile=authority.path))

        assert await trusting.get_json(server.url) == {"a": 1}
        with pytest.raises(FetchFailed, match="not trusted"):
            await Fetcher(ANY).get_json(server.url)


async def resolve_some(host: str, _port: int) -> list[str]:
    """Names out there, some of the world, and one that no one knows."""
    if host == "nowhere.example":
        raise OSError
    return ["10.0.0.1"] if host.endswith(".house") else ["93.184.215.14"]


@pytest.mark.parametrize(
    ("named_by", "is_let_in"),
    [
        ("https://mcp.example/mcp", False),
        ("https://nowhere.example/mcp", False),
        ("https://93.184.215.14/mcp", False),
        ("https://mcp.house/mcp", True),
        ("http://127.0.0.1:9/mcp", True),
    ],
)
async def test_ssr_public_servers_cannot_reach_private_addresses(named_by: str, is_let_in: bool) -> None:
    fetcher = Fetcher(Egress(allow_private=True, resolver=resolve_some))
    other = await fetcher.restrict_for(named_by)

    assert (other is fetcher) == is_let_in
    if not is_let_in:
        for url in ("https://login.house/x", "https://10.0.0.1/x", "http://127.0.0.1:9/x"):
            with pytest.raises(FetchFailed, match="which this gateway does not connect to"):
                await other.get_json(url)
