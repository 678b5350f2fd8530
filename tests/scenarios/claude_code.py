"""Claude Code as a client, without its user and without its model: one prompt, and a mock that answers it."""

import json
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.node import node_file
from tests.scenarios.gateway import Ran
from tests.scenarios.mock_model import open_mock_model

Json = dict[str, Any]

WITHIN_S: Final = 60
NOWHERE: Final = "http://127.0.0.1:9"
OFFLINE: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1",
}
"""Whatever it would like to reach that is not on loopback is nowhere."""


@dataclass(frozen=True)
class Conversation:
    """What Claude Code and its model said to each other."""

    opening: str
    """What the model was told first, as JSON. What it is told later repeats what it has said itself."""
    responses: list[str]
    """Of the tools that it called."""

    def tools_of(self, server: str) -> set[str]:
        """Those of a server that the model was told of, be it to call them or to search for them."""
        return set(re.findall(rf"mcp__{server}__[\w-]+", self.opening))


@dataclass(frozen=True)
class ClaudeCode:
    """One installation: of the release of an era, with a home of its own and nothing in its environment."""

    era: str
    home: Path

    def run(self, *words: str, **environ: str) -> Ran:
        """What comes of a command."""
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            pytest.skip("Claude Code is locked for linux-x64 only")
        ended = subprocess.run(
            [node_file(f"claude-code-{self.era}/claude"), *words],
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.home), **OFFLINE, **environ},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    def request(self, prompt: str, plan: Mapping[str, Json], *words: str, **environ: str) -> Conversation:
        """What comes of a prompt if its model has made this plan."""
        words = ("-p", prompt, "--output-format", "json", "--allowedTools", ",".join(plan), *words)
        with open_mock_model(plan) as model:
            access = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-mock"}
            ran = self.run(*words, **access, **environ)
        return Conversation(json.dumps(model.asked[0]), json.loads(ran.json["result"]))

    def ask_with(self, url: str, prompt: str, plan: Mapping[str, Json]) -> Conversation:
        """The same where it has one server, which is at `url` and called `gw`."""
        config = self.home / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"gw": {"type": "http", "url": url}}}), "utf-8")
        return self.request(prompt, plan, "--mcp-config", str(config), "--strict-mcp-config")


def claude_name(server: str, tool: str) -> str:
    """What Claude Code calls a tool."""
    return f"mcp__{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
