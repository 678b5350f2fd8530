"""Traces at the MCP door: what is handed on, and that nothing is touched while they are off."""

import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import JSON_HEADERS, META, MODERN, McpWorld, open_mcp_world
from tests.surfaces.mcp.test_endpoint_approvals import BY_OTHERS, with_approvals
from tests.surfaces.mcp.test_stateful_requests import CAN, FORM, ONE, begin, net_of
from tests.telemetry.traced import open_traced
from tests.upstream.memory_link import MemoryNet, text_result
from toolgate.upstream.connection.contract import ClientChannel, RpcResponse

pytestmark = pytest.mark.anyio

CARRIED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "x=1"}
OWN = {"traceparent": "anything", "tracestate": 7, "baggage": "user=ada", "mine": {"b": [1, 2.5], "a": "é"}}


async def call(world: McpWorld, meta: Any) -> Any:
    params = {"name": "one.echo", "arguments": {"n": 1}, "_meta": {**META, **meta}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "one.echo"}
    return (await world.request("POST", "/mcp", json.dumps(body).encode(), JSON_HEADERS | headers)).json


async def test_while_nothing_is_traced_the_meta_of_a_call_is_its_callers_own() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        await call(world, OWN)
        [seen] = world.net["one"].calls
        [recorded] = world.audited

        assert {name: seen.meta[name] for name in OWN} == OWN
        assert not {"traceparent", "tracestate"} & seen.headers.keys()
        assert recorded.trace_id == ""


async def test_while_traced_only_the_trace_in_the_meta_of_a_call_is_ours() -> None:
    async with open_traced() as traced, open_mcp_world(MemoryNet(), tracing=traced.tracing) as world:
        await call(world, {**OWN, **CARRIED})
        [seen] = world.net["one"].calls
        [recorded] = world.audited
    server, client = sorted(traced.spans, key=lambda span: span.kind, reverse=True)

    ours = {"traceparent": f"00-{'a' * 32}-{client.span_id}-01", "tracestate": "x=1"}
    assert {name: seen.meta[name] for name in OWN} == {**OWN, **ours}
    assert dict(seen.headers).items() >= ours.items()
    assert (server.parent_id, recorded.trace_id) == ("b" * 16, "a" * 32)


async def test_what_a_server_asks_in_between_keeps_the_trace_it_names() -> None:
    theirs = {"traceparent": f"00-{'c' * 32}-{'d' * 16}-01"}

    async def elicit(client: ClientChannel) -> RpcResponse:
        rpc = await client.request("elicitation/create", json.dumps({**FORM, "_meta": theirs}).encode())
        return RpcResponse(result=text_result((rpc.result or b"").decode()))

    async with open_traced() as traced, open_mcp_world(net_of(elicit), ONE, tracing=traced.tracing) as world:
        session = await world.session("/api/mcp", capabilities=CAN)
        under_way = begin(session)
        asked = await under_way.event()
        await session.respond(asked["id"], result={"action": "accept", "content": {}})
        await under_way.event()

    assert asked["params"]["_meta"] == theirs
    assert [span.name for span in traced.spans] == ["initialize", "tools/call act", "tools/call one.act"]


async def test_waiting_for_an_approval_is_a_step_of_its_own_and_a_denial_a_failure() -> None:
    async with (
        open_traced() as traced,
        open_mcp_world(MemoryNet(), BY_OTHERS, tracing=traced.tracing) as world,
    ):
        with_approvals(world)
        await call(world, CARRIED)
    approval, server = traced.spans

    assert (approval.name, approval.parent_id, server.name) == (
        "approval",
        server.span_id,
        "tools/call one.echo",
    )
    assert {span.notes["error.type"] for span in (approval, server)} == {"mcp_approval_required"}


async def test_what_is_no_request_is_no_span() -> None:
    async with open_traced() as traced, open_mcp_world(MemoryNet(), tracing=traced.tracing) as world:
        session = await world.session("/api/mcp")
        await session.notify("notifications/initialized")
        await session.send("nonsense/of-a-method")

    assert [(span.name, span.is_failed) for span in traced.spans] == [
        ("initialize", False),
        ("nonsense/of-a-method", True),
    ]
