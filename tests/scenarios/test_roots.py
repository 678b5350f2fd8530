"""A server with a connection for each session knows the roots of its client at the first call."""

import asyncio
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext

from tests.node import node, node_file
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.tally import wait_listed

SERVER = "@modelcontextprotocol/server-filesystem/dist/index.js"


def test_the_first_call_of_a_session_sees_the_roots_of_its_client(tmp_path: Path) -> None:
    site = Site(tmp_path)
    given, root = tmp_path / "given", tmp_path / "root"
    given.mkdir()
    root.mkdir()
    stdio: Any = {"command": node(), "args": [node_file(SERVER), str(given)]}
    site.place(site.server("files", stdio=stdio, sharing="per_session"))
    with running(site) as gateway:
        wait_listed(gateway, "files")
        allowed = asyncio.run(first_call(gateway, root))

    assert str(root.resolve()) in allowed
    assert str(given.resolve()) not in allowed


async def first_call(gateway: Gateway, root: Path) -> str:
    async def roots(context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": root.as_uri()})])

    async with Client(f"{gateway.url}/mcp/s/files", mode="legacy", list_roots_callback=roots) as client:
        content = (await client.call_tool("list_allowed_directories", {})).content[0]
    assert isinstance(content, types.TextContent)
    return content.text
