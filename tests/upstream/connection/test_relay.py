"""A server of the last SDK of the handshake era asks the client behind a call, over every transport."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.contract.link_clients import Client, Json
from tests.contract.links import Ears
from tests.scenarios.stage_sse import LEGACY_PYTHON, check_legacy_python
from tests.upstream.http_links import params
from toolgate.model.servers import HttpEndpoint, ServerRecord, StdioLaunch, Transport
from toolgate.upstream.connection.contract import Connector, RpcResponse, ServerConnection
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector

pytestmark = pytest.mark.anyio

PROGRAM: Final = Path(__file__).with_name("asking_server.py")
CAN: Final = b'{"elicitation":{"form":{}},"sampling":{},"roots":{}}'
ANSWERS: Final[dict[str, Json]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "4"},
        "model": "mine",
    },
    "roots/list": {"roots": [{"uri": "file:///work"}]},
}


@asynccontextmanager
async def linked(word: str) -> AsyncIterator[ServerConnection]:
    check_legacy_python()
    command = [str(LEGACY_PYTHON), "-I", str(PROGRAM)]
    if word == "stdio":
        stdio = StdioLaunch(command=command[0], args=tuple(command[1:]))
        record = ServerRecord(server_id="asking", transport="stdio", stdio=stdio)
        warden = Warden()
        try:
            async with opened(StdioConnector(warden, Secrets(os.environ)), record) as link:
                yield link
        finally:
            await warden.aclose()
        return
    with subprocess.Popen([*command, word], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(await asyncio.to_thread(server.stdout.readline))
            async with opened(*over_http(word, port)) as link:
                yield link
        finally:
            server.kill()


def over_http(word: str, port: int) -> tuple[Connector, ServerRecord]:
    how = EndpointResolver(Secrets({}), Egress(allow_private=True))
    opener: Connector = SseLegacyConnector(how) if word == "sse" else StreamableConnector(how)
    transport: Transport = "http_sse_legacy" if word == "sse" else "streamable_http"
    endpoint = HttpEndpoint(url=f"http://127.0.0.1:{port}/{'sse' if word == 'sse' else 'mcp'}")
    return opener, ServerRecord(server_id="asking", transport=transport, http=endpoint)


@asynccontextmanager
async def opened(opener: Connector, record: ServerRecord) -> AsyncIterator[ServerConnection]:
    link = await opener(record, Ears(), known_revision=None, capabilities=CAN)
    try:
        yield link
    finally:
        await link.aclose()


@pytest.mark.parametrize("word", ["stdio", "sse", "http"])
async def test_a_person_a_model_and_the_roots_are_asked(word: str) -> None:
    async def respond(method: str, _members: Json) -> RpcResponse:
        return RpcResponse(result=msgspec.json.encode(ANSWERS[method]))

    client = Client(respond, capabilities=CAN)
    async with asyncio.timeout(60), linked(word) as link:
        call = params(name="consult", arguments={}, _meta={"progressToken": "mine"})
        rpc = await link.request("tools/call", call, timeout_s=60, client=client)

    result = msgspec.json.decode(rpc.result or b"{}")
    assert result["content"][0]["text"] == "Ada 4 file:///work"
    assert [method for method, _ in client.asked] == list(ANSWERS)
    assert [
        (members["progressToken"], members["progress"])
        for method, members in client.notified
        if method == "notifications/progress"
    ] == [("mine", 1.0), ("mine", 2.0), ("mine", 3.0)]
    assert [members["data"] for _, members in client.notified if "data" in members] == ["met Ada"]
