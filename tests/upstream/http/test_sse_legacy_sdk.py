"""Links over the transport of 2024 to servers of the official SDK, which speak both eras on it too."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.upstream.http.test_streamable_sdk import Upstream
from tests.upstream.http_links import RecordingListener, params
from toolgate.errors import CallTimedOut
from toolgate.model.servers import HttpEndpoint, ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import ServerConnection
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.sse_legacy import SseLegacyConnector

pytestmark = pytest.mark.anyio


def app_of(upstream: Upstream) -> Starlette:
    transport = SseServerTransport("/messages/")

    async def serve(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await upstream.server.run(read, write, upstream.server.create_initialization_options())
        return Response()

    messages = Mount("/messages/", app=transport.handle_post_message)
    return Starlette(routes=[Route("/sse", serve), messages])


@asynccontextmanager
async def serving(upstream: Upstream) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app_of(upstream), log_config=None, timeout_graceful_shutdown=1))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/sse"
        server.should_exit = True
        await task


@asynccontextmanager
async def linked(
    upstream: Upstream, era: Revision, received: RecordingListener | None = None
) -> AsyncIterator[ServerConnection]:
    opener = SseLegacyConnector(EndpointResolver(Secrets({}), Egress(allow_private=True)))
    async with asyncio.timeout(60), serving(upstream) as url:
        record = ServerRecord(server_id="there", transport="http_sse_legacy", http=HttpEndpoint(url=url))
        # The SDK speaks both eras; a caller that remembers it as legacy is not told otherwise.
        link = await opener(record, received or RecordingListener(), known_revision=era)
        try:
            yield link
        finally:
            await link.aclose()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("mcp", "uvicorn"):
        caplog.set_level(logging.CRITICAL, logger=name)


async def call(link: ServerConnection, text: str, timeout_s: float = 60.0) -> Any:
    arguments = params(name="echo", arguments={"text": text})
    rpc = await link.request("tools/call", arguments, timeout_s=timeout_s)
    return json.loads(rpc.result or rpc.error or b"")


@pytest.mark.requirement("002-006")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_tools_are_listed_and_called_in_both_eras(era: Revision) -> None:
    async with linked(Upstream(), era) as link:
        listed = json.loads((await link.request("tools/list", {}, timeout_s=60)).result or b"")
        results = await asyncio.gather(*(call(link, f"text {n}") for n in range(20)))

        assert link.server_info.revision == era
        assert [tool["name"] for tool in listed["tools"]] == ["echo"]
        assert [result["content"][0]["text"] for result in results] == [f"text {n}" for n in range(20)]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_given_up_is_cancelled_at_the_server(era: Revision) -> None:
    upstream = Upstream()
    async with linked(upstream, era) as link:
        with pytest.raises(CallTimedOut):
            await call(link, "hang", timeout_s=0.3)

        await upstream.cancelled.wait()
        assert (await call(link, "again"))["content"][0]["text"] == "again"


async def test_the_end_of_the_server_is_the_end_of_the_link() -> None:
    received = RecordingListener()
    async with linked(Upstream(), "legacy", received):
        pass
    assert received.closings == []

    opener = SseLegacyConnector(EndpointResolver(Secrets({}), Egress(allow_private=True)))
    async with asyncio.timeout(60), serving(Upstream()) as url:
        record = ServerRecord(server_id="there", transport="http_sse_legacy", http=HttpEndpoint(url=url))
        await opener(record, received, known_revision="legacy")

    assert len(received.closings) == 1
