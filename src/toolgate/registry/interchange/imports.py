"""Imports server definitions of other programs as bodies of servers.

It reads the `mcpServers` JSON of Claude, Cursor, Windsurf and others, the `servers` JSON of VS Code, the
`server.json` of the official registry and its lists, the catalogs of Docker's MCP gateway, and Toolgate's own
files. Bodies are not checked here: `parse_server` does that. An imported server has no allowed tools.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolgate.errors import InvalidRecord
from toolgate.lazy_modules import load_lazily
from toolgate.model.names import MAX_SERVER_ID, slugify_server_id
from toolgate.registry.files.documents import parse_toml
from toolgate.registry.interchange.docker_catalog import (
    find_docker_servers,
    is_docker_catalog,
    parse_docker_server,
)
from toolgate.registry.interchange.server_json import is_server_json, parse_server_json, server_json_name
from toolgate.registry.records.codec import parse_server

ImportFormat = Literal["auto", "registry", "mcpServers", "server.json", "docker"]

_PLACES: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
_URL_FIELDS: Final = ("url", "serverUrl", "httpUrl")

# VS Code and Cursor allow comments and trailing commas. A string is matched first, and kept. An unclosed one
# reaches to the end, so that the search does not begin again at each following character.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*+(?:"|\\?\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*+(?:"|\\?\Z))|,(?=\s*[}\]])', re.DOTALL)
# `${NAME}` and `${NAME:-default}` in Claude Code, `${env:NAME}` and `${input:name}` in VS Code and Cursor.
_VARIABLE = re.compile(r"\$\{(?:(env|input):)?([A-Za-z_][\w-]*)(:-(?:[^}$]|\$(?!\{))*+)?\}")
# The only YAML format. No line of TOML begins like this.
_DOCKER_CATALOG = re.compile(r"^registry[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Bodies with an id, the servers that were skipped with the reason, and warnings."""

    bodies: list[dict[str, Any]]
    skipped: dict[str, str]
    warnings: list[str] = field(default_factory=list)


def parse_imports(content: object, form: ImportFormat = "auto") -> ImportResult:
    """Import the servers in `content`: parsed JSON, or JSON, TOML or YAML as text.

    Raises InvalidRecord if it has no servers.
    """
    try:
        return _parse(content, form)
    except RecursionError as exc:
        raise InvalidRecord("this is nested too deeply") from exc


def _parse(content: object, form: ImportFormat) -> ImportResult:
    document = _parse_text(content, form) if isinstance(content, str) else content
    match _detect_format(document) if form == "auto" else form:
        case "registry":
            return ImportResult(_parse_own_records(document), {})
        case "server.json":
            return _parse_server_json_list(document)
        case "docker":
            return _parse_docker_catalog(document)
        case _:
            return ImportResult(_parse_mcp_servers(document), {})


def _parse_text(text: str, form: ImportFormat) -> object:
    """Parse JSON with comments if it begins like JSON, YAML if it is a Docker catalog, else TOML."""
    if _keep_strings(_COMMENT, text[:4096]).lstrip()[:1] in {"{", "["}:
        return _parse_json(text)
    if form == "docker" or (form == "auto" and _DOCKER_CATALOG.search(text)):
        # Not imported above: the library would delay every start.
        parse_yaml: Callable[[str], object] = load_lazily("toolgate.registry.interchange.yaml").parse_yaml
        return parse_yaml(text)
    try:
        return parse_toml(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise InvalidRecord(f"this is neither JSON nor TOML: {exc}") from exc


def _parse_json(text: str) -> object:
    try:
        return json.loads(_keep_strings(_TRAILING_COMMA, _keep_strings(_COMMENT, text)))
    except (ValueError, RecursionError) as exc:
        raise InvalidRecord(f"this is not JSON: {exc}") from exc


def _detect_format(document: object) -> ImportFormat:
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return "mcpServers"  # its error explains best what is missing
    if "server_id" in first:
        return "registry"
    if is_docker_catalog(first):
        return "docker"
    if isinstance(first.get("servers"), list):
        return "server.json"
    inner = first.get("server")
    return "server.json" if is_server_json(inner if isinstance(inner, dict) else first) else "mcpServers"


def _parse_own_records(document: object) -> list[dict[str, Any]]:
    found = document if isinstance(document, list) else [document]
    bodies = [one for one in found if isinstance(one, dict) and isinstance(one.get("server_id"), str)]
    if not bodies or len(bodies) < len(found):
        raise InvalidRecord("this is not a server file of this gateway: `server_id` is missing")
    return bodies


def _parse_server_json_list(document: object) -> ImportResult:
    """Parse one `server.json`, the registry's response with one, or a list of either."""
    imports, taken = ImportResult([], {}), set[str]()
    if isinstance(document, dict) and isinstance(document.get("servers"), list):
        document = document["servers"]
    for one in document if isinstance(document, list) else [document]:
        inner = one.get("server", one) if isinstance(one, dict) else None
        if not isinstance(inner, dict) or not is_server_json(inner):
            raise InvalidRecord("this is not a `server.json`: it needs a `name`, and `packages` or `remotes`")
        stem, shown = server_json_name(inner)
        try:
            body = parse_server_json(inner)
        except InvalidRecord as exc:
            imports.skipped[shown] = str(exc)
        else:
            imports.bodies.append({"server_id": _unique_id(stem, taken), "display_name": shown[:200], **body})
    return imports


def _parse_docker_catalog(document: object) -> ImportResult:
    """Parse a Docker catalog. A server that cannot be used is skipped: catalogs have hundreds."""
    imports, taken = ImportResult([], {}), set[str]()
    for name, server in find_docker_servers(document if isinstance(document, dict) else {}).items():
        try:
            found = parse_docker_server(name, server)
            parse_server({"server_id": "any", **found.body})
        except InvalidRecord as exc:
            imports.skipped[name] = str(exc)
        else:
            imports.bodies.append({"server_id": _unique_id(name, taken), **found.body})
            imports.warnings.extend(found.warnings)
    return imports


def _parse_mcp_servers(document: object) -> list[dict[str, Any]]:
    servers = _find_servers(document)
    taken: set[str] = set()
    return [_make_body(_unique_id(name, taken), name, server) for name, server in servers.items()]


def _keep_strings(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: match[1] or "", text)


def _find_servers(document: object) -> Mapping[str, Any]:
    for place in _PLACES:
        found = document
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict) and all(isinstance(server, dict) for server in found.values()):
            return found
    raise InvalidRecord("this file has neither an `mcpServers` nor a `servers` object")


def _unique_id(name: str, taken: set[str]) -> str:
    """Make a unique id: `GitHub (work)` becomes `github-work`, a second one `github-work-2`."""
    stem = slugify_server_id(name, max_chars=MAX_SERVER_ID - 3) or "server"
    server_id, number = stem, 1
    while server_id in taken:
        number += 1
        server_id = f"{stem}-{number}"
    taken.add(server_id)
    return server_id


def _make_body(server_id: str, name: str, server: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"server_id": server_id}
    url = next((server[field] for field in _URL_FIELDS if field in server), None)
    if url is None:
        launch = {field: server[field] for field in ("command", "args", "env", "cwd") if server.get(field)}
        body |= {"transport": "stdio", "stdio": _translate_variables(launch)}
    else:
        is_legacy = server.get("type", server.get("transport")) == "sse"
        endpoint = {"url": url} | ({"headers": server["headers"]} if server.get("headers") else {})
        body |= {
            "transport": "http_sse_legacy" if is_legacy else "streamable_http",
            "http": _translate_variables(endpoint),
        }
    if name != server_id:
        body["display_name"] = name
    if server.get("disabled") is True:
        body["enabled"] = False
    return body


def _translate_variables(value: Any) -> Any:
    """Replace variables of other programs by references, in every text of a definition."""
    if isinstance(value, str):
        return _VARIABLE.sub(_reference, value)
    if isinstance(value, list):
        return [_translate_variables(item) for item in value]
    if isinstance(value, dict):
        return {name: _translate_variables(item) for name, item in value.items()}
    return value


def _reference(match: re.Match[str]) -> str:
    kind, name, default = match.groups()
    # An editor prompts for an input. A node takes it from its environment.
    variable = name.replace("-", "_")
    return f"${{ENV:{variable.upper() if kind == 'input' else variable}{default or ''}}}"
