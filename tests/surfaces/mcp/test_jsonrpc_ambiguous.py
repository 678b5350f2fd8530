"""A message that servers may read in another way is refused, and says which member it is about."""

import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import JSON_HEADERS, META, MODERN, McpWorld, Response, open_mcp_world
from tests.surfaces.mcp.test_endpoint_approvals import ONE, SENT, detail, with_approvals
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record

pytestmark = pytest.mark.anyio

CALL = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"one.echo","arguments":{"a":1}%s}%s}'
FLAGS = {"type": "object", "properties": {"-a": {}, "-A": {}}}


async def send(world: McpWorld, body: str) -> Response:
    session = await world.session("/api/mcp")
    return await world.request("POST", "/api/mcp", body.encode(), JSON_HEADERS | session.headers)


@pytest.mark.parametrize(
    "more",
    [
        *(',"NAME":"x"', ',"Arguments":{}', ',"name\\u0000":"x"', ',"na\\u200bme":"x"', ',"ｎａｍｅ":"x"'),
        *(',"URI":"x"', ',"argumentſ":{}', ',"_META":{}', ',"REQUESTSTATE":"x"', ',"name":"x"'),
        *(
            ',"_meta":{"PROGRESSTOKEN":1}',
            ',"_meta":{"IO.modelcontextprotocol/x":1}',
            ',"_meta":{"a":1,"A":2}',
        ),
        *(',"ref":{"NAME":"x"}', ',"other":{"b":1,"b":2}', ',"inputResponses":{"x":{"action":1,"ACTION":2}}'),
    ],
)
async def test_try_1_a_member_that_looks_like_one_that_matters_is_refused_under_its_id(more: str) -> None:
    async with open_mcp_world(MemoryNet()) as world:
        response = await send(world, CALL % (more, ""))

        assert (response.code, response.json["id"]) == (-32602, 7)
        assert (world.net["one"].calls, world.audited) == ([], [])


@pytest.mark.parametrize(
    "more", [',"Method":"x"', ',"PARAMS":{}', ',"i\\u0064":8', ',"id\\u0000":8', ',"ıd":8']
)
async def test_try_1_the_envelope_has_each_of_its_members_once(more: str) -> None:
    async with open_mcp_world(MemoryNet()) as world:
        response = await send(world, CALL % ("", more))

        assert (response.status, response.code, world.net["one"].calls) == (400, -32600, [])


async def test_try_1_an_answer_of_a_client_says_one_thing() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        bodies = ('{"action":"accept","Action":"decline"}', '{"action":"accept","action":"decline"}')
        sent = [await send(world, f'{{"jsonrpc":"2.0","id":"x","result":{one}}}') for one in bodies]

        assert [one.code for one in sent] == [-32600, -32600]


@pytest.mark.parametrize(
    ("arguments", "is_sent"),
    [
        pytest.param({"Name": 1, "ARGUMENTS": 2}, True, id="names of its own"),
        pytest.param({"labels": {"App": 1, "app": 2}}, True, id="data in another case, further in"),
        pytest.param({"-a": 1, "-A": 2}, True, id="two that the tool declares"),
        pytest.param({"amount": 1, "AMOUNT": 2}, False, id="in another case"),
        pytest.param({"amount": 1, "ａmount": 2}, False, id="in another width"),
        pytest.param({"amount\0": 1}, False, id="with a NUL"),
    ],
)
async def test_try_1_arguments_are_the_tools_own_and_each_is_one(
    arguments: dict[str, Any], is_sent: bool
) -> None:
    net = MemoryNet(one=MemoryServer(tools=[definition("echo", inputSchema=FLAGS)]))
    async with open_mcp_world(net) as world:
        response = await world.modern("/api/mcp", "tools/call", {"name": "one.echo", "arguments": arguments})

        assert [one.params["arguments"] for one in net["one"].calls] == [arguments] * is_sent
        assert (response.status == 200) == is_sent or response.json["error"]["code"] == -32602
        assert len(world.audited) == 1


@pytest.mark.parametrize(
    "arguments", [{"amount": 1, "AMOUNT": 1_000_000}, {"to": [{"amount": 1, "Amount": 1_000_000}]}]
)
async def test_try_1_no_approval_is_requested_for_an_ambiguous_call(
    arguments: dict[str, Any],
) -> None:
    async with open_mcp_world(MemoryNet(), ONE) as world:
        approvals = with_approvals(world)
        plain = await world.modern("/mcp", "tools/call", SENT)
        response = await world.modern("/mcp", "tools/call", {**SENT, "arguments": arguments})
        asked = await approvals.list(state=None, limit=10)

        assert detail(plain)["code"] == "mcp_approval_required"
        assert "can be read as another member" in json.dumps(response.json)
        assert len(asked) == 1


async def test_try_1_what_is_hidden_by_its_name_is_hidden_in_any_spelling() -> None:
    async with open_mcp_world(MemoryNet(), record("one", allowed_tools=("*",))) as world:
        arguments = {"pass\u200bword": "hunter2", "ｔｏｋｅｎ": "hunter2"}
        await world.modern("/mcp", "tools/call", {"name": "one.echo", "arguments": arguments})

        (audited,) = world.audited
        assert b"hunter2" not in bytes(audited.arguments)


async def test_the_header_that_names_a_tool_says_what_the_body_says() -> None:
    async with open_mcp_world(MemoryNet()) as world:
        params = {"name": "one.echo", "arguments": {}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "ONE.echo"}
        response = await world.request("POST", "/mcp", body.encode(), JSON_HEADERS | headers)

        assert (response.status, world.net["one"].calls) == (400, [])
