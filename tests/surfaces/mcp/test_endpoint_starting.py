"""Calls while a server starts for the first time: its own say so, others do not wait for it."""

import asyncio

import pytest

from tests.surfaces.mcp.mcp_world import open_mcp_world, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, record

pytestmark = pytest.mark.anyio


async def never() -> None:
    await asyncio.Event().wait()


async def test_a_call_to_a_server_that_was_never_listed_yet_says_that_it_is_starting() -> None:
    net = MemoryNet(slow=MemoryServer(on_start=never))
    slow = record("slow", command="npx", allowed_tools=("*",))
    async with open_mcp_world(net, slow, first_list_wait_s=0.01) as world:
        response = await world.modern("/mcp", "tools/call", {"name": "slow.echo"})

    (content,) = response.json["result"]["content"]
    assert content["text"] == (
        'mcp_unavailable: server "slow" is still starting (0 s): npx is downloading packages. '
        "nothing to do; raise start_timeout_s if the network is slow"
    )


async def test_a_tool_of_a_hidden_starting_server_is_unknown() -> None:
    net = MemoryNet(slow=MemoryServer(on_start=never))
    slow = record("slow", command="npx", allowed_tools=("*",))
    other = task("other", default_server_ids=["quick"], allowed_server_ids=["quick"])
    quick = record("quick", allowed_tools=("*",))
    async with open_mcp_world(net, slow, quick, tasks=(other,), first_list_wait_s=0.01) as world:
        named = await world.modern("/api/mcp/t/other", "tools/call", {"name": "slow.echo"})
        absent = await world.modern("/api/mcp/t/other", "tools/call", {"name": "none.echo"})

    assert named.body.replace(b"slow", b"none") == absent.body


async def test_a_call_to_a_server_that_is_there_does_not_wait_for_one_that_starts() -> None:
    net = MemoryNet(slow=MemoryServer(on_start=never))
    servers = (record("slow", command="npx", allowed_tools=("*",)), record("quick", allowed_tools=("*",)))
    async with open_mcp_world(net, *servers, first_list_wait_s=3_600) as world:
        await world.gateway.servers.settled(["quick"])
        response = await world.modern(
            "/mcp", "tools/call", {"name": "quick.echo", "arguments": {"text": "x"}}
        )

    assert "result" in response.json
