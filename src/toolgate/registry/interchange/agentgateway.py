"""The targets in a configuration of agentgateway: commands and URLs of MCP servers.

Routes, policies and listeners are not imported: tasks and keys decide who sees what.
"""

from collections.abc import Iterator
from typing import Any

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.definitions import ImportResult
from toolgate.registry.interchange.server_json import Json, json_object, json_objects


def is_agentgateway(document: Json) -> bool:
    return isinstance(json_object(document, "mcp").get("targets"), list) or isinstance(
        document.get("binds"), list
    )


def parse_agentgateway(document: object) -> ImportResult:
    """Import the targets of all routes. Raises InvalidRecord if it is no such configuration."""
    if not isinstance(document, dict) or not is_agentgateway(document):
        raise InvalidRecord("not a configuration of agentgateway: `mcp.targets` and `binds` are missing")
    imports = ImportResult()
    for target in _find_targets(document):
        name = str(target.get("name"))
        fields = {key: value for key, value in target.items() if key not in {"name", "stdio", "mcp", "sse"}}
        if stdio := json_object(target, "stdio"):
            fields |= {"command": stdio.get("cmd"), "args": stdio.get("args"), "env": stdio.get("env")}
        elif place := json_object(target, "mcp") or json_object(target, "sse"):
            fields |= {"url": _make_url(place), "type": "http" if target.get("mcp") else "sse"}
        else:
            imports.skipped[name] = "it has neither a command nor the URL of an MCP server"
            continue
        imports.add(imports.make_id(name), name, fields)
    imports.warnings.append("only targets are imported: tasks and keys take the place of routes and policies")
    return imports


def _find_targets(document: Json) -> Iterator[Json]:
    yield from json_objects(json_object(document, "mcp"), "targets")
    for bind in json_objects(document, "binds"):
        for listener in json_objects(bind, "listeners"):
            for route in json_objects(listener, "routes"):
                for backend in json_objects(route, "backends"):
                    yield from json_objects(json_object(backend, "mcp"), "targets")


def _make_url(place: Json) -> Any:
    """The URL of a target: as it is written, or of host, port and path."""
    host = place.get("host")
    if not isinstance(host, str) or "://" in host:
        return host
    port = f":{place['port']}" if place.get("port") else ""
    return f"http://{host}{port}{place.get('path') or '/mcp'}"
