"""A scope over the tool limit, as real clients meet it: connected, with tools to use, or refused in words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import COMPILED_ONCE, node, node_file
from tests.scenarios.claude_code import ClaudeCode, claude_name
from tests.scenarios.gateway import Gateway, Site, run, running
from tests.scenarios.inspector import Inspector

pytestmark = pytest.mark.xdist_group("scenario-too-many-tools")

FIND_TOOLS = ["call_tool", "describe_tool", "search_tools"]
TOO_MANY = "the scope has 2 tools, 1 more than `max_tools` 1"
CONFIG = {"mcp.enabled": "true", "mcp.default_server_ids": '["one"]'}


@pytest.fixture(scope="module", params=["find", "refuse"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """With two tools and room for one. `find` is the default."""
    site = Site(tmp_path_factory.mktemp("too-many"))
    site.place(site.stage("one", "tools=echo,pid"))
    mode = {} if request.param == "find" else {"TOOLGATE_ON_TOO_MANY": request.param}
    with running(site, environ={"TOOLGATE_MAX_TOOLS": "1", **mode}) as gateway:
        yield gateway


def status_in(era: str, home: Path, url: str) -> str:
    """What Claude Code says of a server."""
    claude = ClaudeCode(era, home)
    claude.run("mcp", "add", "--transport", "http", "gw", url)
    return claude.run("mcp", "get", "gw").out


@pytest.mark.parametrize("gateway", ["find"], indirect=True)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_try_12_claude_code_connects_and_calls_a_tool_of_a_scope_over_the_limit(
    gateway: Gateway, tmp_path: Path, era: str
) -> None:
    url = f"{gateway.url}/api/mcp"
    plan = {claude_name("gw", "call_tool"): {"name": "one.echo", "arguments": {"text": "Grüße"}}}

    status = status_in(era, tmp_path, url)
    seen = ClaudeCode(era, tmp_path).ask_with(url, "Say it.", plan)

    assert "✔ Connected" in status
    assert seen.tools_of("gw") == {claude_name("gw", name) for name in FIND_TOOLS}
    assert seen.responses == ["Grüße"]


@pytest.mark.parametrize("gateway", ["find"], indirect=True)
def test_try_12_the_inspector_lists_and_calls_in_a_scope_over_the_limit(gateway: Gateway) -> None:
    inspector, url = Inspector("legacy"), f"{gateway.url}/api/mcp"

    listed = inspector.request(url, "tools/list")["tools"]
    called = inspector.call(url, "call_tool", {"name": "one.echo", "arguments": {"text": "5"}})

    assert [tool["name"] for tool in listed] == FIND_TOOLS
    assert called["content"] == [{"type": "text", "text": "5"}]


@pytest.mark.parametrize("gateway", ["find"], indirect=True)
def test_log_doctor_explain_and_overview_say_that_a_scope_is_over_the_limit(gateway: Gateway) -> None:
    gateway.put("/admin/api/tasks/ops", {"task_id": "ops", "config": CONFIG})
    gateway.legacy("/api/mcp/t/ops")

    explained = gateway.cli("explain", "--task", "ops")
    lines = gateway.cli("doctor", "--json").out.splitlines()
    findings = {one["where"]: one for one in map(json.loads, lines)}
    [task] = gateway.get("/admin/api/mcp/tasks-overview")["tasks"]

    assert TOO_MANY in " ".join(explained.out.split())
    assert (findings["task ops"]["level"], TOO_MANY in findings["task ops"]["message"]) == ("warning", True)
    assert TOO_MANY in findings["scope without a task"]["message"]
    assert TOO_MANY in task["warnings"][0]
    assert TOO_MANY in gateway.log


@pytest.mark.parametrize("gateway", ["refuse"], indirect=True)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_try_12_claude_code_shows_why_a_scope_over_the_limit_is_refused(
    gateway: Gateway, tmp_path: Path, era: str
) -> None:
    status = status_in(era, tmp_path, f"{gateway.url}/api/mcp")

    assert "authentication" not in status
    assert f"{TOO_MANY}: narrow the scope with" in status


@pytest.mark.parametrize("gateway", ["refuse"], indirect=True)
def test_try_12_the_inspector_shows_why_a_scope_over_the_limit_is_refused(
    gateway: Gateway, tmp_path: Path
) -> None:
    launcher = node_file("@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    words = ["--cli", f"{gateway.url}/api/mcp", "--transport", "http", "--protocol-era", "modern"]

    ran = run([node(), launcher, *words, "--method", "tools/list"], {"HOME": str(tmp_path), **COMPILED_ONCE})

    assert ran.code == 1
    assert f"{TOO_MANY}: narrow the scope with" in ran.err
