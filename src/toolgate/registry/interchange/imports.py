"""Imports server definitions of other programs as server bodies.

It finds out which program's file it has, and hands the parsed document to the reader of that format. The
formats are a table: one function recognizes a document, one reads it. `parse_server` checks the bodies later.
A server allows no tool, unless its file lists some.
"""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolgate.errors import InvalidRecord
from toolgate.lazy_modules import load_lazily
from toolgate.registry.files.documents import parse_toml
from toolgate.registry.interchange import other_gateways, server_json
from toolgate.registry.interchange.definitions import MAX_LABEL, ImportResult
from toolgate.registry.interchange.docker_catalog import is_docker_catalog, parse_docker_catalog
from toolgate.registry.interchange.mcp_servers import parse_mcp_servers
from toolgate.registry.interchange.server_json import Json

ImportFormat = Literal[
    "auto", "registry", "mcpServers", "server.json", "docker", "contextforge", "litellm", "agentgateway"
]

# VS Code and Cursor allow comments and trailing commas. The pattern matches a string first, to keep it. An
# unclosed one reaches to the end, so that the search does not restart at each following character.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*+(?:"|\\?\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*+(?:"|\\?\Z))|,(?=\s*[}\]])', re.DOTALL)
_JSON = re.compile(r"\s*(?:\{|\[(?!\[?[A-Za-z_]))")  # a list of JSON, but not the name of a table in TOML
# The members by which formats in YAML are recognized. No line of TOML begins like this.
_YAML = re.compile(r"^(?:registry|mcp_servers|catalog_servers|entities|binds|mcp)[ \t]*:", re.MULTILINE)
_IN_YAML: Final = frozenset({"auto", "docker", "contextforge", "litellm", "agentgateway"})


def parse_imports(content: object, form: ImportFormat = "auto") -> ImportResult:
    """Import the servers in `content`: parsed JSON, or JSON, TOML or YAML as text. Raises InvalidRecord if it
    contains no servers."""
    try:
        document = _parse_text(content, form) if isinstance(content, str) else content
        imports = _choose_format(document, form).parse(document)
    except RecursionError as exc:
        raise InvalidRecord("the document is nested too deeply") from exc
    imports.report_unread()
    return imports


def _parse_text(text: str, form: ImportFormat) -> object:
    """Parse JSON with comments if it begins like JSON, YAML if a line is that of such a format, else TOML."""
    if _JSON.match(_keep_strings(_COMMENT, text[:4096])):
        try:
            return json.loads(_keep_strings(_TRAILING_COMMA, _keep_strings(_COMMENT, text)))
        except (ValueError, RecursionError) as exc:
            raise InvalidRecord(f"the document is not JSON: {exc}") from exc
    if form == "docker" or (form in _IN_YAML and _YAML.search(text)):
        # Not imported at the top: the library would delay every start.
        parse_yaml: Callable[[str], object] = load_lazily("toolgate.registry.interchange.yaml").parse_yaml
        return parse_yaml(text)
    try:
        return parse_toml(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise InvalidRecord(f"the document is neither JSON nor TOML: {exc}", hint=_HINT) from exc


def _keep_strings(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: match[1] or "", text)


def _choose_format(document: object, form: ImportFormat) -> "_Format":
    if form != "auto":
        return next(one for one in _FORMATS if one.name == form)
    first = document[0] if isinstance(document, list) and document else document
    if isinstance(first, dict) and (known := next((one for one in _FORMATS if one.recognizes(first)), None)):
        return known
    raise InvalidRecord("the document has no servers in a known format", hint=_HINT)


def _parse_records(document: object) -> ImportResult:
    """Take over server files of Toolgate, one or a list of them."""
    bodies: list[Any] = document if isinstance(document, list) else [document]
    if not bodies or not all(
        isinstance(one, dict) and isinstance(one.get("server_id"), str) for one in bodies
    ):
        raise InvalidRecord("not a server file of Toolgate: `server_id` is missing")
    return ImportResult(bodies)


def _is_server_json(first: Json) -> bool:
    inner = first.get("server")
    is_one = server_json.is_server_json(inner if isinstance(inner, dict) else first)
    return is_one or isinstance(first.get("servers"), list)


def _parse_server_json(document: object) -> ImportResult:
    """Parse one `server.json`, the registry's response with one, or a list of either."""
    imports = ImportResult()
    if isinstance(document, dict) and isinstance(document.get("servers"), list):
        document = document["servers"]
    for one in document if isinstance(document, list) else [document]:
        inner = one.get("server", one) if isinstance(one, dict) else None
        if not isinstance(inner, dict) or not server_json.is_server_json(inner):
            raise InvalidRecord("not a `server.json`: it needs `name`, and `packages` or `remotes`")
        name = inner["name"]
        shown = str(inner.get("title") or name)
        try:
            body = server_json.parse_server_json(inner)
        except InvalidRecord as exc:
            imports.skipped[shown] = str(exc)
        else:
            server_id = imports.make_id(name.rpartition("/")[2] or name)
            labels = {"server_id": server_id, "display_name": shown[:MAX_LABEL]}
            imports.bodies.append({**labels, **body})
    return imports


@dataclass(frozen=True, slots=True)
class _Format:
    """A form of file: its name, how a document or the first of a list is recognized, and who reads it."""

    name: ImportFormat
    recognizes: Callable[[Json], bool]
    parse: Callable[[object], ImportResult]


_FORMATS: Final = (
    _Format("registry", lambda first: "server_id" in first, _parse_records),
    _Format("docker", is_docker_catalog, parse_docker_catalog),
    _Format("contextforge", other_gateways.is_contextforge, other_gateways.parse_contextforge),
    _Format("litellm", other_gateways.is_litellm, other_gateways.parse_litellm),
    _Format("agentgateway", other_gateways.is_agentgateway, other_gateways.parse_agentgateway),
    _Format("server.json", _is_server_json, _parse_server_json),
    _Format(
        "mcpServers", lambda first: not {"mcpServers", "servers", "mcp"}.isdisjoint(first), parse_mcp_servers
    ),
)
"""In the order in which they are tried: the first that recognizes a document reads it."""
_HINT: Final = (
    "known formats: `mcpServers` or `servers` (editors, mcp-hub, MCPHub, FastMCP), `mcp_servers` (LiteLLM, "
    "Codex), exports of ContextForge, agentgateway, Docker catalogs, `server.json`, records of Toolgate"
)
