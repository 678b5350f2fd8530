"""What a server is asked to keep telling, whatever link carries it."""

import asyncio

import msgspec
import pytest

from tests.contract.links import Ears, modern
from tests.contract.test_link import call_tool
from tests.eventually import eventually_async
from toolgate.upstream.connection.contract import ServerConnection

pytestmark = pytest.mark.anyio


async def until_watched(link: ServerConnection, *uris: str) -> None:
    async with asyncio.timeout(60):
        while await call_tool(link, "watched") != sorted(uris):
            await asyncio.sleep(0.01)


async def test_resources_are_watched_as_long_as_someone_wants_to_know(
    link: ServerConnection, ears: Ears
) -> None:
    link.watch(frozenset({"file:///a", "x:ü"}))
    await until_watched(link, "file:///a", "x:ü")
    for uris in ({"b:1"}, {"b:2"}, {"file:///a", "b:1"}):
        link.watch(frozenset(uris))
    await until_watched(link, "b:1", "file:///a")
    params = {"uri": "file:///a", "vendor": 1}
    await call_tool(
        link, "announce", arguments={"method": "notifications/resources/updated", "params": params}
    )
    await eventually_async(lambda: ears.notifications)
    link.watch(frozenset())
    await until_watched(link)

    received = list(zip(ears.notifications, map(msgspec.json.decode, ears.params), strict=True))
    assert received == [("notifications/resources/updated", params)]


async def test_who_has_a_resource_watched_can_wait_until_the_server_knows(link: ServerConnection) -> None:
    for uris in ({"a:1"}, {"a:1", "b:1"}):
        notified = link.watch(frozenset(uris))
        assert notified is not None
        async with asyncio.timeout(60):
            await notified

        assert await call_tool(link, "watched") == sorted(uris)


@modern
async def test_a_modern_server_is_asked_for_every_kind_of_change_it_announces(link: ServerConnection) -> None:
    changes = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    async with asyncio.timeout(60):
        while await call_tool(link, "filters") != [changes]:
            await asyncio.sleep(0.01)
        link.watch(frozenset({"b:1", "a:1"}))
        while await call_tool(link, "filters") != [changes | {"resourceSubscriptions": ["a:1", "b:1"]}]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_changes_of_every_list_reach_the_listener(
    link: ServerConnection, ears: Ears, kind: str
) -> None:
    method = f"notifications/{kind}/list_changed"
    async with asyncio.timeout(60):
        while not ears.notifications:
            await call_tool(link, "announce", arguments={"method": method})
            await asyncio.sleep(0.02)

    assert set(ears.notifications) == {method}
