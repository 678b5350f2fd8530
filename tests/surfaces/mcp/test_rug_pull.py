"""UPS-9: a server that shows one definition to who looks and another to who calls gets no call by that.

After the gateway has read a definition that differs from the approved one, no call of that tool arrives until
it is approved again, however often the server changes its mind; of a tool that was never approved none ever
arrives. Callers call all the time.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import cycle
from typing import Any, Final

import pytest

from tests.eventually import eventually_async
from tests.surfaces.mcp.mcp_world import McpWorld, open_mcp_world
from tests.surfaces.mcp.test_endpoint_pins import CHANGES, tools_of
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, text_result
from toolgate.errors import UnknownTool
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.model.principals import Principal
from toolgate.model.tools import Pin
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

ALTERNATIONS: Final = 10_000
APPROVED_EVERY: Final = 101
"""Odd, so that it is now the one definition that is approved, and now another."""
PLAIN: Final = tools_of({})
OTHERS: Final = [tools_of(one.values[0]) for one in CHANGES]  # type: ignore[arg-type]
NEVER: Final = definition("never")

CALLER: Final = Caller(Principal(id="agent", role="agent"), None)

Alternate = Callable[[McpWorld, tuple[bytes, ...]], Awaitable[None]]
Call = Callable[[McpWorld, str], Awaitable[None]]


class Spy:
    """Counts the calls that arrive at the server."""

    def __init__(self) -> None:
        self.is_pulled = False
        """The gateway has read another definition of `read` than the approved one."""
        self.arrived: Counter[str] = Counter()

    async def on_call(self, members: Any) -> RpcResponse:
        self.arrived[members["name"] + (", pulled" if self.is_pulled else "")] += 1
        return RpcResponse(result=text_result("done"))


async def by_answers(world: McpWorld, tools: tuple[bytes, ...]) -> None:
    """The server answers `tools` to the next list that the gateway asks for."""
    world.net["one"].tools = tools
    await world.gateway.servers.refresh("one")


async def by_notice(world: McpWorld, tools: tuple[bytes, ...]) -> None:
    """The server says that its list has changed, and it is read."""
    serial = world.gateway.snapshot.serial
    world.net["one"].announce_tools(*tools)
    async with asyncio.timeout(60):
        await world.gateway.wait_for_swap(serial)


def approve(world: McpWorld) -> None:
    """Someone approves of what is listed, but of `never`; what was found before is in the record by then."""
    gateway = world.gateway
    tools = gateway.snapshot.servers["one"].tools
    digests = {name: tool.digest for name, tool in tools.items() if name != "never"}
    world.apply(pins=gateway.drift.pins)
    world.apply(pins={"one": Pin(server_id="one", tools=digests)})


async def through_the_door(world: McpWorld, name: str) -> None:
    await world.modern("/api/mcp", "tools/call", {"name": name})


async def through_the_gateway(world: McpWorld, name: str) -> None:
    """What every door does, without the reading and writing."""
    view = world.gateway.view(CALLER)
    with suppress(UnknownTool):
        await world.gateway.call(view, name, {}, trace=Trace("mcp"))


@pytest.mark.parametrize(
    ("alternate", "call", "times"),
    [
        pytest.param(by_answers, through_the_gateway, ALTERNATIONS, id="answers"),
        pytest.param(by_notice, through_the_door, 500, id="list_changed"),
    ],
)
async def test_ups_9_no_call_of_a_tool_arrives_once_it_was_seen_to_differ(
    alternate: Alternate, call: Call, times: int
) -> None:
    spy, others = Spy(), cycle(OTHERS)
    server = MemoryServer(tools=(*PLAIN, NEVER), on_call={"read": spy.on_call, "never": spy.on_call})
    # Some calls before each list, while it is read, and after it.
    turns = asyncio.Semaphore(0)
    async with open_mcp_world(MemoryNet(one=server), list_gap_s=0.0) as world:

        async def call_again_and_again(name: str) -> None:
            while True:
                await turns.acquire()
                await call(world, name)

        await by_answers(world, (*PLAIN, NEVER))
        approve(world)
        async with asyncio.TaskGroup() as tasks:
            callers = [
                tasks.create_task(call_again_and_again(f"one.{name}")) for name in ("read", "never", "read")
            ]
            for alternation in range(times):
                for _ in range(4):
                    turns.release()
                await alternate(world, (*(PLAIN if alternation % 2 else next(others)), NEVER))
                spy.is_pulled = True
                if alternation % APPROVED_EVERY == APPROVED_EVERY - 1:
                    spy.is_pulled, before = False, spy.arrived["read"]
                    approve(world)
                    for _ in callers:
                        turns.release()
                    await eventually_async(lambda: spy.arrived["read"] > before)  # noqa: B023 (at once)
            for caller in callers:
                caller.cancel()

        assert set(spy.arrived) == {"read"}
        assert world.gateway.snapshot.pins["one"].changed.keys() == {"read"}
