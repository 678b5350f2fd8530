"""Links over the transport of 2024 to servers that do it their own way, or wrong."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.upstream.faulty_http import FaultyHttp, Peer, Request
from tests.upstream.faulty_sse import SESSION, Sse, opener, record_for
from tests.upstream.http_links import SECRET, RecordingListener, call, echoed
from toolgate.errors import ServerUnavailable
from toolgate.model.servers import ServerRecord
from toolgate.upstream.connection.contract import RpcResponse, ServerConnection, StartFailed
from toolgate.upstream.http.client_connection import HttpLimits

pytestmark = pytest.mark.anyio

LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


@asynccontextmanager
async def linked(
    server: Sse, received: RecordingListener | None = None, *, auth_ref: str | None = None, **options: Any
) -> AsyncIterator[tuple[FaultyHttp, ServerConnection]]:
    async with asyncio.timeout(60), FaultyHttp(server) as http:
        record = record_for(http.url, auth_ref=auth_ref)
        link = await opener(**options)(record, received or RecordingListener(), known_revision=None)
        try:
            yield http, link
        finally:
            await link.aclose()


async def failure(server: Callable[[Request, Peer], Any], **options: Any) -> StartFailed:
    """How opening a link fails; nothing of it is left."""
    async with asyncio.timeout(60), FaultyHttp(server) as http:
        with pytest.raises(StartFailed) as caught:
            await opener(**options)(record_for(http.url), RecordingListener(), known_revision=None)
        while http._tasks:
            await asyncio.sleep(0.01)
    return caught.value


@pytest.mark.parametrize("endpoint", ["/messages?session_id=1", "messages?s=1", "?sessionId=1", "{origin}/m"])
async def test_an_endpoint_is_read_against_the_url_of_the_stream(endpoint: str) -> None:
    server = Sse()
    async with asyncio.timeout(60), FaultyHttp(server) as http:
        origin = f"http://127.0.0.1:{http.port}"
        server.endpoint = endpoint.format(origin=origin)
        link = await opener()(record_for(http.url + "?tools=a"), RecordingListener(), known_revision=None)
        rpc = await call(link)
        await link.aclose()

        assert rpc == echoed()
        expected = {"?sessionId=1": "/mcp?sessionId=1", "{origin}/m": "/m"}
        assert http.requests[-1].path == expected.get(endpoint, "/" + endpoint.removeprefix("/"))


@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param("http://169.254.169.254/latest", id="ssr metadata"),
        pytest.param("//evil.example/messages", id="ssr another host"),
        pytest.param("https://127.0.0.1/messages", id="another scheme"),
        pytest.param("http://127.0.0.1:1/messages", id="another port"),
        pytest.param("http://user@127.0.0.1/messages", id="user information"),
        pytest.param("file:///etc/passwd", id="a file"),
        pytest.param("/messages HTTP/1.1", id="what is no URL"),
        pytest.param("/m?" + "a" * 9_000, id="too long"),
        pytest.param("http://[/", id="what cannot be read"),
    ],
)
async def test_ssr_an_endpoint_off_the_server_s_origin_is_not_followed(endpoint: str) -> None:
    refused = await failure(Sse(endpoint))

    assert "the server's endpoint is" in str(refused)


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (401, "requires authorization"),
        (302, "a redirect, which the gateway does not follow"),
        (405, "streamable_http"),
        (200, "streamable_http"),
    ],
)
async def test_a_server_without_a_stream_says_why_it_is_down(status: int, content: str) -> None:
    async def refuse(_: Request, peer: Peer) -> None:
        await peer.respond(b"{}", status=status)

    assert content in str(await failure(refuse))


async def test_ups_a_delay_that_a_server_requests_is_kept() -> None:
    async def refuse(_: Request, peer: Peer) -> None:
        await peer.respond(b"{}", status=503, headers=["Retry-After: 7"])

    assert (await failure(refuse)).retry_after_s == 7


async def test_a_stream_that_names_no_endpoint_is_given_up_in_time() -> None:
    async def open_only(_: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b": nothing\n\n")
        await peer.gone()

    refused = await failure(open_only, start_timeout_s=0.2)

    assert refused.state == "list_timeout"


async def test_an_endless_event_ends_the_connection() -> None:
    server, received = Sse(), RecordingListener()
    async with linked(server, received, limits=HttpLimits(max_body_bytes=64 * 1024)) as (_, link):
        assert server.stream is not None
        await server.stream.chunk(b"data: " + b"x" * 70_000)
        while not received.closings:
            await asyncio.sleep(0.01)

        assert "longer than" in received.closings[0]
        with pytest.raises(ServerUnavailable):
            await call(link)


async def test_a_server_that_ends_at_a_probe_is_greeted_next_time() -> None:
    class Shy(Sse):
        async def take(self, request: Request, peer: Peer) -> None:
            if request.rpc == "server/discover":
                assert self.stream is not None
                self.stream.close()
                peer.close()
            else:
                await super().take(request, peer)

    opens = opener()
    async with asyncio.timeout(60), FaultyHttp(Shy()) as http:
        with pytest.raises(StartFailed):
            await opens(record_for(http.url), RecordingListener(), known_revision=None)
        link = await opens(record_for(http.url), RecordingListener(), known_revision=None)

        assert (link.server_info.revision, await call(link)) == ("legacy", echoed())
        await link.aclose()


@pytest.mark.parametrize("status", [400, 404])
async def test_a_probe_whose_post_is_rejected_is_evidence_of_a_session_based_server(status: int) -> None:
    class Strict(Sse):
        async def take(self, request: Request, peer: Peer) -> None:
            if request.rpc == "server/discover":
                await peer.respond(b"no such thing", status=status)
            else:
                await super().take(request, peer)

    async with linked(Strict()) as (_, link):
        assert link.server_info.revision == "legacy"


async def test_a_response_may_come_before_its_post_has_one() -> None:
    class Early(Sse):
        async def take(self, request: Request, peer: Peer) -> None:
            if request.rpc == "tools/call":
                await self.say(self.respond(request))
                await peer.gone()
            await super().take(request, peer)

    async with linked(Early()) as (_, link):
        assert [await call(link, n) for n in range(3)] == [echoed(n) for n in range(3)]


@pytest.mark.parametrize(
    ("status", "ends"),
    [pytest.param(404, True, id="the session is gone"), pytest.param(503, False, id="busy")],
)
async def test_a_rejected_post_fails_its_call_and_a_lost_session_the_connection(
    status: int, ends: bool
) -> None:
    class Refusing(Sse):
        async def take(self, request: Request, peer: Peer) -> None:
            if request.rpc == "tools/call":
                await peer.respond(b"no", status=status)
            else:
                await super().take(request, peer)

    received = RecordingListener()
    async with linked(Refusing(), received) as (_, link):
        with pytest.raises(ServerUnavailable, match=f"status {status}"):
            await call(link)

        assert received.closings == (["the server no longer knows the session"] if ends else [])


async def test_ups_a_post_cut_off_has_an_unknown_outcome_and_is_not_repeated() -> None:
    class Cutting(Sse):
        async def take(self, request: Request, peer: Peer) -> None:
            if request.rpc == "tools/call":
                peer.reset()
            else:
                await super().take(request, peer)

    async with linked(Cutting()) as (http, link):
        with pytest.raises(ServerUnavailable) as caught:
            await call(link)

        assert caught.value.data == {"outcome": "unknown"}
        assert len(http.seen("tools/call")) == 1


async def test_a_servers_own_requests_get_responses_and_unknown_responses_are_dropped() -> None:
    server, received = Sse(), RecordingListener()
    async with linked(server, received) as (http, link):
        content: list[dict[str, Any]] = [
            {"jsonrpc": "2.0", "id": "p", "method": "ping"},
            {"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage"},
            {"jsonrpc": "2.0", "id": 999_999, "result": {}},
            {"jsonrpc": "2.0", "id": None, "error": {}},
            {"log": "line"},
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}},
            LIST_CHANGED,
        ]
        for message in content:
            await server.say(message)
        await received.until_notified(1)
        while len(http.seen("answer")) < 2:
            await asyncio.sleep(0.01)

        responses = {one.message["id"]: one.message for one in http.seen("answer")}
        assert (responses["p"]["result"], responses["s"]["error"]["code"]) == ({}, -32601)
        assert [method for method, _ in received.notifications] == ["notifications/tools/list_changed"]
        assert await call(link) == echoed()


@pytest.mark.parametrize("value", [b"NaN", b'"\\ud800"', b'"\xff"'])
async def test_a_response_that_cannot_be_relayed_fails_its_call_at_once(value: bytes) -> None:
    class Odd(Sse):
        async def take(self, request: Request, peer: Peer) -> None:
            if request.rpc != "tools/call":
                await super().take(request, peer)
                return
            await peer.respond(status=202)
            number = b"%d" % request.message["id"]
            body = b'{"jsonrpc":"2.0","id":%b,"result":{"echo":%b}}' % (number, value)
            assert self.stream is not None
            await self.stream.chunk(b"data: %b\n\n" % body)

    async with linked(Odd()) as (_, link):
        rpc = await call(link)

        assert rpc.result is not None or json.loads(rpc.error or b"")["code"] == -32603


@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(b"data: log\n\n" * 11, id="many events"),
        pytest.param(b"data: " + b"x" * 2**20 + b"y\n\n", id="many bytes"),
    ],
)
async def test_a_stream_full_of_noise_ends_the_connection(noise: bytes) -> None:
    server, received = Sse(), RecordingListener()
    async with linked(server, received, max_noise=10):
        assert server.stream is not None
        for times in (1, 2):
            await server.stream.chunk(b"data: {}\n\n" * 10)
            await server.say(LIST_CHANGED)
            await received.until_notified(times)
        assert received.closings == []
        await server.stream.chunk(noise)
        while not received.closings:
            await asyncio.sleep(0.01)

        assert "not MCP" in received.closings[0]


async def test_sec_neither_the_credential_nor_the_session_is_shown_in_errors() -> None:
    class Telling(Sse):
        def respond(self, request: Request) -> dict[str, Any]:
            if request.rpc != "tools/call":
                return super().respond(request)
            message = f"{request.headers['authorization']} {request.path}"
            return {"jsonrpc": "2.0", "id": request.message["id"], "error": {"code": 1, "message": message}}

    async with linked(Telling(), auth_ref="TOKEN") as (http, link):
        rpc: RpcResponse = await call(link)

        assert {one.headers["authorization"] for one in http.requests} == {f"Bearer {SECRET}"}
        assert rpc.error is not None
        assert SECRET.encode() not in rpc.error
        assert SESSION.encode() not in rpc.error


async def test_a_second_endpoint_changes_nothing() -> None:
    server, received = Sse(), RecordingListener()
    async with linked(server, received) as (http, link):
        assert server.stream is not None
        await server.stream.chunk(b"event: endpoint\ndata: /elsewhere\n\nevent: other\ndata: x\n\n")
        await server.say(LIST_CHANGED)
        await received.until_notified(1)

        assert await call(link) == echoed()
        assert http.requests[-1].path == server.endpoint


async def test_a_record_without_a_url_cannot_be_reached() -> None:
    with pytest.raises(StartFailed) as caught:
        await opener()(
            ServerRecord(server_id="there", transport="http_sse_legacy"),
            RecordingListener(),
            known_revision=None,
        )

    assert caught.value.fatal
