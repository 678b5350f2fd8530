"""Real clients against real servers: each sees and calls exactly the tools of its URL, whatever eras meet.

Behind the gateway stand servers of both eras; in front of it, clients of both.
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
from mcp.types import TextContent

from tests.scenarios.gateway import ROOT, Gateway, Site, run, running
from tests.scenarios.waiting import settle_on

pytestmark = pytest.mark.xdist_group("scenario-clients")

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
LEGACY_PYTHON = ROOT / ".venv-legacy/bin/python"


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
}


def sdk(mode: str) -> Callable[[str, Use], Seen]:
    """The official client, which opens a session, or probes first, or knows what it wants."""

    async def use_tool(url: str, use: Use) -> Seen:
        async with Client(url, mode=mode) as client:
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


def openai_agents(url: str, use: Use) -> Seen:
    return run_script(Path(sys.executable), "agents_client.py", url, use)


def langchain(url: str, use: Use) -> Seen:
    return run_script(LEGACY_PYTHON, "langchain_client.py", url, use)


def run_script(python: Path, script: str, url: str, use: Use) -> Seen:
    ran = run([str(python), "-I", str(HERE / script), url, use.name, json.dumps(use.arguments)])
    assert ran.code == 0, ran.err
    return Seen(**ran.json)


CLIENTS: dict[str, Callable[[str, Use], Seen]] = {
    "SDK, legacy": sdk("legacy"),
    "SDK, auto": sdk("auto"),
    "SDK, modern": sdk("2026-07-28"),
    "fastmcp CLI": fastmcp_cli,
    "openai-agents": openai_agents,
    "langchain-mcp-adapters": langchain,
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    if not LEGACY_PYTHON.exists():
        pytest.fail(
            "there is no `.venv-legacy`, which holds the clients of the older SDK: `make test` makes it"
        )
    site = Site(tmp_path_factory.mktemp("clients"))
    notes = {"command": sys.executable, "args": ["-I", str(ROOT / "examples/notes_server.py")]}
    clock = {"command": str(BIN / "mcp-server-time"), "args": ["--local-timezone", "UTC"]}
    old = {"command": str(LEGACY_PYTHON), "args": ["-I", str(HERE / "old_sdk_server.py")]}
    site.place(
        site.server("notes", stdio=notes), site.server("clock", stdio=clock), site.server("old", stdio=old)
    )
    with running(site) as gateway:
        settle_on(
            lambda: {name: gateway.health(name)["era"] for name in ("notes", "clock", "old")},
            {"notes": "modern", "clock": "modern", "old": "legacy"},
            within_s=20,
        )
        yield gateway


@pytest.mark.parametrize("era", USES)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_sees_and_calls_exactly_the_tools_of_its_url(
    gateway: Gateway, client: str, era: str
) -> None:
    use = USES[era]

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
