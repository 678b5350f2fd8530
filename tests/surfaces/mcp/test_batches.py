"""JSON-RPC batches: served in sessions of 2025-03-26, and refused everywhere else with nothing executed."""

import asyncio
import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import JSON_HEADERS, META, LegacyClient, McpWorld, open_mcp_world
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record, text_result
from toolgate.errors import OutputTooLarge
from toolgate.surfaces.mcp.session import SessionLimits
from toolgate.surfaces.mcp.session_transports import MAX_BATCH
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio


def world(**handlers: Any) -> MemoryNet:
    tools = [definition(name) for name in ("echo", *handlers)]
    return MemoryNet(one=MemoryServer(tools=tools, on_call=handlers))


async def session_of(opened: McpWorld, version: str) -> LegacyClient:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    client = LegacyClient(opened, "/api/mcp", {})
    response = await client.send("initialize", params)
    client.headers["mcp-session-id"] = response.headers["mcp-session-id"]
    return client


def request(request_id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(request_id: Any, name: str, **arguments: Any) -> dict[str, Any]:
    return request(request_id, "tools/call", name=name, arguments=arguments)


async def test_a_batch_is_answered_as_one_array_with_a_response_for_each_request() -> None:
    async with open_mcp_world(world()) as opened:
        client = await session_of(opened, "2025-03-26")
        notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        mixed = [
            notification,
            request(1, "tools/list"),
            call("two", "one.echo", n=2),
            call(3, "one.missing"),
            {"jsonrpc": "1.0", "id": 4, "method": "ping"},
            request(5, "initialize", protocolVersion="2025-03-26"),
            request(6, "ping"),
        ]
        response = await client.open(mixed).whole()
        silent = await client.open([notification, notification]).whole()

        assert response.status == 200
        assert [one["id"] for one in response.json] == [1, "two", 3, None, 5, 6]
        assert [one.get("error", {}).get("code") for one in response.json] == [
            None,
            None,
            -32602,
            -32600,
            -32600,
            None,
        ]
        assert [one.params["arguments"] for one in opened.net["one"].calls] == [{"n": 2}]
        assert (silent.status, silent.body) == (202, b"")


async def test_requests_of_a_batch_run_at_once_and_each_can_be_taken_back() -> None:
    both, release = asyncio.Barrier(3), asyncio.Event()

    async def meet(members: dict[str, Any]) -> RpcResponse:
        await both.wait()
        await (release if members["arguments"].get("stays") else asyncio.Event()).wait()
        return RpcResponse(result=text_result("met"))

    async with open_mcp_world(world(meet=meet)) as opened, asyncio.timeout(60):
        client = await session_of(opened, "2025-03-26")
        stream = client.open([call(1, "one.meet", stays=True), call(2, "one.meet")])
        await both.wait()
        await client.notify("notifications/cancelled", {"requestId": 2})
        release.set()
        response = await stream.whole()

        assert [one["id"] for one in response.json] == [1]


async def test_what_a_server_says_meanwhile_comes_before_the_array() -> None:
    async def work(_members: dict[str, Any]) -> RpcResponse:
        client = opened.net["one"].calls[-1].client
        assert client is not None
        client.notify("notifications/progress", b'{"progressToken":"t","progress":1}')
        return RpcResponse(result=text_result("done"))

    async with open_mcp_world(world(work=work)) as opened:
        client = await session_of(opened, "2025-03-26")
        response = await client.open([request(1, "ping"), call(2, "one.work")]).whole()

        events = [
            json.loads(one[6:]) for one in response.body.decode().splitlines() if one.startswith("data: ")
        ]
        assert [one.get("method") for one in events[:-1]] == ["notifications/progress"]
        assert [one["id"] for one in events[-1]] == [1, 2]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_batch_in_a_session_of_another_revision_is_refused_whole(version: str) -> None:
    async with open_mcp_world(world()) as opened:
        client = await session_of(opened, version)
        response = await client.open([call(1, "one.echo")]).whole()

        assert (response.status, response.code) == (400, -32600)
        assert "2025-03-26" in response.json["error"]["message"]
        assert opened.net["one"].calls == []


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        pytest.param(b"[]", -32600, id="empty"),
        pytest.param(
            json.dumps([request(n, "ping") for n in range(MAX_BATCH + 1)]).encode(), -32600, id="long"
        ),
        pytest.param(b"[" * 100, -32700, id="not JSON"),
        pytest.param(b"[" * 100 + b"]" * 100, -32700, id="deep"),
    ],
)
async def test_a_batch_that_is_not_one_is_refused_whole(parts: bytes, code: int) -> None:
    async with open_mcp_world(world()) as opened:
        client = await session_of(opened, "2025-03-26")
        response = await opened.request("POST", "/api/mcp", parts, JSON_HEADERS | client.headers)

        assert (response.status, response.code) == (400, code)


async def test_a_batch_without_a_session_is_refused_whole() -> None:
    async with open_mcp_world(world()) as opened:
        modern = call(1, "one.echo") | {"params": {"name": "one.echo", "_meta": META}}
        responses = [
            await opened.post("/api/mcp", [request(1, "initialize", protocolVersion="2025-03-26")]),
            await opened.post("/api/mcp", [modern]),
        ]

        assert [(one.status, one.code) for one in responses] == [(400, -32600)] * 2
        assert opened.net["one"].calls == []


async def test_a_policy_decides_on_each_message_of_a_batch() -> None:
    async with open_mcp_world(world(other=None), record("one", allowed_tools=("echo",))) as opened:
        client = await session_of(opened, "2025-03-26")
        response = await client.open([call(1, "one.other"), call(2, "one.echo")]).whole()

        assert [one.get("error", {}).get("code") for one in response.json] == [-32602, None]
        assert [(one.tool, one.outcome) for one in opened.audited] == [
            ("one.other", "denied"),
            ("echo", "ok"),
        ]


async def test_the_responses_to_a_batch_are_held_up_to_a_bound() -> None:
    async def large(_members: dict[str, Any]) -> RpcResponse:
        return RpcResponse(result=text_result("x" * 10_000))

    limits = SessionLimits(max_batch_bytes=165_000)
    async with open_mcp_world(world(large=large), session_limits=limits) as opened:
        client = await session_of(opened, "2025-03-26")
        response = await client.open(
            [*(call(n, "one.large") for n in range(20)), request(20, "ping")]
        ).whole()

        assert len(response.body) <= limits.max_batch_bytes + 64 * 1024
        assert [one["id"] for one in response.json] == list(range(21))
        left_out = [one["error"]["data"]["code"] for one in response.json if "error" in one]
        assert left_out == [OutputTooLarge.code] * 4
        assert response.json[20]["result"] == {}


async def test_a_message_without_a_response_gets_none_from_a_batch_that_is_full() -> None:
    async def huge(_members: dict[str, Any]) -> RpcResponse:
        return RpcResponse(result=text_result("x" * 1_000))

    async def stay(_members: dict[str, Any]) -> RpcResponse:
        return await asyncio.Future()

    limits = SessionLimits(max_batch_bytes=100)
    async with open_mcp_world(world(huge=huge, stay=stay), session_limits=limits) as opened:
        client = await session_of(opened, "2025-03-26")
        stream = client.open([call(1, "one.huge"), call(2, "one.stay")])
        async with asyncio.timeout(60):
            while not opened.audited:
                await asyncio.sleep(0)
        await client.notify("notifications/cancelled", {"requestId": 2})
        response = await stream.whole()

        assert [one["id"] for one in response.json] == [1]
