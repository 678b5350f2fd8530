"""A session's stream that breaks is taken up again, by any node, and its client is told what it missed."""

import asyncio
from typing import Any

import pytest

from tests.eventually import eventually_async
from tests.surfaces.mcp.mcp_world import LegacyClient, McpWorld, Stream, open_mcp_world
from tests.surfaces.mcp.test_endpoint import GIT, NOTES, world
from tests.surfaces.mcp.test_sse import settled
from tests.upstream.memory_link import definition, record
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.scope.caller import Caller
from toolgate.surfaces.mcp.responses import encode_event_id, parse_event_id

pytestmark = pytest.mark.anyio

TOOLS_CHANGED = "notifications/tools/list_changed"


async def opened(session: LegacyClient, **headers: str) -> Stream:
    """A stream, with the id it opened with."""
    stream = session.stream(**headers)
    async with asyncio.timeout(60):
        assert await stream.status == 200
        chunk = (await stream.chunks.get()).decode()
    if chunk.startswith("id: "):
        stream.last_event_id = chunk.split("\n")[0].removeprefix("id: ")
    return stream


async def quiet(served: McpWorld, stream: Stream) -> bool:
    """Whether nothing is said on a stream but what changes from now on."""
    for _ in range(50):  # turns of the loop: any caller that has something to say says it
        await asyncio.sleep(0)
    if not stream.chunks.empty():
        return False
    served.net["git"].announce_tools(definition("marked"))
    await stream.event()
    return stream.chunks.empty()


def carried_over(session: LegacyClient, served: McpWorld) -> LegacyClient:
    """The same client, at another node or after a restart."""
    return LegacyClient(served, session.url, session.headers)


async def test_a_stream_that_missed_nothing_gets_nothing() -> None:
    async with settled(world(), GIT) as served:
        session = await served.session("/api/mcp")
        first = await opened(session)
        await first.leave()
        second = await opened(session, **{"last-event-id": first.last_event_id})

        assert await quiet(served, second)
        await second.leave()


async def test_a_resumed_stream_gets_at_once_what_it_missed() -> None:
    async with settled(world(), GIT, NOTES) as served:
        session = await served.session("/api/mcp")
        first = await opened(session)
        await first.leave()
        served.apply(servers={"git": GIT})
        second = await opened(session, **{"last-event-id": first.last_event_id})

        assert (await second.event())["method"] == TOOLS_CHANGED
        assert second.last_event_id not in {"", first.last_event_id}
        await second.leave()
        third = await opened(session, **{"last-event-id": second.last_event_id})
        assert await quiet(served, third)
        await third.leave()


@pytest.mark.parametrize("tools", [["status", "push", "log"], ["status"]])
async def test_rep_1_another_node_tells_what_was_missed_also_before_it_knows_its_servers(
    tools: list[str],
) -> None:
    async with settled(world(), GIT) as served:
        session = await served.session("/api/mcp")
        first = await opened(session)
        await first.leave()
    may_start = asyncio.Event()

    async def start() -> None:
        await may_start.wait()

    net = world()
    net["git"].tools = [definition(name) for name in tools]
    net["git"].on_start = start
    async with open_mcp_world(net, GIT) as restarted:
        again = carried_over(session, restarted)
        second = await opened(again, **{"last-event-id": first.last_event_id})
        assert second.chunks.empty()
        may_start.set()
        if tools == ["status"]:
            assert (await second.event())["method"] == TOOLS_CHANGED
        else:
            await restarted.gateway.wait_for_view(Caller(LOCAL_ADMIN))
            assert await quiet(restarted, second)
        await second.leave()


@pytest.mark.parametrize("event_id", ["", "5", "é", "A" * 32 + "=", "A" * 33, "x" * 5_000, "-" * 32])
async def test_an_id_that_is_none_of_ours_means_that_nothing_was_seen(event_id: str) -> None:
    async with settled(world(), GIT) as served:
        stream = await opened(await served.session("/api/mcp"), **{"last-event-id": event_id})
        notified = {(await stream.event())["method"] for _ in range(3)}

        assert notified == {
            f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")
        }
        await stream.leave()


@pytest.mark.parametrize(("version", "is_primed"), [("2025-11-25", True), ("2025-06-18", False)])
async def test_only_clients_that_know_of_it_get_an_event_that_says_nothing(
    version: str, is_primed: bool
) -> None:
    async with settled(world(), GIT) as served:
        stream = await opened(await served.session("/api/mcp", protocolVersion=version))

        assert bool(stream.last_event_id) == is_primed
        await stream.leave()


async def test_a_session_that_ends_ends_its_stream_and_what_servers_keep_for_it() -> None:
    own = record("own", allowed_tools=("*",), sharing="per_session")
    async with settled(world(), GIT, own) as served:
        links = served.net["own"].links
        shared = len(links)
        session = await served.session("/api/mcp")
        stream = await opened(session)
        await session.call("own.echo")
        assert len(links) == shared + 1
        await session.delete()
        await stream.whole()
        await eventually_async(lambda: len(links) == shared)

        assert len(served.gateway.subscriptions) == 0


def test_an_id_holds_the_picture_it_was_made_of() -> None:
    picture: Any = {"tools": b"aaaaaa", "resources": b"bbbbbb"}

    assert parse_event_id(encode_event_id(picture)) == picture
    assert len(encode_event_id({})) == 32
