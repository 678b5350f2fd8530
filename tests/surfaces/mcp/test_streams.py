"""Open streams of the MCP door: who is told of a change, and how a stream ends."""

import asyncio
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, Stream, key, open_mcp_world
from tests.surfaces.mcp.test_endpoint import ADA, BOB, GIT, NOTES, modern_tools, world
from tests.upstream.memory_link import definition
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("changed", ["session", "listen"])
async def test_only_clients_whose_list_changed_are_notified(changed: str) -> None:
    async with open_mcp_world(world(), GIT, NOTES) as served:
        streams = []
        for url in ("/api/mcp?servers=git", "/api/mcp?servers=notes"):
            if changed == "session":
                session = await served.session(url)
                await session.tools()
                streams.append(session.stream())
            else:
                await modern_tools(served, url)
                wanted = {"notifications": {"toolsListChanged": True}}
                streams.append(served.open_modern(url, "subscriptions/listen", wanted))
                assert (await streams[-1].event())["method"] == "notifications/subscriptions/acknowledged"
            assert await streams[-1].status == 200
        git, notes = streams
        while not notes.chunks.empty():
            notes.chunks.get_nowait()
        served.net["git"].announce_tools(definition("status"))

        assert (await git.event())["method"] == "notifications/tools/list_changed"
        assert notes.chunks.empty()
        for stream in streams:
            await stream.leave()
        assert len(served.gateway.subscriptions) == 0


async def test_shu_3_a_closing_door_ends_streams_with_their_last_word() -> None:
    async with open_mcp_world(world(), GIT) as served:
        listen = served.open_modern(
            "/api/mcp", "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        acknowledged = await listen.event()
        served.door.close()

        ended = await listen.event()
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        assert ended["id"] == 1
        assert ended["result"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 1}
        await listen.task


async def opened(served: McpWorld, era: str, secret: str) -> Stream:
    """A stream that has begun."""
    if era == "legacy":
        stream = (await served.session("/api/mcp", key=secret)).stream()
    else:
        wanted = {"notifications": {"toolsListChanged": True}}
        stream = served.open_modern("/api/mcp", "subscriptions/listen", wanted, key=secret)
        assert (await stream.event())["method"] == "notifications/subscriptions/acknowledged"
    assert await stream.status == 200
    return stream


async def last_words(stream: Stream) -> list[Any]:
    """What a stream still said before it ended by itself."""
    async with asyncio.timeout(60):
        await stream.task
    text = b"".join(stream.chunks.get_nowait() for _ in range(stream.chunks.qsize()))
    return [line for line in text.decode().splitlines() if line.startswith("data: {")]


ENDED = '{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}'
LAST_WORDS = {"legacy": [], "modern": ['data: {"jsonrpc":"2.0","id":1,"result":' + ENDED + "}"]}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="revoked"),
        pytest.param({"ada": key("ada", ADA, ceiling={"servers": ()})}, id="narrowed"),
        pytest.param({"ada": key("ada", ADA, expires_at_s=0)}, id="expired"),
        pytest.param({"ada": key("ada", ADA, role="node")}, id="made a node's"),
    ],
)
async def test_a_stream_ends_with_the_key_it_was_opened_with(era: str, changes: dict[str, Any]) -> None:
    ada, bob = key("ada", ADA), key("bob", BOB)
    async with open_mcp_world(world(), GIT, keys=(ada, bob)) as served:
        adas, bobs = await opened(served, era, ADA), await opened(served, era, BOB)
        served.apply(keys={"bob": bob, **changes})

        assert await last_words(adas) == LAST_WORDS[era]
        assert not bobs.task.done()
        assert len(served.gateway.subscriptions) == 1
        await bobs.leave()


async def test_a_call_in_flight_outlives_its_key_and_the_next_one_does_not() -> None:
    reached, may_answer = asyncio.Event(), asyncio.Event()

    async def answer_later(_members: dict[str, Any]) -> RpcResponse:
        reached.set()
        await may_answer.wait()
        return RpcResponse(result=b'{"content":[]}')

    net = world()
    net["git"].on_call = {"log": answer_later}
    async with open_mcp_world(net, GIT, keys=(key("ada", ADA),)) as served, asyncio.timeout(60):
        session = await served.session("/api/mcp", key=ADA)
        call = asyncio.ensure_future(session.call("git.log"))
        await reached.wait()
        served.apply(keys={})
        refused = await session.call("git.log")
        may_answer.set()

        assert (await call).json["result"] == {"content": []}
        assert refused.status == 401


async def test_a_session_has_one_stream_and_a_newer_one_takes_over() -> None:
    """The older may be broken without the node having noticed."""
    async with open_mcp_world(world(), GIT) as served:
        session = await served.session("/api/mcp")
        await session.tools()
        older = session.stream()
        assert await older.status == 200

        newer = session.stream()

        assert await newer.status == 200
        await older.whole()
        served.net["git"].announce_tools(definition("status"))
        assert (await newer.event())["method"] == "notifications/tools/list_changed"
        assert len(served.gateway.subscriptions) == 1
        await newer.leave()


async def test_lod_9_one_stream_too_many_is_refused() -> None:
    async with open_mcp_world(world(), GIT, max_streams=1) as served:
        first = (await served.session("/api/mcp")).stream()
        assert await first.status == 200
        second = (await served.session("/api/mcp")).stream()

        assert await second.status == 503
        await first.leave()
