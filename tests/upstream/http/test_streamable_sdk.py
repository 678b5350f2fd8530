"""Links to servers of the official SDK, which serves both eras on one path."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from tests.upstream.http_links import RecordingListener, open_link, params, record_for
from toolgate.errors import CallTimedOut
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import ServerConnection

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


class Upstream:
    """An SDK server with one tool, and what it saw."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.cancelled = asyncio.Event()
        self.server: Server[Any] = Server(
            "sdk",
            version="1",
            on_list_tools=self._list,
            on_list_resources=self._list_resources,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self.bus),
            get_tool_input_schema=lambda name: SCHEMA if name == "echo" else None,
        )

    async def _list(
        self, ctx: ServerRequestContext[Any], listing: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="echo", input_schema=SCHEMA)])

    async def _list_resources(
        self, ctx: ServerRequestContext[Any], listing: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        return ListResourcesResult(resources=[])

    async def _call(self, ctx: ServerRequestContext[Any], call: CallToolRequestParams) -> CallToolResult:
        text = (call.arguments or {}).get("text", "")
        if text == "hang":
            try:
                await asyncio.sleep(60)
            finally:
                self.cancelled.set()
        return CallToolResult(content=[TextContent(type="text", text=text)])


@asynccontextmanager
async def serving(upstream: Upstream, how: str) -> AsyncIterator[str]:
    app = upstream.server.streamable_http_app(
        streamable_http_path="/mcp", json_response=how == "json", stateless_http=how == "stateless"
    )
    config = uvicorn.Config(app, lifespan="on", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        server.should_exit = True
        await task


@asynccontextmanager
async def linked(
    upstream: Upstream, era: Revision, *, received: RecordingListener | None = None, how: str = "streams"
) -> AsyncIterator[ServerConnection]:
    async with asyncio.timeout(60), serving(upstream, how) as url:
        # The SDK speaks both eras; a caller that remembers it as legacy is not told otherwise.
        link = await open_link(record_for(url), received, known_revision=era)
        try:
            yield link
        finally:
            await link.aclose()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="mcp")


async def call(link: ServerConnection, text: str, timeout_s: float = 60.0) -> Any:
    rpc = await link.request(
        "tools/call",
        params(name="echo", arguments={"text": text}),
        timeout_s=timeout_s,
        headers={"Mcp-Name": "echo"},
    )
    return json.loads(rpc.result or rpc.error or b"")


@pytest.mark.requirement("002-006")
@pytest.mark.parametrize("how", ["streams", "json", "stateless"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_tools_are_listed_and_called_in_both_eras(era: Revision, how: str) -> None:
    async with linked(Upstream(), era, how=how) as link:
        listed = json.loads((await link.request("tools/list", {}, timeout_s=60)).result or b"")
        results = await asyncio.gather(*(call(link, f"text {n}") for n in range(20)))

        assert link.server_info.revision == era
        assert [tool["name"] for tool in listed["tools"]] == ["echo"]
        assert [result["content"][0]["text"] for result in results] == [f"text {n}" for n in range(20)]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_unknown_method_is_an_error_object(era: Revision) -> None:
    async with linked(Upstream(), era) as link:
        rpc = await link.request("no/such", {}, timeout_s=60)

        assert json.loads(rpc.error or b"")["code"] == -32601


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_given_up_is_cancelled_at_the_server(era: Revision) -> None:
    upstream = Upstream()
    async with linked(upstream, era) as link:
        with pytest.raises(CallTimedOut):
            await call(link, "hang", timeout_s=0.3)

        await upstream.cancelled.wait()


async def test_a_modern_server_s_changes_arrive() -> None:
    upstream, received = Upstream(), RecordingListener()
    async with linked(upstream, "modern", received=received) as link:
        assert link.server_info.announces("tools", "listChanged")
        while not received.notifications:  # the stream opens in the background
            await upstream.bus.publish(ToolsListChanged())
            await asyncio.sleep(0.01)

        assert received.notifications[0][0] == "notifications/tools/list_changed"


async def test_a_modern_server_tells_of_the_resources_that_are_watched_and_no_others() -> None:
    upstream, received = Upstream(), RecordingListener()
    async with linked(upstream, "modern", received=received) as link:
        link.watch(frozenset({"note:///a"}))
        while not received.notifications:  # the stream opens in the background
            await upstream.bus.publish(ResourceUpdated(uri="note:///b"))
            await upstream.bus.publish(ResourceUpdated(uri="note:///a"))
            await asyncio.sleep(0.01)

        notified = {(method, json.loads(params)["uri"]) for method, params in received.notifications}
        assert notified == {("notifications/resources/updated", "note:///a")}
