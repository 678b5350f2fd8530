"""Client programs that connect to a gateway: the configuration file of each, and the form of an entry.

A key is never written into an entry: the entry names the variable that contains it.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolgate.model.json_text import encode_json

KEY_VARIABLE: Final = "TOOLGATE_KEY"
"""The environment variable that contains the key."""
LONG_URL_CHARS: Final = 4_000
"""Some proxies reject longer URLs: by default IIS accepts 4,096 bytes, nginx a request line of 8 KiB. The
console warns at the same length."""
_ENV: Final = f"${{env:{KEY_VARIABLE}}}"
_ON_THIS_MACHINE: Final = re.compile(r"http://(localhost|127\.0\.0\.1)(:[0-9]+)?/")

ClientKind = Literal["claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "generic"]
ClientEntry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayEndpoint:
    """One URL of the gateway, as an entry of a client."""

    name: str
    url: str
    needs_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProgram:
    """How one client program stores a server."""

    title: str
    section: str
    """The key of the servers in its file."""
    entry: Callable[[GatewayEndpoint], ClientEntry]
    user_file: Mapping[str, str]
    """Platform (`linux`, `darwin`) → the user's file, below the home directory."""
    project_file: str | None = None
    command: Callable[[GatewayEndpoint], str] | None = None
    """A command line with the same effect, if the program has one."""
    after: str = ""
    """What to do after the entry is added."""

    def file_below_home(self, platform: str) -> str | None:
        """The user's file; None if the program has none."""
        return self.user_file.get(platform, self.user_file.get("linux"))

    def document(self, endpoint: GatewayEndpoint) -> ClientEntry:
        """The smallest file with this endpoint, to paste."""
        return {self.section: {endpoint.name: self.entry(endpoint)}}


def describe_selection(query: Mapping[str, str]) -> str:
    """How the selection in a URL follows packages that get new tools. Empty: the URL selects nothing."""
    if "tools" not in query:
        servers = [one for one in query.get("servers", "").split(",") if one]
        if not servers:
            return ""
        return f"Follows its packages: new tools of {_join_names(servers)} appear automatically."
    named = [one for one in query["tools"].split(",") if one]
    followed = sorted({one.partition(".")[0] for one in named if _is_pattern(one)})
    fixed = sum(not _is_pattern(one) for one in named)
    frozen = f"{fixed:,} named {'tool' if fixed == 1 else 'tools'}; new tools do not appear."
    if not followed:
        return f"Frozen list: {frozen}"
    follows = f"Follows its packages: new tools of {_join_names(followed)} that match appear automatically."
    return f"{follows} Frozen list for the rest: {frozen}" if fixed else follows


def warn_about_length(url: str) -> str | None:
    if len(url) <= LONG_URL_CHARS:
        return None
    return (
        f"the URL has {len(url):,} characters, and some clients accept at most {LONG_URL_CHARS:,}: "
        "select whole packages with `?servers=`, or create a task for the tools with `toolgate skills apply`"
    )


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _join_names(names: Sequence[str]) -> str:
    quoted = [f"`{one}`" for one in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def _authorization(endpoint: GatewayEndpoint, reference: str) -> ClientEntry:
    return {"headers": {"Authorization": f"Bearer {reference}"}} if endpoint.needs_key else {}


def _claude_code(endpoint: GatewayEndpoint) -> ClientEntry:
    return {"type": "http", "url": endpoint.url, **_authorization(endpoint, f"${{{KEY_VARIABLE}}}")}


def _claude_code_command(endpoint: GatewayEndpoint) -> str:
    line = shlex.join(["claude", "mcp", "add", "--transport", "http", endpoint.name, endpoint.url])
    # The shell expands the variable, so the key is in no history.
    return f'{line} --header "Authorization: Bearer ${KEY_VARIABLE}"' if endpoint.needs_key else line


def _claude_desktop(endpoint: GatewayEndpoint) -> ClientEntry:
    """It only starts programs, so it needs a bridge, which accepts plain HTTP only from this machine."""
    args = ["-y", "mcp-remote", endpoint.url]
    if endpoint.url.startswith("http:") and not _ON_THIS_MACHINE.match(endpoint.url):
        args.append("--allow-http")
    if not endpoint.needs_key:
        return {"command": "npx", "args": args}
    # No blank after the colon: the bridge's argument must not hold one on every platform.
    args += ["--header", "Authorization:${TOOLGATE_AUTHORIZATION}"]
    return {"command": "npx", "args": args, "env": {"TOOLGATE_AUTHORIZATION": "Bearer <your key>"}}


def _cursor(endpoint: GatewayEndpoint) -> ClientEntry:
    return {"url": endpoint.url, **_authorization(endpoint, _ENV)}


def _vscode(endpoint: GatewayEndpoint) -> ClientEntry:
    return {"type": "http", **_cursor(endpoint)}


CLIENT_PROGRAMS: Final[Mapping[ClientKind, ClientProgram]] = {
    "claude-code": ClientProgram(
        title="Claude Code",
        section="mcpServers",
        entry=_claude_code,
        user_file={"linux": ".claude.json"},
        project_file=".mcp.json",
        command=_claude_code_command,
        after="start `claude` again and look with `/mcp`",
    ),
    "claude-desktop": ClientProgram(
        title="Claude Desktop",
        section="mcpServers",
        entry=_claude_desktop,
        user_file={
            "linux": ".config/Claude/claude_desktop_config.json",
            "darwin": "Library/Application Support/Claude/claude_desktop_config.json",
        },
        after="quit Claude Desktop and start it again; it needs Node.js for `npx`",
    ),
    "cursor": ClientProgram(
        title="Cursor",
        section="mcpServers",
        entry=_cursor,
        user_file={"linux": ".cursor/mcp.json"},
        project_file=".cursor/mcp.json",
        after="switch the server on under Settings, MCP",
    ),
    "vscode": ClientProgram(
        title="VS Code",
        section="servers",
        entry=_vscode,
        user_file={
            "linux": ".config/Code/User/mcp.json",
            "darwin": "Library/Application Support/Code/User/mcp.json",
        },
        project_file=".vscode/mcp.json",
        command=lambda endpoint: shlex.join(
            ["code", "--add-mcp", encode_json({"name": endpoint.name, **_vscode(endpoint)})]
        ),
        after="run `MCP: List Servers` in the command palette and start it",
    ),
    "windsurf": ClientProgram(
        title="Windsurf",
        section="mcpServers",
        entry=lambda endpoint: {"serverUrl": endpoint.url, **_authorization(endpoint, _ENV)},
        user_file={"linux": ".codeium/windsurf/mcp_config.json"},
        after="press Refresh in the MCP panel of Cascade",
    ),
    "generic": ClientProgram(
        title="any other client",
        section="mcpServers",
        entry=_claude_code,
        user_file={},
        after="any client that supports MCP over streamable HTTP accepts the URL unchanged",
    ),
}
