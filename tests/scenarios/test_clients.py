"""Real clients against real servers: each sees and calls exactly the tools of its URL, whatever eras meet.

Behind the gateway stand servers of both eras and all transports; in front of it, clients of both eras, over
streamable HTTP and over the transport of 2024.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.types import TextContent

from tests.scenarios.gateway import ROOT, Gateway, Site, run, running
from tests.scenarios.stage_http import open_http_stage
from tests.scenarios.stage_sse import LEGACY_PYTHON, check_legacy_python, open_sse_stage
from tests.scenarios.waiting import settle_on

pytestmark = pytest.mark.xdist_group("scenario-clients")

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Use:
    """What a client is to do, and what comes of it."""

    tools: tuple[str, ...]
    """What its URL selects."""
    name: str
    arguments: dict[str, Any]
    value: Any

    @property
    def path(self) -> str:
        return f"/api/mcp?tools={','.join(self.tools)}"


@dataclass(frozen=True)
class Seen:
    """What a client saw: the tools there are, and the answer of the one it called, as JSON."""

    tools: list[str]
    text: str

    @property
    def value(self) -> Any:
        return json.loads(self.text)


USES = {
    "modern": Use(
        tools=("notes.get_note", "notes.list_tags"),
        name="notes.get_note",
        arguments={"note_id": 2},
        value={
            "id": 2,
            "title": "Groceries",
            "text": "Oats, lemons, coffee.",
            "tags": ["home"],
            "archived": False,
        },
    ),
    "legacy": Use(tools=("old.add", "old.negate"), name="old.add", arguments={"a": 2, "b": 3}, value=5),
    "http": Use(tools=("web.echo",), name="web.echo", arguments={"text": "5"}, value=5),
    "sse": Use(tools=("far.add", "far.negate"), name="far.add", arguments={"a": 2, "b": 3}, value=5),
}
"""By what stands behind: two on stdio, of either era, and two behind URLs."""


def sdk(mode: str, *, over_sse: bool = False) -> Callable[[str, Use], Seen]:
    """The official client, which opens a session, or probes first, or knows what it wants."""

    async def use_tool(url: str, use: Use) -> Seen:
        async with Client(sse_client(url) if over_sse else url, mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            result = await client.call_tool(use.name, use.arguments)
        (content,) = result.content
        assert isinstance(content, TextContent)
        return Seen(tools, content.text)

    return lambda url, use: asyncio.run(use_tool(url, use))


def fastmcp_cli(url: str, use: Use) -> Seen:
    arguments = [f"{name}={value}" for name, value in use.arguments.items()]
    listed = run([str(BIN / "fastmcp"), "list", url, "--json"])
    called = run([str(BIN / "fastmcp"), "call", url, use.name, *arguments, "--json"])
    (content,) = called.json["content"]
    return Seen([tool["name"] for tool in listed.json["tools"]], content["text"])


def script(python: Path, name: str, *words: str) -> Callable[[str, Use], Seen]:
    """A client that is a program of its own."""

    def use_tool(url: str, use: Use) -> Seen:
        ran = run([str(python), "-I", str(HERE / name), url, use.name, json.dumps(use.arguments), *words])
        assert ran.code == 0, ran.err
        return Seen(**ran.json)

    return use_tool


CLIENTS: dict[str, Callable[[str, Use], Seen]] = {
    "SDK, legacy": sdk("legacy"),
    "SDK, auto": sdk("auto"),
    "SDK, modern": sdk("2026-07-28"),
    "fastmcp CLI": fastmcp_cli,
    "openai-agents": script(Path(sys.executable), "agents_client.py"),
    "langchain-mcp-adapters": script(LEGACY_PYTHON, "langchain_client.py"),
    "SDK, legacy, SSE": sdk("legacy", over_sse=True),
    "SDK, auto, SSE": sdk("auto", over_sse=True),
    "openai-agents, SSE": script(Path(sys.executable), "agents_client.py", "sse"),
    "langchain-mcp-adapters, SSE": script(LEGACY_PYTHON, "langchain_client.py", "sse"),
}
PROGRAMS: set[str] = {"fastmcp CLI", "openai-agents", "langchain-mcp-adapters"}
"""They take seconds to start, so not each of them meets every server."""
MEETINGS = [
    *((client, behind) for client in CLIENTS for behind in USES if client.startswith("SDK")),
    *((client, behind) for client in sorted(PROGRAMS) for behind in ("modern", "legacy")),
    ("openai-agents, SSE", "modern"),
    ("langchain-mcp-adapters, SSE", "sse"),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    check_legacy_python()
    site = Site(tmp_path_factory.mktemp("clients"))
    notes = {"command": sys.executable, "args": ["-I", str(ROOT / "examples/notes_server.py")]}
    clock = {"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "UTC"]}
    old = {"command": str(LEGACY_PYTHON), "args": ["-I", str(HERE / "old_sdk_server.py")]}
    eras = {"notes": "modern", "clock": "modern", "old": "legacy", "web": "legacy", "far": "legacy"}
    with open_http_stage() as web, open_sse_stage() as far:
        site.place(
            site.server("notes", stdio=notes),
            site.server("clock", stdio=clock),
            site.server("old", stdio=old),
            site.server("web", transport="streamable_http", http={"url": web}),
            site.server("far", transport="http_sse_legacy", http={"url": far}),
        )
        with running(site) as gateway:
            settle_on(lambda: {name: gateway.health(name)["era"] for name in eras}, eras, within_s=20)
            yield gateway


@pytest.mark.parametrize(("client", "behind"), MEETINGS)
def test_a_client_sees_and_calls_exactly_the_tools_of_its_url(
    gateway: Gateway, client: str, behind: str
) -> None:
    use = USES[behind]

    seen = CLIENTS[client](gateway.url + use.path, use)

    assert (sorted(seen.tools), seen.value) == (sorted(use.tools), use.value)


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
def test_a_tool_outside_the_url_is_unknown_to_the_sdk_client_of_every_era(
    gateway: Gateway, mode: str
) -> None:
    async def call_hidden() -> str:
        async with Client(gateway.url + "/api/mcp?tools=old.add", mode=mode) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("clock.get_current_time", {"timezone": "UTC"})
        return str(caught.value)

    assert asyncio.run(call_hidden()) == "Unknown tool: clock.get_current_time"
