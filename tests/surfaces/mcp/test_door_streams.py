"""Open streams of the MCP door: who is told of a change, and how a stream ends."""

import pytest

from tests.surfaces.mcp.house import open_house
from tests.surfaces.mcp.test_door import GIT, NOTES, modern_tools, world
from tests.upstream.memory_link import definition
from toolgate.gateway import subscriptions

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("changed", ["session", "listen"])
async def test_only_those_whose_list_changed_are_told(changed: str) -> None:
    async with open_house(world(), GIT, NOTES) as house:
        streams = []
        for url in ("/api/mcp?servers=git", "/api/mcp?servers=notes"):
            if changed == "session":
                session = await house.session(url)
                await session.tools()
                streams.append(session.stream())
            else:
                await modern_tools(house, url)
                wanted = {"notifications": {"toolsListChanged": True}}
                streams.append(house.open_modern(url, "subscriptions/listen", wanted))
                assert (await streams[-1].event())["method"] == "notifications/subscriptions/acknowledged"
            assert await streams[-1].status == 200
        git, notes = streams
        while not notes.chunks.empty():
            notes.chunks.get_nowait()
        house.net["git"].announce_tools(definition("status"))

        assert (await git.event())["method"] == "notifications/tools/list_changed"
        assert notes.chunks.empty()
        for stream in streams:
            await stream.leave()
        assert len(house.gateway.subscriptions) == 0


async def test_shu_3_a_closing_door_ends_streams_with_their_last_word() -> None:
    async with open_house(world(), GIT) as house:
        listen = house.open_modern(
            "/api/mcp", "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        acknowledged = await listen.event()
        house.door.close()

        ended = await listen.event()
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        assert ended["id"] == 1
        assert ended["result"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 1}
        await listen.task


async def test_a_session_has_one_stream() -> None:
    async with open_house(world(), GIT) as house:
        session = await house.session("/api/mcp")
        first = session.stream()
        assert await first.status == 200

        second = session.stream()

        assert await second.status == 409
        await first.leave()
        third = session.stream()
        assert await third.status == 200
        await third.leave()


async def test_lod_9_one_stream_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_OPEN", 1)
    async with open_house(world(), GIT) as house:
        first = (await house.session("/api/mcp")).stream()
        assert await first.status == 200
        second = (await house.session("/api/mcp")).stream()

        assert await second.status == 503
        await first.leave()
