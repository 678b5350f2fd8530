"""The transport of 2024 at the MCP door, in memory: one stream, bound to its URL, its key and its node."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import (
    JSON_HEADERS,
    META,
    MODERN,
    McpWorld,
    Response,
    Stream,
    key,
    open_mcp_world,
    task,
)
from tests.surfaces.mcp.test_endpoint import ADA, BOB, GIT, NOTES, world
from tests.upstream.memory_link import definition, record
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.scope.caller import Caller
from toolgate.surfaces.mcp.session import SessionLimits
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

GET = {"host": "127.0.0.1:8080", "accept": "text/event-stream"}
INITIALIZE = {"protocolVersion": "2024-11-05", "capabilities": {}}


@asynccontextmanager
async def settled(*arguments: Any, **options: Any) -> AsyncIterator[McpWorld]:
    """A world whose servers have all said what they have: no list changes by itself any more."""
    async with open_mcp_world(*arguments, **options) as opened:
        await opened.gateway.wait_for_view(Caller(LOCAL_ADMIN))
        yield opened


def credential(secret: str | None) -> dict[str, str]:
    return {} if secret is None else {"authorization": f"Bearer {secret}"}


@dataclass
class SseClient:
    """A client whose stream is open."""

    opened: McpWorld
    stream: Stream
    endpoint: str
    secret: str | None = None

    async def post(self, message: Any, **headers: str) -> Response:
        """POST to the stream; the status is all there is to see."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent = JSON_HEADERS | credential(self.secret) | headers
        return await self.opened.request("POST", self.endpoint, body, sent)

    async def send(self, method: str, params: Any = None, *, request_id: Any = 1) -> None:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        response = await self.post(message)
        assert (response.status, response.body) == (202, b"")

    async def request(self, method: str, params: Any = None) -> Any:
        """The whole answer, which comes on the stream."""
        await self.send(method, params)
        return await self.stream.event()

    async def tools(self) -> list[str]:
        return [tool["name"] for tool in (await self.request("tools/list"))["result"]["tools"]]


def open_stream(opened: McpWorld, url: str, secret: str | None = None, **headers: str) -> Stream:
    return opened.open("GET", url, b"", GET | credential(secret) | headers)


@asynccontextmanager
async def connected(opened: McpWorld, url: str, secret: str | None = None) -> AsyncIterator[SseClient]:
    stream = open_stream(opened, url, secret)
    async with asyncio.timeout(60):
        assert await stream.status == 200
        event, data, *_ = (await stream.chunks.get()).decode().split("\n")
    assert event == "event: endpoint"
    yield SseClient(opened, stream, data.removeprefix("data: "), secret)
    await stream.leave()


async def refused(stream: Stream) -> tuple[int, str]:
    """The status and code of a stream that did not open."""
    response = await stream.whole()
    return response.status, response.json["error"]["data"]["code"]


@pytest.mark.parametrize(
    ("url", "endpoint", "tools"),
    [
        ("/api/mcp", "/api/mcp", ["git.log", "git.push", "git.status", "notes.add", "notes.status"]),
        ("/mcp?servers=notes", "/mcp", ["notes.add", "notes.status"]),
        ("/api/mcp/s/git", "/api/mcp/s/git", ["log", "push", "status"]),
        ("/api/mcp/t/review", "/api/mcp/t/review", ["git.log", "git.status"]),
        ("/api/mcp?task=review&tools=status", "/api/mcp", ["git.status"]),
        ("/api/mcp?tools=", "/api/mcp", []),
    ],
)
async def test_sco_12_a_stream_keeps_what_its_url_asks_for(url: str, endpoint: str, tools: list[str]) -> None:
    review = task("review", default_server_ids=["git"], tool_denylist=["push"])
    async with (
        settled(world(), GIT, NOTES, tasks=(review,)) as opened,
        connected(opened, url) as client,
    ):
        server_info = await client.request("initialize", INITIALIZE)

        assert client.endpoint.startswith(f"{endpoint}?sessionId=")
        assert server_info["result"]["protocolVersion"] == "2024-11-05"
        assert (await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status == 202
        assert await client.tools() == tools
        hidden = await client.request("tools/call", {"name": "notes.none", "arguments": {}})
        assert hidden["error"]["code"] == -32602


@pytest.mark.requirement("004-11")
async def test_calls_are_answered_on_the_stream_each_under_its_own_id() -> None:
    async with settled(world(), GIT, NOTES) as opened, connected(opened, "/api/mcp") as client:
        await client.tools()
        for request_id in (1, "1", 2):
            arguments = {"text": f"{request_id!r}\n"}
            await client.send(
                "tools/call", {"name": "git.log", "arguments": arguments}, request_id=request_id
            )
        responses = [await client.stream.event() for _ in range(3)]

        outcome = {
            repr(one["id"]): json.loads(one["result"]["content"][0]["text"])["text"] for one in responses
        }
        assert outcome == {"1": "1\n", "'1'": "'1'\n", "2": "2\n"}


async def test_an_answer_with_line_ends_between_its_tokens_is_one_event() -> None:
    async def spread(_members: dict[str, Any]) -> RpcResponse:
        return RpcResponse(result=b'{\r\n"content": [],\n\n"note": "a\\nb"}')

    net = world()
    net["notes"].on_call = {"add": spread}
    async with settled(net, NOTES) as opened, connected(opened, "/api/mcp") as client:
        response = await client.request("tools/call", {"name": "notes.add"})

        assert response["result"]["note"] == "a\nb"


async def test_initialize_narrows_the_stream_and_never_past_its_url() -> None:
    async with settled(world(), GIT, NOTES) as opened, connected(opened, "/api/mcp?servers=git") as client:
        await client.request("initialize", INITIALIZE | {"tools": ["git.log", "notes.add"]})
        narrow = await client.tools()
        await client.request("initialize", INITIALIZE)

        assert (narrow, await client.tools()) == (["git.log"], ["git.log", "git.push", "git.status"])


@pytest.mark.parametrize(
    ("asked", "version"), [("2025-11-25", "2025-11-25"), ("2025-03-26", "2025-03-26"), ("1999", "2025-11-25")]
)
async def test_every_revision_with_a_handshake_is_agreed_on(asked: str, version: str) -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp") as client:
        server_info = await client.request("initialize", {"protocolVersion": asked})

        assert server_info["result"]["protocolVersion"] == version


async def test_the_stateless_revision_is_refused_so_that_a_client_goes_on_with_the_handshake() -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp") as client:
        probed = await client.request("server/discover", {"_meta": META})
        listed = await client.request("tools/list", {"_meta": META})

        assert (probed["error"]["code"], listed["error"]["code"]) == (-32601, -32022)
        assert MODERN not in listed["error"]["data"]["supported"]
        assert await client.tools() == ["git.log", "git.push", "git.status"]


async def test_unknown_methods_bad_params_and_pings_are_answered_on_the_stream() -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp") as client:
        assert (await client.request("no/such"))["error"]["code"] == -32601
        assert (await client.request("initialize"))["error"]["code"] == -32602
        assert (await client.request("tools/call", {"name": 5}))["error"]["code"] == -32602
        assert (await client.request("ping"))["result"] == {}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        pytest.param(b"", {}, 400, id="fuz-1 empty"),
        pytest.param(b"null", {}, 400, id="fuz-1 null"),
        pytest.param(b"[" * 100_000, {}, 400, id="fuz-3 depth"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', {}, 400, id="fuz-4"),
        pytest.param(b'{"jsonrpc":"2.0","id":null,"method":"ping"}', {}, 400, id="fuz-7"),
        pytest.param(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', {}, 400, id="fuz-8"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"result":{}}', {}, 400, id="fuz-9"),
        pytest.param(b"{}", {"content-type": "text/plain"}, 415, id="fuz-11"),
        pytest.param(b"{}", {"content-encoding": "gzip"}, 415, id="fuz-12"),
        pytest.param(b"{}", {"origin": "https://evil.example"}, 403, id="sco-18 origin"),
        pytest.param(b"{}", {"host": "evil.example"}, 403, id="sco-18 host"),
        pytest.param(b"{}", {"authorization": "Bearer wrong"}, 401, id="adm-7"),
    ],
)
async def test_what_does_not_belong_on_a_stream_is_refused_by_the_post(
    body: bytes, headers: dict[str, str], status: int
) -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp") as client:
        response = await client.post(body, **headers)

        assert response.status == status
        assert client.stream.chunks.empty()
        assert (await client.request("ping"))["result"] == {}


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def test_sco_13_and_15_a_stream_is_of_its_principal_only() -> None:
    async with (
        settled(world(), GIT, keys=(key("ada", ADA), key("bob", BOB))) as opened,
        connected(opened, "/api/mcp", ADA) as ada,
        connected(opened, "/api/mcp", BOB) as bob,
    ):
        own, bob.endpoint = bob.endpoint, ada.endpoint
        response = await bob.post(PING)
        session = ada.endpoint.partition("sessionId=")[2]
        headers = JSON_HEADERS | credential(BOB) | {"mcp-session-id": session}
        others = [await opened.request(method, "/api/mcp", b"", headers) for method in ("DELETE", "GET")]

        assert [one.status for one in (response, *others)] == [404, 404, 404]
        assert [(one.principal, one.code) for one in opened.audited] == [("key:bob", "unknown_session")] * 3
        assert ada.stream.chunks.empty()
        assert (await ada.request("ping"))["result"] == {}
        bob.endpoint = own
        assert (await bob.request("ping"))["result"] == {}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        pytest.param(lambda url: url[:-1] + ("A" if url[-1] != "A" else "B"), 404, id="another id"),
        pytest.param(lambda url: url.partition("=")[0] + "=", 404, id="no id"),
        pytest.param(lambda url: url + "&tools=git.push", 400, id="a selection next to it"),
        pytest.param(lambda url: url + "&sessionId=x", 400, id="two ids"),
        pytest.param(lambda url: url.replace("/api/mcp", "/api/mcp/no/such"), 404, id="no such path"),
    ],
)
async def test_a_post_names_an_open_stream_and_nothing_else(change: Any, status: int) -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp?tools=git.log") as client:
        client.endpoint = change(client.endpoint)
        response = await client.post(PING)

        assert response.status == status
        assert client.stream.chunks.empty()


async def test_a_session_in_the_query_and_in_a_header_is_ambiguous() -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp") as client:
        response = await client.post(PING, **{"mcp-session-id": client.endpoint.partition("=")[2]})

        assert response.status == 400


async def test_a_stream_that_is_elsewhere_or_over_is_named_as_the_reason() -> None:
    """As on another node, which knows the session by its signature and has no stream of it."""
    async with settled(world(), GIT) as opened, settled(world(), GIT) as other:
        async with connected(opened, "/api/mcp") as client:
            elsewhere = await SseClient(other, client.stream, client.endpoint).post(PING)
        over = await client.post(PING)

        assert (elsewhere.status, over.status) == (404, 404)
        assert "several nodes" in elsewhere.json["error"]["data"]["hint"]
        assert over.json["error"]["message"] == "no such session"


async def test_a_session_of_streamable_http_takes_no_messages_by_query() -> None:
    async with settled(world(), GIT) as opened:
        session = await opened.session("/api/mcp")
        response = await opened.post(f"/api/mcp?sessionId={session.headers['mcp-session-id']}", PING)

        assert response.status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"accept": "*/*"}, 405, id="anything will do"),
        pytest.param({"accept": "text/html"}, 406, id="a page"),
        pytest.param({"mcp-protocol-version": MODERN}, 405, id="the stateless revision"),
        pytest.param({"mcp-session-id": "x"}, 404, id="a session that is not there"),
        pytest.param({"authorization": "Bearer wrong"}, 401, id="adm-7"),
        pytest.param({"origin": "null"}, 403, id="sco-18"),
    ],
)
async def test_only_a_get_of_the_2024_transport_opens_one(headers: dict[str, str], status: int) -> None:
    async with settled(world(), GIT) as opened:
        response = await open_stream(opened, "/api/mcp", **headers).whole()

        assert response.status == status
        assert len(opened.gateway.subscriptions) == 0


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/api/mcp/t/none", (404, "not_found")),
        ("/api/mcp/no/such", (404, "not_found")),
        ("/api/mcp?nonsense=1", (400, "invalid_request")),
        ("/api/mcp?task=review&servers=notes", (403, "mcp_policy_denied")),
    ],
)
async def test_a_url_that_is_refused_opens_no_stream(url: str, expected: tuple[int, str]) -> None:
    review = task("review", default_server_ids=["git"])
    async with settled(world(), GIT, NOTES, tasks=(review,)) as opened:
        assert await refused(open_stream(opened, url)) == expected
        assert len(opened.gateway.subscriptions) == 0


async def test_lod_9_a_stream_too_many_is_refused() -> None:
    async with settled(world(), GIT, max_streams=1) as opened, connected(opened, "/api/mcp"):
        assert await refused(open_stream(opened, "/api/mcp")) == (503, "session_limit")


async def test_a_stream_tells_when_its_list_changes_and_keeps_quiet_otherwise() -> None:
    async with (
        settled(world(), GIT, NOTES) as opened,
        connected(opened, "/api/mcp?servers=git") as git,
        connected(opened, "/api/mcp?servers=notes") as notes,
    ):
        await git.tools()
        await notes.tools()
        opened.net["git"].announce_tools(definition("status"))

        assert (await git.stream.event())["method"] == "notifications/tools/list_changed"
        assert notes.stream.chunks.empty()


async def test_sco_21_a_revoked_tool_is_not_callable_on_an_open_stream() -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp") as client:
        await client.tools()
        opened.apply(servers={"git": record("git", allowed_tools=("log",))})
        await client.send("tools/call", {"name": "git.push", "arguments": {}})
        response = await client.stream.event()
        if response.get("method") == "notifications/tools/list_changed":
            response = await client.stream.event()

        assert response["error"]["code"] == -32602


class Gate:
    """A tool that answers when it may."""

    def __init__(self) -> None:
        self.reached, self.may_answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, _members: dict[str, Any]) -> RpcResponse:
        self.reached.set()
        await self.may_answer.wait()
        return RpcResponse(result=b'{"content":[]}')


@asynccontextmanager
async def calling(opened: McpWorld, gate: Gate, secret: str | None = None) -> AsyncIterator[SseClient]:
    """A client whose call is under way."""
    opened.net["git"].on_call = {"log": gate}
    async with asyncio.timeout(60), connected(opened, "/api/mcp", secret) as client:
        await client.send("tools/call", {"name": "git.log"}, request_id=7)
        await gate.reached.wait()
        yield client


async def test_a_call_is_taken_back_by_a_notification_and_gets_no_answer() -> None:
    gate = Gate()
    async with settled(world(), GIT) as opened, calling(opened, gate) as client:
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await client.post(cancelled)).status == 202

        for _ in range(2):
            assert (await client.request("ping"))["result"] == {}
        assert client.stream.chunks.empty()
        assert not client.stream.task.done()
        assert opened.net["git"].stopped_by == ["log"]


async def test_a_client_that_leaves_takes_its_calls_back_and_leaves_nothing() -> None:
    gate = Gate()
    async with settled(world(), GIT) as opened, calling(opened, gate) as client:
        await client.stream.leave()

        assert opened.net["git"].stopped_by == ["log"]
        assert len(opened.gateway.subscriptions) == 0
        assert (await client.post(PING)).status == 404


async def test_shu_3_a_closing_door_answers_what_is_under_way_and_takes_no_more() -> None:
    gate = Gate()
    async with settled(world(), GIT) as opened, calling(opened, gate) as client:
        opened.door.close()
        await asyncio.sleep(0)
        late = await client.post(PING)
        gate.may_answer.set()
        response = await client.stream.event()
        await client.stream.task

        assert (late.status, response["id"], response["result"]) == (404, 7, {"content": []})


async def test_a_stream_ends_with_its_key_and_another_s_goes_on() -> None:
    ada, bob = key("ada", ADA), key("bob", BOB)
    async with (
        settled(world(), GIT, keys=(ada, bob)) as opened,
        connected(opened, "/api/mcp", ADA) as adas,
        connected(opened, "/api/mcp", BOB) as bobs,
    ):
        opened.apply(keys={"bob": bob})
        async with asyncio.timeout(60):
            await adas.stream.task

        assert (await adas.post(PING)).status == 401
        assert (await bobs.request("ping"))["result"] == {}


async def test_a_stream_outlives_a_change_of_the_key_that_sessions_are_signed_with() -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp?tools=git.log") as client:
        opened.sessions.use_key(b"n" * 32)

        assert await client.tools() == ["git.log"]


async def test_a_stream_takes_so_many_requests_at_once() -> None:
    gate = Gate()
    async with (
        settled(world(), GIT, session_limits=SessionLimits(max_stream_requests=1)) as opened,
        calling(opened, gate) as client,
    ):
        full = await client.post(PING)
        assert (await client.post({"jsonrpc": "2.0", "method": "notifications/x"})).status == 202
        gate.may_answer.set()
        assert (await client.stream.event())["id"] == 7

        assert (full.status, full.json["error"]["data"]["code"]) == (503, "session_limit")
        assert (await client.request("ping"))["result"] == {}


async def test_a_bug_in_one_request_is_its_own_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    async with settled(world(), GIT) as opened, connected(opened, "/api/mcp") as client:
        with monkeypatch.context() as broken:
            broken.setattr(opened.gateway, "record_listing", fail)
            response = await client.request("tools/list")

        assert response["error"]["code"] == -32603
        assert "on purpose" not in json.dumps(response)
        assert "a request failed" in caplog.text
        assert (await client.request("ping"))["result"] == {}
