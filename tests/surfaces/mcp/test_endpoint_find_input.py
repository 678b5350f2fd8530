"""What a server says and asks while `call_tool` calls its tool reaches the client of that call."""

import json
from collections.abc import Callable

import pytest

from tests.surfaces.mcp.mcp_world import open_mcp_world
from tests.surfaces.mcp.test_endpoint_find import GIT, OWN, called, world
from tests.surfaces.mcp.test_input_required import ACCEPT, CALL, again, call, legacy_net, modern_net
from tests.surfaces.mcp.test_sse import INITIALIZE, connected, settled
from tests.upstream.memory_link import Json, MemoryNet, record, text_result
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio


def asks_through(params: Json) -> Json:
    """The same call by way of `call_tool`."""
    return {
        **params,
        "name": "call_tool",
        "arguments": {name: params[name] for name in ("name", "arguments")},
    }


@pytest.mark.parametrize("net", [legacy_net, modern_net], ids=["a legacy server", "a modern server"])
async def test_a_modern_client_is_asked_by_its_answer_through_call_tool(net: Callable[[], MemoryNet]) -> None:
    through = asks_through(CALL)
    async with open_mcp_world(net(), record(allowed_tools=("*",))) as opened:
        first = await call(opened, through, path="/mcp/find")
        other = {**again(through, first), "arguments": {"name": "one.ask", "arguments": {"a": 2}}}
        misused = await call(opened, other, path="/mcp/find")
        last = await call(opened, again(through, first), path="/mcp/find")

        assert first.json["result"]["resultType"] == "input_required"
        assert "Ada" in last.json["result"]["content"][0]["text"]
        assert misused.json["error"]["data"]["code"] == "input_state_refused"


async def test_a_state_is_no_good_for_a_search() -> None:
    through = asks_through(CALL)
    async with open_mcp_world(modern_net(), record(allowed_tools=("*",))) as opened:
        first = await call(opened, through, path="/mcp/find")
        search = {**again(through, first), "name": "search_tools", "arguments": {"query": "x"}}
        misused = await call(opened, search, path="/mcp/find")

        assert misused.json["error"]["data"]["code"] == "input_state_refused"


@pytest.mark.parametrize("net", [legacy_net, modern_net], ids=["a legacy server", "a modern server"])
async def test_the_client_of_a_session_is_asked_through_call_tool(net: Callable[[], MemoryNet]) -> None:
    async with open_mcp_world(net(), record(allowed_tools=("*",))) as opened:
        session = await opened.session("/mcp/find", capabilities={"elicitation": {}})
        stream = session.begin("tools/call", asks_through(CALL), request_id="mine")
        asked = await stream.event()
        await session.respond(asked["id"], result=ACCEPT)
        ended = await stream.event()

        assert asked["method"] == "elicitation/create"
        assert "Ada" in ended["result"]["content"][0]["text"]


async def test_progress_of_a_tool_reaches_the_client_of_its_call_tool() -> None:
    async def act(_members: Json) -> RpcResponse:
        client = opened.net["git"].calls[-1].client
        assert client is not None
        client.notify("notifications/progress", b'{"progressToken":"mine","progress":1}')
        return RpcResponse(result=text_result("done"))

    async with open_mcp_world(world(), GIT) as opened:
        opened.net["git"].on_call = {"log": act}
        session = await opened.session("/mcp/find")
        stream = session.begin("tools/call", called("git.log"))
        notified = await stream.event()
        ended = await stream.event()

        assert (notified["method"], notified["params"]["progress"]) == ("notifications/progress", 1)
        assert ended["result"]["content"][0]["text"] == "done"


async def test_the_2024_transport_has_the_find_tools_too() -> None:
    async with settled(world(), GIT) as opened, connected(opened, "/mcp/find") as client:
        await client.request("initialize", INITIALIZE)
        tools = (await client.request("tools/list"))["result"]["tools"]
        result = (await client.request("tools/call", called("git.log", n=1)))["result"]

        assert [tool["name"] for tool in tools] == OWN
        assert json.loads(result["content"][0]["text"]) == {"n": 1}
