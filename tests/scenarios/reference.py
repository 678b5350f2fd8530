"""The official reference servers as records: those of npm have sessions, those of PyPI are stateless."""

import subprocess
import sys
from pathlib import Path

from tests.forked_programs import forked
from tests.node import node, node_file
from tests.scenarios.gateway import Json, Site

BIN = Path(sys.executable).parent
"""Where the programs of this environment are."""


def everything(site: Site, server_id: str = "everything") -> Json:
    """Of all that MCP has, one of each."""
    allowed = ["*", "prompt:*", "resource:*"]
    return site.server(server_id, allowed_tools=allowed, stdio=on_node("server-everything", "stdio"))


def filesystem(site: Site) -> Json:
    """Over a directory with one file, in which it is."""
    directory = site.root / "files"
    directory.mkdir()
    (directory / "read.me").write_text("Welcome.\n", "utf-8")
    launch = on_node("server-filesystem", str(directory))
    return site.server("filesystem", stdio={**launch, "cwd": str(directory)})


def memory(site: Site) -> Json:
    """That knows someone."""
    file = site.root / "memory.jsonl"
    file.write_text(
        '{"type": "entity", "name": "Ada", "entityType": "person", "observations": ["writes"]}\n', "utf-8"
    )
    launch = on_node("server-memory")
    return site.server("memory", stdio={**launch, "env": {"MEMORY_FILE_PATH": str(file)}})


def git(site: Site) -> Json:
    """Over a repository of one commit, in which it is."""
    repository = site.root / "repository"
    repository.mkdir()
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q", "-b", "main"], [*author, "commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    command, *args = forked("mcp-server-git", "--repository", str(repository))
    return site.server("git", stdio={"command": command, "args": args, "cwd": str(repository)})


def on_node(package: str, *words: str) -> Json:
    script = node_file(f"@modelcontextprotocol/{package}/dist/index.js")
    return {"command": node(), "args": [script, *words]}
