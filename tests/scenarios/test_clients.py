"""Real clients against real servers: each sees and calls exactly the tools of its URL, whatever eras meet.

Behind the gateway stand servers of both eras and all transports; in front of it, clients of both eras, over
streamable HTTP and over the transport of 2024.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.types import TextContent

from tests.eventually import eventually_equal
from tests.forked_programs import forked
from tests.scenarios import reference
from tests.scenarios.claude_code import ClaudeCode, claude_name
from tests.scenarios.gateway import Gateway, Site, run, running
from tests.scenarios.inspector import Inspector
from tests.scenarios.stage_http import open_http_stage
from tests.scenarios.stage_sse import LEGACY_PYTHON, check_legacy_python, open_sse_stage

pytestmark = pytest.mark.xdist_group("scenario-clients")

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
ARGS_PROMPT = ("--prompt-name", "everything.args-prompt", "--prompt-args", "city=Paris")
DOCUMENT = "demo://resource/static/document/features.md"
GIT_BRANCH = {"repo_path": ".", "branch_type": "local"}


@dataclass(frozen=True)
class Use:
    """What a client is to do, and what comes of it."""

    tools: tuple[str, ...]
    """What its URL selects."""
    calls: dict[str, dict[str, Any]]
    """Those that it calls, with their arguments."""
    texts: list[str]
    """What they answer."""

    @property
    def path(self) -> str:
        return f"/api/mcp?tools={','.join(self.tools)}"


class Library(NamedTuple):
    """A client that is a program of its own. It takes long to import, so it runs once for all transports."""

    python: Path
    name: str
    eras: dict[str, str]
    """The era that it speaks over each transport."""


class Seen(NamedTuple):
    """What a client saw: the tools there are, and the answers of those it called."""

    tools: list[str]
    texts: list[str]


USES = {
    "both eras": Use(
        tools=("everything.echo", "everything.get-sum", "git.git_branch"),
        calls={
            "everything.echo": {"message": "Grüße"},
            "git.git_branch": GIT_BRANCH,
        },
        texts=["Echo: Grüße", "* main"],
    ),
    "older SDK": Use(tools=("old.add", "old.negate"), calls={"old.add": {"a": 2, "b": 3}}, texts=["5"]),
    "HTTP": Use(tools=("web.echo",), calls={"web.echo": {"text": "5"}}, texts=["5"]),
    "SSE": Use(tools=("far.add", "far.negate"), calls={"far.add": {"a": 2, "b": 3}}, texts=["5"]),
}
"""By what is behind: on stdio reference servers of either era and an older SDK; two behind URLs."""
FINDING = Use(
    tools=("call_tool", "describe_tool", "search_tools"),
    calls={
        "search_tools": {"query": "list branches", "limit": 1},
        "call_tool": {"name": "git.git_branch", "arguments": GIT_BRANCH},
    },
    texts=["git.git_branch", "* main"],
)
"""Where the tools of all those are found and not listed."""


def sdk(mode: str, *, over_sse: bool = False) -> Callable[[str, Use], Seen]:
    """The official client, which opens a session, or probes first, or knows what it wants."""

    async def use_tools(url: str, use: Use) -> Seen:
        async with Client(sse_client(url) if over_sse else url, mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            results = [await client.call_tool(name, arguments) for name, arguments in use.calls.items()]
        contents = [content for result in results for content in result.content]
        return Seen(tools, [content.text for content in contents if isinstance(content, TextContent)])

    return lambda url, use: asyncio.run(use_tools(url, use))


def fastmcp_cli(url: str, use: Use) -> Seen:
    listed = run(forked("fastmcp", "list", url, "--json"))
    called = [
        run(forked("fastmcp", "call", url, name, "--json", *(f"{key}={arguments[key]}" for key in arguments)))
        for name, arguments in use.calls.items()
    ]
    texts = [content["text"] for ran in called for content in ran.json["content"]]
    return Seen([tool["name"] for tool in listed.json["tools"]], texts)


def script(library: Library, use: Use, url: str) -> list[Seen]:
    """What one process of its own sees over each transport, in their order."""
    command = [str(library.python), "-I", str(HERE / library.name), url, json.dumps([*use.calls.items()])]
    ran = run([*command, *library.eras])
    assert ran.code == 0, ran.err
    return [Seen(**one) for one in ran.json]


def inspector(era: str, transport: str = "http") -> Callable[[str, Use], Seen]:
    client = Inspector(era, transport)

    def use_tools(url: str, use: Use) -> Seen:
        listed = client.request(url, "tools/list")
        called = [client.call(url, name, arguments) for name, arguments in use.calls.items()]
        texts = [content["text"] for result in called for content in result["content"]]
        return Seen([tool["name"] for tool in listed["tools"]], texts)

    return use_tools


def claude_code(era: str) -> Callable[[str, Use], Seen]:
    def use_tools(url: str, use: Use) -> Seen:
        names = {claude_name("gw", tool): tool for tool in use.tools}
        plan = {claude_name("gw", tool): arguments for tool, arguments in use.calls.items()}
        with tempfile.TemporaryDirectory() as home:
            seen = ClaudeCode(era, Path(home)).ask_with(url, "Call the tools.", plan)
        return Seen([names.get(name, name) for name in seen.tools_of("gw")], seen.responses)

    return use_tools


LIBRARIES = {
    "langchain-mcp-adapters": Library(
        LEGACY_PYTHON, "langchain_client.py", {"streamable_http": "legacy", "sse": "legacy"}
    ),
    "openai-agents": Library(
        Path(sys.executable), "agents_client.py", {"streamable_http": "modern", "sse": "legacy"}
    ),
    "pydantic-ai": Library(
        Path(sys.executable), "pydantic_ai_client.py", {"streamable_http": "modern", "sse": "legacy"}
    ),
}
SDK_CLIENTS = {
    "SDK, legacy": ("legacy", sdk("legacy")),
    "SDK, auto": ("modern", sdk("auto")),
    "SDK, modern": ("modern", sdk("2026-07-28")),
    "SDK, legacy, SSE": ("legacy", sdk("legacy", over_sse=True)),
    "SDK, auto, SSE": ("legacy", sdk("auto", over_sse=True)),
}
PROGRAMS = {
    "Claude Code 2.1.197": ("legacy", claude_code("legacy")),
    "Claude Code 2.1.325": ("modern", claude_code("modern")),
    "Inspector, legacy": ("legacy", inspector("legacy")),
    "Inspector, auto": ("modern", inspector("auto")),
    "Inspector, modern": ("modern", inspector("modern")),
    "Inspector, SSE": ("legacy", inspector("legacy", "sse")),
    "Inspector, auto, SSE": ("legacy", inspector("auto", "sse")),
    "fastmcp CLI": ("modern", fastmcp_cli),
}
"""With the era that each speaks here. They take a while to start, so they meet the reference servers only."""
CLIENTS = SDK_CLIENTS | PROGRAMS
MEETINGS = [
    *((client, behind) for client in SDK_CLIENTS for behind in USES),
    *((client, "both eras") for client in PROGRAMS),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    check_legacy_python()
    site = Site(tmp_path_factory.mktemp("clients"))
    old = {"command": str(LEGACY_PYTHON), "args": ["-I", str(HERE / "old_sdk_server.py")]}
    eras = {"everything": "legacy", "git": "modern", "old": "legacy", "web": "legacy", "far": "legacy"}
    with open_http_stage() as web, open_sse_stage() as far:
        site.place(
            reference.everything(site),
            reference.git(site),
            site.server("old", stdio=old),
            site.server("web", transport="streamable_http", http={"url": web}),
            site.server("far", transport="http_sse_legacy", http={"url": far}),
        )
        with running(site) as gateway:
            eventually_equal(lambda: {name: gateway.health(name)["era"] for name in eras}, eras, 120)
            yield gateway


def calls_in(audit: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in audit.splitlines()]
    return [event for event in events if event["type"] == "call"]


def calls_of(gateway: Gateway) -> list[tuple[str, str, str]]:
    """All calls so far: the tool, how it went, and the era of the client, for only one era has sessions."""
    return [
        (
            f"{event.get('server_id', '')}.{event['tool']}",
            event["outcome"],
            "legacy" if "session" in event else "modern",
        )
        for event in calls_in(gateway.audit)
    ]


@pytest.mark.requirement("002-054", "004-06")
@pytest.mark.parametrize(("client", "behind"), MEETINGS)
def test_a_client_sees_and_calls_exactly_the_tools_of_its_url(
    gateway: Gateway, client: str, behind: str
) -> None:
    use = USES[behind]
    era, use_tools = CLIENTS[client]
    before = calls_of(gateway)

    seen = use_tools(gateway.url + use.path, use)

    assert (sorted(seen.tools), seen.texts) == (sorted(use.tools), use.texts)
    eventually_equal(lambda: calls_of(gateway)[len(before) :], [(tool, "ok", era) for tool in use.calls])


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_for_agents_sees_and_calls_exactly_the_tools_of_its_url_over_every_transport(
    gateway: Gateway, name: str
) -> None:
    library, use = LIBRARIES[name], USES["both eras"]
    before = calls_of(gateway)

    seen = script(library, use, gateway.url + use.path)

    assert [(sorted(one.tools), one.texts) for one in seen] == [(sorted(use.tools), use.texts)] * 2
    expected = [(tool, "ok", era) for era in library.eras.values() for tool in use.calls]
    eventually_equal(lambda: calls_of(gateway)[len(before) :], expected)


@pytest.mark.parametrize(
    "client",
    [
        "SDK, legacy",
        "SDK, modern",
        "SDK, legacy, SSE",
        "Inspector, legacy",
        "Inspector, modern",
        "Claude Code 2.1.325",
    ],
)
def test_a_client_finds_a_tool_and_calls_it(gateway: Gateway, client: str) -> None:
    era, use_tools = CLIENTS[client]
    before = calls_of(gateway)

    seen = use_tools(f"{gateway.url}/api/mcp/find", FINDING)

    found, called = FINDING.texts
    assert sorted(seen.tools) == sorted(FINDING.tools)
    assert (found in seen.texts[0], seen.texts[1:]) == (True, [called])
    calls = [(".search_tools", "ok", era), ("git.git_branch", "ok", era)]
    eventually_equal(lambda: calls_of(gateway)[len(before) :], calls)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_what_connect_writes_works_in_claude_code_with_the_key_it_refers_to(
    gateway: Gateway, tmp_path: Path, era: str
) -> None:
    key_id = f"claude-{era}"
    made = gateway.http.post("/admin/api/keys", json={"key_id": key_id, "role": "agent"})
    key = {"TOOLGATE_KEY": made.raise_for_status().json()["secret"]}
    claude = ClaudeCode(era, tmp_path)

    wrote = gateway.cli("connect", "claude-code", "--write", "--servers", "git", HOME=str(tmp_path), **key)
    listed = claude.run("mcp", "list", **key)
    plan = {claude_name("toolgate", "git.git_branch"): GIT_BRANCH}
    seen = claude.request("Which branch is it?", plan, **key)

    assert wrote.code == 0, wrote.err
    assert "✔ Connected" in listed.out
    assert (len(seen.tools_of("toolgate")), seen.responses) == (12, ["* main"])
    eventually_equal(lambda: calls_in(gateway.audit)[-1]["principal"], f"key:{key_id}")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_claude_code_offers_prompts_as_commands_and_lets_its_model_read_resources(
    gateway: Gateway, tmp_path: Path, era: str
) -> None:
    claude, url = ClaudeCode(era, tmp_path), f"{gateway.url}/api/mcp?servers=everything,git"
    listing = {"ListMcpResourcesTool": {"server": "gw"}}
    reading = {"ReadMcpResourceTool": {"server": "gw", "uri": DOCUMENT}}

    seen = claude.ask_with(url, "/mcp__gw__everything.args-prompt Paris", listing | reading)

    assert "What's weather in Paris?" in seen.opening
    assert DOCUMENT in seen.responses[0]
    assert "# Everything Server" in seen.responses[1]


@pytest.mark.parametrize(("era", "transport"), [("legacy", "http"), ("modern", "http"), ("legacy", "sse")])
def test_the_inspector_lists_and_gets_prompts_and_resources(
    gateway: Gateway, era: str, transport: str
) -> None:
    inspector = Inspector(era, transport)
    url = f"{gateway.url}/api/mcp?servers=everything,git"

    prompts = inspector.request(url, "prompts/list")["prompts"]
    prompt = inspector.request(url, "prompts/get", *ARGS_PROMPT)
    resources = inspector.request(url, "resources/list")["resources"]
    contents = inspector.request(url, "resources/read", "--uri", DOCUMENT)["contents"]
    templates = inspector.request(url, "resources/templates/list")["resourceTemplates"]

    assert "everything.args-prompt" in [one["name"] for one in prompts]
    assert prompt["messages"][0]["content"] == {"type": "text", "text": "What's weather in Paris?"}
    assert DOCUMENT in [one["uri"] for one in resources]
    assert contents[0]["text"].startswith("# Everything Server")
    assert "demo://resource/dynamic/text/{resourceId}" in [one["uriTemplate"] for one in templates]


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
def test_a_tool_outside_the_url_is_unknown_to_the_sdk_client_of_every_era(
    gateway: Gateway, mode: str
) -> None:
    async def call_hidden() -> str:
        async with Client(gateway.url + "/api/mcp?tools=old.add", mode=mode) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("everything.echo", {"message": "5"})
        return str(caught.value)

    assert asyncio.run(call_hidden()) == "Unknown tool: everything.echo"
