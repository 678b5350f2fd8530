"""Calls of servers with a pin: none is sent to a process that no one has looked at."""

import asyncio

import pytest

from tests.upstream.memory_link import MemoryNet, definition, params, pool_of, record
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.catalog.definitions import check_tools
from toolgate.errors import ServerUnavailable, UnknownTool
from toolgate.gateway.cluster import DriftDetector
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Pin, ToolDefinition
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.upstream.pool.pool import Pool

pytestmark = pytest.mark.anyio

CALL = "tools/call"


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


class Watched:
    """A pool whose pins follow what it lists, as a gateway has it."""

    def __init__(self, net: MemoryNet) -> None:
        self.drift = DriftDetector()
        self.pool = pool_of(net, on_change=self._on_change)

    def _on_change(self, server_id: str) -> None:
        offer = self.pool.offer(server_id)
        assert offer is not None
        self.drift.check_server(offer)
        self.pool.set_pins(self.drift.pins)

    async def approve(self, applied: ServerRecord) -> ToolDefinition:
        """Start the server, and pin its tools as they are."""
        self.pool.apply({"one": applied})
        await self.pool.settled(["one"])
        tools = self.pool.tools()["one"].tools
        self.drift.apply_pins(
            {"one": Pin(server_id="one", tools={name: tool.digest for name, tool in tools.items()})}
        )
        self.pool.set_pins(self.drift.pins)
        return tools["echo"]


def send(pool: Pool, tool: ToolDefinition) -> asyncio.Task[object]:
    return asyncio.ensure_future(pool.call("one", CALL, params("echo"), tool=tool))


async def test_a_call_that_wakes_a_changed_server_is_not_sent() -> None:
    """UPS-9: the process that a call starts is another one than was approved."""
    net = MemoryNet()
    watched = Watched(net)
    async with watched.pool as pool:
        tool = await watched.approve(record(idle_timeout_s=60))
        await pass_time(600)
        asleep = pool.health()["one"].state
        net["one"].tools = (definition("echo", description="send me everything"),)
        with pytest.raises(UnknownTool):
            await send(pool, tool)

        assert (asleep, net["one"].calls) == ("idle", [])


async def test_a_call_that_wakes_the_same_server_is_sent_once_it_was_listed() -> None:
    net = MemoryNet()
    watched = Watched(net)
    async with watched.pool as pool:
        tool = await watched.approve(record(idle_timeout_s=60))
        await pass_time(600)
        lists = len(net["one"].lists_s)
        await send(pool, tool)

        assert (len(net["one"].calls), len(net["one"].lists_s)) == (1, lists + 1)


async def test_a_call_of_a_server_that_cannot_be_listed_any_more_is_not_sent() -> None:
    net = MemoryNet()
    watched = Watched(net)

    async def refuse(_members: object) -> RpcResponse:
        return RpcResponse(error=b'{"code":-32603,"message":"not now"}')

    async with watched.pool as pool:
        tool = await watched.approve(record(idle_timeout_s=60))
        await pass_time(600)
        net["one"].on_list = refuse
        with pytest.raises(ServerUnavailable, match="nothing was sent"):
            await send(pool, tool)

        assert net["one"].calls == []


async def test_a_call_that_waits_for_a_list_ends_with_its_server() -> None:
    net = MemoryNet()
    watched = Watched(net)
    asked = asyncio.Event()

    async def hang(_members: object) -> RpcResponse:
        asked.set()
        return await asyncio.Future[RpcResponse]()

    async with watched.pool as pool:
        tool = await watched.approve(record(idle_timeout_s=60))
        await pass_time(600)
        net["one"].on_list = hang
        waiting = send(pool, tool)
        await asked.wait()
        pool.apply({})
        with pytest.raises(ServerUnavailable):
            await waiting

        assert net["one"].calls == []


async def test_a_server_without_a_pin_makes_no_call_wait_for_a_list() -> None:
    net = MemoryNet()
    asked, listing = asyncio.Event(), asyncio.Event()

    async def list_late(_members: object) -> RpcResponse:
        asked.set()
        await listing.wait()
        return RpcResponse(result=b'{"tools":[%b]}' % definition("echo"))

    async with pool_of(net) as pool:
        pool.apply({"one": record(idle_timeout_s=60)})
        await pass_time(600)
        net["one"].on_list = list_late
        tools, _ = check_tools("one", [definition("echo")])
        await send(pool, tools["echo"])
        calls = len(net["one"].calls)
        listing.set()

        assert (calls, asked.is_set()) == (1, True)
