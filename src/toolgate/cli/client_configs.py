"""Other programs' lists of MCP servers, turned into records: Claude, Cursor, Windsurf and VS Code.

A value that refers to a variable stays a reference (`${ENV:NAME}`); nothing is looked up here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolgate.cli.failure import CommandFailed, Exit
from toolgate.cli.record_files import Record

_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_INPUT: Final = re.compile(r"\$\{input:[^}]*\}")
_NOT_IN_IDS: Final = re.compile(r"[^a-z0-9]+")


def parse_client_config(config: Mapping[str, Any], allow: Sequence[str]) -> list[Record]:
    """The servers of a client's configuration, each with `allow` as its allowed tools."""
    records = [_record(name, entry, allow) for name, entry in _entries(config).items()]
    ids = [record.id for record in records]
    repeated = sorted({one for one in ids if ids.count(one) > 1})
    if repeated:
        raise CommandFailed(
            f"several servers would be called `{repeated[0]}`",
            hint="rename one of them",
            exit_code=Exit.USAGE,
        )
    return records


def _entries(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Under `mcpServers` with most, under `servers` with VS Code, under `mcp` in its older settings."""
    settings = config.get("mcp")
    for holder, key in ((config, "mcpServers"), (config, "servers"), (settings, "servers")):
        found = holder.get(key) if isinstance(holder, Mapping) else None
        if isinstance(found, Mapping) and found:
            return found
    raise CommandFailed(
        "the file lists no servers",
        hint="it should have an object `mcpServers`, or `servers` as in VS Code's `mcp.json`",
        exit_code=Exit.USAGE,
    )


def _record(name: str, entry: Any, allow: Sequence[str]) -> Record:
    if not isinstance(entry, Mapping):
        raise CommandFailed(f"the entry of `{name}` is not an object", exit_code=Exit.USAGE)
    server_id = _NOT_IN_IDS.sub("-", name.lower()).strip("-")[:40].rstrip("-")
    body: dict[str, Any] = {"server_id": server_id, **_launch(name, entry), "allowed_tools": list(allow)}
    if name != server_id:
        body["display_name"] = name
    if entry.get("disabled") is True or entry.get("enabled") is False:
        body["enabled"] = False
    return Record("server", server_id, body)


def _launch(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    if "command" in entry:
        stdio = {key: entry[key] for key in ("command", "args", "env", "cwd") if entry.get(key)}
        return {"transport": "stdio", "stdio": _referenced(name, stdio)}
    url = entry.get("url") or entry.get("serverUrl") or entry.get("httpUrl")
    if url is None:
        raise CommandFailed(
            f"`{name}` has neither a `command` nor a `url`", hint="remove the entry", exit_code=Exit.USAGE
        )
    http = {"url": url} | ({"headers": entry["headers"]} if entry.get("headers") else {})
    transport = "http_sse_legacy" if entry.get("type") == "sse" else "streamable_http"
    return {"transport": transport, "http": _referenced(name, http)}


def _referenced(name: str, value: Any) -> Any:
    """`value` with the references of other programs written our way, at any depth."""
    if isinstance(value, Mapping):
        return {key: _referenced(name, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_referenced(name, one) for one in value]
    if not isinstance(value, str):
        return value
    if _INPUT.search(value):
        raise CommandFailed(
            f"`{name}` asks its user for a value (`{_INPUT.findall(value)[0]}`)",
            hint="put `${env:NAME}` there, and set that variable where the gateway runs",
            exit_code=Exit.USAGE,
        )
    return _REFERENCE.sub(lambda match: f"${{ENV:{match[1]}{match[2] or ''}}}", value)
