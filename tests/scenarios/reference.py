"""The official reference servers as records: those of npm have sessions, those of PyPI are stateless."""

import subprocess
import sys
from pathlib import Path

from tests.node import node, node_file
from tests.scenarios.gateway import Json, Site

BIN = Path(sys.executable).parent


def everything(site: Site, server_id: str = "everything") -> Json:
    """Of all that MCP has, one of each."""
    script = node_file("@modelcontextprotocol/server-everything/dist/index.js")
    allowed = ["*", "prompt:*", "resource:*"]
    return site.server(server_id, allowed_tools=allowed, stdio={"command": node(), "args": [script, "stdio"]})


def git(site: Site) -> Json:
    """Over a repository of one commit, in which it stands."""
    repository = site.root / "repository"
    repository.mkdir()
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q", "-b", "main"], [*author, "commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    command = {"command": str(BIN / "mcp-server-git"), "args": ["--repository", str(repository)]}
    return site.server("git", stdio={**command, "cwd": str(repository)})
