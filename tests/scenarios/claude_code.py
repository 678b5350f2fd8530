"""Claude Code as a client, without its user and without its model: one prompt, and a mock that answers it."""

import json
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node import node_file
from tests.scenarios.mock_model import open_mock_model

Json = dict[str, Any]

WITHIN_S: Final = 60
NOWHERE: Final = "http://127.0.0.1:9"


def claude_name(tool: str) -> str:
    """What Claude Code calls a tool of the server that it knows as `gw`."""
    return f"mcp__gw__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"


def run_claude_code(
    version: str, home: Path, url: str, calls: Mapping[str, Json]
) -> tuple[set[str], list[str]]:
    """The tools of `url` it told its model of, and what those said that the model called."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("Claude Code is locked for linux-x64 only")
    config = home / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"gw": {"type": "http", "url": url}}}), "utf-8")
    plan = {claude_name(tool): arguments for tool, arguments in calls.items()}
    words = ["-p", "Call the tools.", "--output-format", "json", "--allowedTools", ",".join(plan)]
    servers = ["--mcp-config", str(config), "--strict-mcp-config"]
    with open_mock_model(plan) as model:
        ended = subprocess.run(
            [node_file(f"claude-code-{version}/claude"), *words, *servers],
            env={"PATH": "/usr/bin:/bin", "HOME": str(home), **offline(model.url)},
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # As tools, or as the names of tools to search for; later requests repeat what the model itself has said.
    told = set(re.findall(r"mcp__gw__[\w-]+", json.dumps(model.asked[0])))
    return told, json.loads(json.loads(ended.stdout)["result"])


def offline(model_url: str) -> dict[str, str]:
    """Only the mock is asked; whatever else it would like to reach is nowhere."""
    return {
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "sk-ant-mock",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "HTTPS_PROXY": NOWHERE,
        "HTTP_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1",
    }
