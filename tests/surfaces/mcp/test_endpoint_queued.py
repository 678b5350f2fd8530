"""TRY-7: a call that waited for room at its server is decided again when its turn comes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, key, open_mcp_world
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record, text_result
from toolgate.model.servers import ApprovalPolicy, ServerRecord
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio
SECRET = "tg_" + "a" * 40
PROMPT = b'{"name":"greet"}'
ONE = record("one", allowed_tools=("*", "prompt:*"), concurrency=1)


class Stage:
    """A server whose one place is taken until it is let go."""

    def __init__(self) -> None:
        self.is_taken, self.let_go = asyncio.Event(), asyncio.Event()
        tools = (definition("hold"), definition("echo"))
        capabilities: Any = {"tools": {}, "prompts": {}}
        self.net = MemoryNet(
            one=MemoryServer(
                era="legacy",
                tools=tools,
                prompts=(PROMPT,),
                capabilities=capabilities,
                on_call={"hold": self._hold},
            )
        )

    async def _hold(self, _arguments: dict[str, Any]) -> RpcResponse:
        self.is_taken.set()
        await self.let_go.wait()
        return RpcResponse(result=text_result("held"))


async def call_while_waiting(
    world: McpWorld,
    stage: Stage,
    change: Callable[[], None],
    method: str = "tools/call",
    name: str = "one.echo",
) -> tuple[Any, list[str]]:
    """What a call gets that waits while `change` happens; and the tools that the server was called with."""
    session = await world.session("/api/mcp", key=SECRET)
    await session.tools()
    holding = asyncio.ensure_future(session.call("one.hold"))
    await stage.is_taken.wait()
    waiting = asyncio.ensure_future(session.send(method, {"name": name}))
    while world.gateway.servers.load().queued["one"] < 1:
        await asyncio.sleep(0)
    change()
    stage.let_go.set()
    await holding
    return (await waiting).json, [seen.params["name"] for seen in world.net["one"].calls]


def with_server(world: McpWorld, **fields: Any) -> Callable[[], None]:
    changed: ServerRecord = replace(ONE, **fields)
    return lambda: world.apply(servers={"one": changed})


@pytest.mark.parametrize(
    ("method", "name", "left"),
    [("tools/call", "one.echo", ("hold", "prompt:*")), ("prompts/get", "one.greet", ("*",))],
)
async def test_a_queued_request_that_policy_denies_by_now_is_not_sent(
    method: str, name: str, left: tuple[str, ...]
) -> None:
    stage = Stage()
    async with open_mcp_world(stage.net, ONE, keys=(key("ada", SECRET),)) as world:
        change = with_server(world, allowed_tools=left)
        body, sent = await call_while_waiting(world, stage, change, method, name)

        assert (body["error"]["code"], sent) == (-32602, ["hold"])


async def test_a_queued_call_of_a_key_that_is_gone_is_not_sent() -> None:
    stage = Stage()
    async with open_mcp_world(stage.net, ONE, keys=(key("ada", SECRET),)) as world:
        body, sent = await call_while_waiting(world, stage, lambda: world.apply(keys={}))

        assert ("result" in body, sent) == (False, ["hold"])


async def test_a_queued_call_that_needs_approval_by_now_is_not_sent() -> None:
    stage = Stage()
    async with open_mcp_world(stage.net, ONE, keys=(key("ada", SECRET),)) as world:
        change = with_server(world, approval_policy=ApprovalPolicy(default="always"))
        body, sent = await call_while_waiting(world, stage, change)

        assert "mcp_unavailable: the tool or its policy changed while" in body["result"]["content"][0]["text"]
        assert sent == ["hold"]


@pytest.mark.parametrize(("method", "name"), [("tools/call", "one.echo"), ("prompts/get", "one.greet")])
async def test_a_queued_request_that_is_still_allowed_is_sent(method: str, name: str) -> None:
    stage = Stage()
    async with open_mcp_world(stage.net, ONE, keys=(key("ada", SECRET),)) as world:
        change = with_server(world, display_name="Another name")
        body, sent = await call_while_waiting(world, stage, change, method, name)

        assert ("result" in body, len(sent)) == (True, 2)
