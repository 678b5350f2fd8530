"""TRY-11: a server of both protocol revisions asks its clients in both ways, whatever revision they use."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError

from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.ports import own_port
from tests.scenarios.tally import wait_listed

SCRIPT = str(Path(__file__).with_name("both_server.py"))
MODES = {"session": "legacy", "stateless": "auto"}
"""Of the SDK's client, by the revision it then uses."""
TRANSPORTS = ("stdio", "http")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One with the server on both transports, and with the revision forced on the pipes of two more."""
    site = Site(tmp_path_factory.mktemp("both"))
    port = own_port()
    child: Any = {"stdio": {"command": sys.executable, "args": [SCRIPT]}}
    site.place(
        site.server("stdio", **child),
        site.server("http", transport="streamable_http", http={"url": f"http://127.0.0.1:{port}/mcp"}),
        site.server("only-session", protocol="session", **child),
        site.server("only-stateless", protocol="stateless", **child),
    )
    with subprocess.Popen([sys.executable, SCRIPT, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            with running(site) as found:
                wait_listed(found, *TRANSPORTS, "only-session", "only-stateless")
                yield found
        finally:
            process.terminate()


async def respond(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"name": "ada"})


def call(gateway: Gateway, revision: str, server_id: str, tool: str, *, times: int = 1) -> list[str]:
    """What a client of the official SDK gets, each time; of an error, its message."""

    async def use() -> list[str]:
        url = f"{gateway.url}/mcp/s/{server_id}"
        async with Client(url, mode=MODES[revision], elicitation_callback=respond) as client:
            return [await once(client) for _ in range(times)]

    async def once(client: Client) -> str:
        try:
            result = await client.call_tool(tool, {})
        except MCPError as exc:
            return exc.message
        assert isinstance(result.content[0], types.TextContent)
        return result.content[0].text

    return asyncio.run(use())


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("revision", "tool"), [("session", "ask_in_session"), ("stateless", "ask_by_result")]
)
def test_try_11_a_tool_that_asks_as_its_client_does_reaches_it(
    gateway: Gateway, transport: str, revision: str, tool: str
) -> None:
    assert call(gateway, revision, transport, tool) == ["ada"]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("revision", "tool", "refusal"),
    [
        ("session", "ask_by_result", "Handler returned an invalid result"),
        ("stateless", "ask_in_session", "no back-channel"),
    ],
)
def test_try_11_a_tool_that_asks_in_the_other_way_reaches_its_client_from_the_second_call_on(
    gateway: Gateway, transport: str, revision: str, tool: str, refusal: str
) -> None:
    first, *others = call(gateway, revision, transport, tool, times=3)

    assert refusal in first
    assert others == ["ada", "ada"]


@pytest.mark.parametrize("revision", MODES)
@pytest.mark.parametrize(
    ("server_id", "tool"), [("only-session", "ask_in_session"), ("only-stateless", "ask_by_result")]
)
def test_a_record_may_force_the_revision_for_all_clients(
    gateway: Gateway, revision: str, server_id: str, tool: str
) -> None:
    assert call(gateway, revision, server_id, tool) == ["ada"]
    assert gateway.health(server_id)["session_links"] == 0


@pytest.mark.parametrize("revision", MODES)
def test_a_client_gets_the_instructions_of_the_servers_in_its_scope(gateway: Gateway, revision: str) -> None:
    async def greeted(path: str) -> str | None:
        async with Client(f"{gateway.url}{path}", mode=MODES[revision]) as client:
            return client.instructions

    assert asyncio.run(greeted("/mcp/s/stdio")) == "Say who you are."
    assert asyncio.run(greeted("/mcp?servers=stdio,http")) == (
        "Server `http`:\nSay who you are.\n\nServer `stdio`:\nSay who you are."
    )
