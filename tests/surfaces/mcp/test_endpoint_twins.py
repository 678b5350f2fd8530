"""UPS-10: two servers that call themselves and their tools the same are two servers to everyone."""

import pytest

from tests.surfaces.mcp.mcp_world import open_mcp_world
from tests.upstream.memory_link import MemoryNet, record
from toolgate.model.servers import ServerRecord

pytestmark = pytest.mark.anyio

URL = "/api/mcp"


def twin(server_id: str, *allowed: str) -> ServerRecord:
    return record(server_id, allowed_tools=allowed)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_ups_10_each_is_reached_under_its_own_id(era: str) -> None:
    net = MemoryNet()
    async with open_mcp_world(net, twin("one", "*"), twin("two", "*")) as world:
        session = await world.session(URL)
        listed = await session.tools()
        for name in ("one.echo", "two.echo"):
            if era == "legacy":
                await session.call(name, to=name)
            else:
                await world.modern(URL, "tools/call", {"name": name, "arguments": {"to": name}})

        assert listed == ["one.echo", "two.echo"]
        assert [[seen.params["arguments"] for seen in net[name].calls] for name in ("one", "two")] == [
            [{"to": "one.echo"}],
            [{"to": "two.echo"}],
        ]


async def test_ups_10_what_one_may_be_called_for_says_nothing_about_the_other() -> None:
    net = MemoryNet()
    async with open_mcp_world(net, twin("one", "*"), twin("two", "other")) as world:
        session = await world.session(URL)
        listed = await session.tools()
        refused = await session.call("two.echo")
        bare = await session.call("echo")

        assert listed == ["one.echo"]
        assert (refused.code, bare.code, net["two"].calls) == (-32602, -32602, [])
