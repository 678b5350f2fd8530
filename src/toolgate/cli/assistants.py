"""The programs that connect to a gateway: where each keeps its servers, and the shape of an entry.

Pure: paths and entries are computed here, `config_merge` alone touches files. A key is never written
into an entry; where one is needed the entry names the variable that holds it.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from toolgate.cli.defaults import KEY_VARIABLE
from toolgate.cli.escape import encode_json
from toolgate.model.names import parse_task_id
from toolgate.surfaces.rest.links import mcp_url

Assistant = Literal["claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "generic"]
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One URL of the gateway as a client is to know it."""

    name: str
    url: str
    needs_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """How one program is told about a server."""

    title: str
    section: str
    """The key of its file under which servers stand."""
    entry: Callable[[Door], Entry]
    user_file: Mapping[str, str]
    """Platform (`linux`, `darwin`) → file of this user, below the home directory."""
    project_file: str | None = None
    command: Callable[[Door], str] | None = None
    """A command line that does the same, where the program has one."""
    after: str = ""
    """What to do once the entry is there."""

    def file(self, *, home: Path, platform: str, project: Path | None = None) -> Path | None:
        """The file to write, or None when the program has none of that kind."""
        if project is not None:
            return project / self.project_file if self.project_file else None
        below_home = self.user_file.get(platform, self.user_file.get("linux"))
        return home / below_home if below_home else None

    def document(self, door: Door) -> Entry:
        """The smallest file that holds `door`: what to paste."""
        return {self.section: {door.name: self.entry(door)}}


def door_url(base_url: str, query: Mapping[str, str]) -> str:
    """The MCP door of the gateway at `base_url`, narrowed by `query`. A task is part of the path."""
    selection = dict(query)
    task = selection.pop("task", None)
    return mcp_url(base_url.rstrip("/"), task and parse_task_id(task), selection)


def _authorization(door: Door, reference: str) -> Entry:
    return {"headers": {"Authorization": f"Bearer {reference}"}} if door.needs_key else {}


def _claude_code(door: Door) -> Entry:
    return {"type": "http", "url": door.url, **_authorization(door, f"${{{KEY_VARIABLE}}}")}


def _claude_code_command(door: Door) -> str:
    words = ["claude", "mcp", "add", "--transport", "http", door.name, door.url]
    line = shlex.join(words)
    # The shell fills the variable in, so the key stands in no history.
    return f'{line} --header "Authorization: Bearer ${KEY_VARIABLE}"' if door.needs_key else line


def _claude_desktop(door: Door) -> Entry:
    """It starts programs only, so a bridge stands between. It takes plain HTTP from this machine alone."""
    parts = urlsplit(door.url)
    args = ["-y", "mcp-remote", door.url]
    if parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1"}:
        args.append("--allow-http")
    if not door.needs_key:
        return {"command": "npx", "args": args}
    # No blank after the colon: the bridge's argument must not hold one on every platform.
    args += ["--header", "Authorization:${TOOLGATE_AUTHORIZATION}"]
    return {"command": "npx", "args": args, "env": {"TOOLGATE_AUTHORIZATION": "Bearer <your key>"}}


def _cursor(door: Door) -> Entry:
    return {"url": door.url, **_authorization(door, f"${{env:{KEY_VARIABLE}}}")}


def _vscode(door: Door) -> Entry:
    return {"type": "http", "url": door.url, **_authorization(door, f"${{env:{KEY_VARIABLE}}}")}


def _vscode_command(door: Door) -> str:
    return shlex.join(["code", "--add-mcp", encode_json({"name": door.name, **_vscode(door)})])


def _windsurf(door: Door) -> Entry:
    return {"serverUrl": door.url, **_authorization(door, f"${{env:{KEY_VARIABLE}}}")}


PROGRAMS: Final[Mapping[Assistant, Program]] = {
    "claude-code": Program(
        title="Claude Code",
        section="mcpServers",
        entry=_claude_code,
        user_file={"linux": ".claude.json"},
        project_file=".mcp.json",
        command=_claude_code_command,
        after="start `claude` again and look with `/mcp`",
    ),
    "claude-desktop": Program(
        title="Claude Desktop",
        section="mcpServers",
        entry=_claude_desktop,
        user_file={
            "linux": ".config/Claude/claude_desktop_config.json",
            "darwin": "Library/Application Support/Claude/claude_desktop_config.json",
        },
        after="quit Claude Desktop and start it again; it needs Node.js for `npx`",
    ),
    "cursor": Program(
        title="Cursor",
        section="mcpServers",
        entry=_cursor,
        user_file={"linux": ".cursor/mcp.json"},
        project_file=".cursor/mcp.json",
        after="switch the server on under Settings, MCP",
    ),
    "vscode": Program(
        title="VS Code",
        section="servers",
        entry=_vscode,
        user_file={
            "linux": ".config/Code/User/mcp.json",
            "darwin": "Library/Application Support/Code/User/mcp.json",
        },
        project_file=".vscode/mcp.json",
        command=_vscode_command,
        after="run `MCP: List Servers` in the command palette and start it",
    ),
    "windsurf": Program(
        title="Windsurf",
        section="mcpServers",
        entry=_windsurf,
        user_file={"linux": ".codeium/windsurf/mcp_config.json"},
        after="press Refresh in the MCP panel of Cascade",
    ),
    "generic": Program(
        title="any other client",
        section="mcpServers",
        entry=_claude_code,
        user_file={},
        after="any client that speaks MCP over streamable HTTP takes the URL as it is",
    ),
}
