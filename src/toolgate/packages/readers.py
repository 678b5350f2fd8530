"""Reads manifests from before version 2, so that packages published with them keep working.

What is understood: `id` (or a `name` that is one), the texts of version 2, `tools` as full definitions, and
`tools` or `toolsSummary` as a list of names or of objects with `name` and `description`, as an object of
names to descriptions, or as one text with commas; and a `command` with its `args` and `env`, or a `url`, at
the top or under one of `run`, `server`, `mcp`, `mcp_config` and `runtime`. Everything else is passed over.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from toolgate.catalog.definitions import check_definition
from toolgate.model.names import is_tool_name
from toolgate.model.tools import ToolDefinition
from toolgate.registry.interchange.imports import parse_imports

_SAME: Final = ("id", "name", "version", "description", "category", "tags", "homepage", "license")
_PLACES: Final = ("run", "server", "mcp", "mcp_config", "runtime")
_LISTS: Final = ("tools", "toolsSummary", "tools_summary")
_SEPARATOR: Final = re.compile(r"[,;\n\uff0c\u3001\uff1b]")  # and their Chinese kin

Json = dict[str, Any]


def modernise(document: Mapping[str, Any]) -> Json:
    """The members of version 2 that say what an old manifest says. They still have to be checked."""
    members: Json = {name: document[name] for name in _SAME if document.get(name) is not None}
    members["manifestSchemaVersion"] = "v2"
    if "id" not in members and "name" in members:
        members["id"] = members["name"]
    tools = next((found for name in _LISTS if (found := _tools(document.get(name)))), [])
    if tools and all(_is_complete(tool) for tool in tools):
        members["tools"] = tools
    elif tools:
        members["toolsSummary"] = [_summary(tool) for tool in tools]
    run = _run(document)
    return members if run is None else {**members, "run": run}


def _tools(value: object) -> list[Json]:
    """The tools in any of the shapes they had, each once. What cannot be the name of a tool is none."""
    found: dict[str, Json] = {}
    for tool in _each(value):
        name = tool.get("name")
        if isinstance(name, str) and is_tool_name(name):
            found.setdefault(name.casefold(), tool)
    return list(found.values())


def _each(value: object) -> Iterator[Json]:
    match value:
        case str():
            yield from ({"name": name.strip()} for name in _SEPARATOR.split(value))
        case list():
            yield from (one if isinstance(one, dict) else {"name": one} for one in value)
        case dict():
            for name, one in value.items():
                yield {"name": name, **(one if isinstance(one, dict) else {"description": one})}


def _is_complete(tool: Json) -> bool:
    is_schema = isinstance(tool.get("inputSchema"), dict)
    return is_schema and isinstance(check_definition("", msgspec.json.encode(tool)), ToolDefinition)


def _summary(tool: Json) -> Json:
    description = tool.get("description")
    return {"name": tool["name"], **({"description": description} if isinstance(description, str) else {})}


def _run(document: Mapping[str, Any]) -> Json | None:
    """How it is run, flat as version 2 has it; with the variables of other programs as references of ours."""
    for place in (document, *(document.get(name) for name in _PLACES)):
        if isinstance(place, dict) and (place.get("command") or place.get("url")):
            (body,) = parse_imports({"mcpServers": {"server": _split(place)}}, "mcpServers").bodies
            return {"transport": body["transport"], **body.get("stdio", {}), **body.get("http", {})}
    return None


def _split(place: Json) -> Json:
    """A command that has its arguments in it, as a list or as one text, with both apart."""
    command, args = place.get("command"), place.get("args") or []
    if isinstance(command, str) and not args and " " in command:
        command = _words(command)
    if command and isinstance(command, list) and isinstance(args, list):
        return {**place, "command": command[0], "args": [*command[1:], *args]}
    return place


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]
