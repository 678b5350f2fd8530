"""Imports server definitions of other programs as server bodies.

It reads the `mcpServers` JSON of Claude, Cursor, Windsurf and others, the `servers` JSON of VS Code, the
`server.json` of the official registry and its lists, the catalogs of Docker's MCP gateway, and Toolgate's own
files. `parse_server` checks the bodies later. An imported server has no allowed tools.

A Docker catalog decides what to run and which values to fill in, never how to run it. Members that would give
a container more than its image (volumes, a user, hosts, privileges) are dropped with a warning. An image,
name or value that programs could read differently is rejected. No value becomes a variable of the program
that starts the container. Nothing is pulled or started.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final, Literal

from toolgate.errors import InvalidRecord
from toolgate.lazy_modules import load_lazily
from toolgate.model.names import MAX_SERVER_ID, slugify_server_id
from toolgate.registry.files.documents import parse_toml
from toolgate.registry.interchange import server_json
from toolgate.registry.interchange.server_json import Json, json_object, json_objects
from toolgate.registry.records.codec import parse_server

ImportFormat = Literal["auto", "registry", "mcpServers", "server.json", "docker"]
_PLACES: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
_URL_FIELDS: Final = ("url", "serverUrl", "httpUrl")

# VS Code and Cursor allow comments and trailing commas. The pattern matches a string first, to keep it. An
# unclosed one reaches to the end, so that the search does not restart at each following character.
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*+(?:"|\\?\Z))|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:\\.|[^"\\])*+(?:"|\\?\Z))|,(?=\s*[}\]])', re.DOTALL)
# `${NAME}` and `${NAME:-default}` in Claude Code, `${env:NAME}` and `${input:name}` in VS Code and Cursor.
_VARIABLE = re.compile(r"\$\{(?:(env|input):)?([A-Za-z_][\w-]*)(:-(?:[^}$]|\$(?!\{))*+)?\}")
# The only YAML format. No line of TOML begins like this.
_DOCKER_CATALOG = re.compile(r"^registry[ \t]*:", re.MULTILINE)
_IMAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"
)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEMPLATE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*(\|[^{}]*)?\}\}")
_SHELL_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_LABEL = re.compile(r"[\w.+-][\w .+-]{0,62}[\w.+-]|[\w.+-]")
_LEFT_OUT: Final = (
    *("volumes", "user", "extraHosts", "allowHosts", "privileged", "capAdd", "devices", "network"),
    *("securityOpt", "entrypoint", "workdir", "ports", "pid", "ipc"),
)
"""Members that decide how a container runs. To use one, add it to the record."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Bodies with an id, skipped servers with the reason, and warnings."""

    bodies: list[dict[str, Any]]
    skipped: dict[str, str]
    warnings: list[str] = field(default_factory=list)


def parse_imports(content: object, form: ImportFormat = "auto") -> ImportResult:
    """Import the servers in `content`: parsed JSON, or JSON, TOML or YAML as text. Raises InvalidRecord if it
    contains no servers."""
    try:
        return _parse(content, form)
    except RecursionError as exc:
        raise InvalidRecord("the document is nested too deeply") from exc


def _parse(content: object, form: ImportFormat) -> ImportResult:
    document = _parse_text(content, form) if isinstance(content, str) else content
    match _detect_format(document) if form == "auto" else form:
        case "registry":
            bodies: list[Any] = document if isinstance(document, list) else [document]
            are_own = (isinstance(one, dict) and isinstance(one.get("server_id"), str) for one in bodies)
            if not bodies or not all(are_own):
                raise InvalidRecord("not a server file of Toolgate: `server_id` is missing")
            return ImportResult(bodies, {})
        case "server.json":
            return _parse_server_json_list(document)
        case "docker":
            return _parse_docker_catalog(document)
        case _:
            taken: set[str] = set()
            found = _find_servers(document).items()
            return ImportResult([_make_body(_unique_id(name, taken), name, one) for name, one in found], {})


def _parse_text(text: str, form: ImportFormat) -> object:
    """Parse JSON with comments if it begins like JSON, YAML if it is a Docker catalog, else TOML."""
    if _keep_strings(_COMMENT, text[:4096]).lstrip()[:1] in {"{", "["}:
        try:
            return json.loads(_keep_strings(_TRAILING_COMMA, _keep_strings(_COMMENT, text)))
        except (ValueError, RecursionError) as exc:
            raise InvalidRecord(f"the document is not JSON: {exc}") from exc
    if form == "docker" or (form == "auto" and _DOCKER_CATALOG.search(text)):
        # Not imported at the top: the library would delay every start.
        parse_yaml: Callable[[str], object] = load_lazily("toolgate.registry.interchange.yaml").parse_yaml
        return parse_yaml(text)
    try:
        return parse_toml(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise InvalidRecord(f"the document is neither JSON nor TOML: {exc}") from exc


def _detect_format(document: object) -> ImportFormat:
    first = document[0] if isinstance(document, list) and document else document
    if not isinstance(first, dict):
        return "mcpServers"  # the error of this format explains best what is missing
    if "server_id" in first:
        return "registry"
    if is_docker_catalog(first):
        return "docker"
    if isinstance(first.get("servers"), list):
        return "server.json"
    inner = first.get("server")
    is_listed = server_json.is_server_json(inner if isinstance(inner, dict) else first)
    return "server.json" if is_listed else "mcpServers"


def _parse_server_json_list(document: object) -> ImportResult:
    """Parse one `server.json`, the registry's response with one, or a list of either."""
    imports, taken = ImportResult([], {}), set[str]()
    if isinstance(document, dict) and isinstance(document.get("servers"), list):
        document = document["servers"]
    for one in document if isinstance(document, list) else [document]:
        inner = one.get("server", one) if isinstance(one, dict) else None
        if not isinstance(inner, dict) or not server_json.is_server_json(inner):
            raise InvalidRecord("not a `server.json`: it needs `name`, and `packages` or `remotes`")
        stem, shown = server_json.server_json_name(inner)
        try:
            body = server_json.parse_server_json(inner)
        except InvalidRecord as exc:
            imports.skipped[shown] = str(exc)
        else:
            imports.bodies.append({"server_id": _unique_id(stem, taken), "display_name": shown[:200], **body})
    return imports


def _parse_docker_catalog(document: object) -> ImportResult:
    """Parse a Docker catalog. Unusable servers are skipped: catalogs have hundreds."""
    imports, taken = ImportResult([], {}), set[str]()
    if not isinstance(document, dict) or not is_docker_catalog(document):
        raise InvalidRecord("not a Docker catalog: `registry` with its servers is missing")
    for name, server in document["registry"].items():
        try:
            body, warnings = parse_docker_server(name, server)
            parse_server({"server_id": "any", **body})
        except InvalidRecord as exc:
            imports.skipped[name] = str(exc)
        else:
            imports.bodies.append({"server_id": _unique_id(name, taken), **body})
            imports.warnings.extend(warnings)
    return imports


def _keep_strings(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: match[1] or "", text)


def _find_servers(document: object) -> Mapping[str, Any]:
    for place in _PLACES:
        found = document
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict) and all(isinstance(server, dict) for server in found.values()):
            return found
    raise InvalidRecord("the document has no `mcpServers` and no `servers` object")


def _unique_id(name: str, taken: set[str]) -> str:
    """Make a unique id: `GitHub (work)` becomes `github-work`, a second one `github-work-2`."""
    stem = slugify_server_id(name, max_chars=MAX_SERVER_ID - 3) or "server"
    ids = chain([stem], (f"{stem}-{number}" for number in count(2)))
    server_id = next(one for one in ids if one not in taken)
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
        body["transport"] = "http_sse_legacy" if is_legacy else "streamable_http"
        body["http"] = _translate_variables(endpoint)
    if name != server_id:
        body["display_name"] = name
    if server.get("disabled") is True:
        body["enabled"] = False
    return body


def _translate_variables(value: Any) -> Any:
    """Replace variables of other programs by references, in all texts of a definition."""
    if isinstance(value, str):
        return _VARIABLE.sub(_reference, value)
    if isinstance(value, list):
        return [_translate_variables(item) for item in value]
    if isinstance(value, dict):
        return {name: _translate_variables(item) for name, item in value.items()}
    return value


def _reference(match: re.Match[str]) -> str:
    kind, name, default = match.groups()
    # An editor prompts for an input. A node reads it from its environment.
    variable = name.replace("-", "_")
    return f"${{ENV:{variable.upper() if kind == 'input' else variable}{default or ''}}}"


def is_docker_catalog(document: Json) -> bool:
    servers = document.get("registry")
    return isinstance(servers, Mapping) and all(isinstance(one, Mapping) for one in servers.values())


def parse_docker_server(name: str, server: Json) -> tuple[dict[str, Any], list[str]]:
    """Return the body of one server without its id, and warnings. Raises InvalidRecord if it is unusable."""
    _refuse_references(server)
    warnings: list[str] = []
    if json_object(server, "remote").get("url") or server.get("sseEndpoint"):
        body = _remote(server)
    elif server.get("type") == "poci":
        raise InvalidRecord("each of its tools is a separate container, not an MCP server")
    else:
        body = _container(name, server, warnings)
    if server.get("oauth") and "http" in body:
        warnings.append(f"`{name}` needs an OAuth login: add `http.oauth` to its record")
    return body | _parse_labels(server), warnings


def _container(name: str, server: Json, warnings: list[str]) -> dict[str, Any]:
    image = server.get("image")
    if not isinstance(image, str) or not _IMAGE.fullmatch(image):
        raise InvalidRecord("it has neither a valid image nor a URL")
    warnings += (
        f"`{name}`: `{member}` is ignored: a catalog must not decide how a container runs"
        for member in _LEFT_OUT
        if server.get(member)
    )
    secrets = {env: f"${{ENV:{env}}}" for env in _secrets(server)}
    args = ["run", "--rm", "-i", *(part for env in secrets for part in ("-e", env))]
    if server.get("disableNetwork") is True:
        args.append("--network=none")
    for one in json_objects(server, "env"):
        variable, value = _variable(one.get("name")), one.get("value")
        text = _fill_templates("" if value is None else _text(value))
        if text is None:
            warnings.append(f"`{name}`: variable `{variable}` is ignored: its value is a list to fill in")
        else:
            args += ["-e", f"{variable}={text}"]
    args.append(image)
    for word in _texts(server, "command"):
        text = _fill_templates(word)
        if text is None:
            warnings.append(f"`{name}`: an argument is ignored: its value is a list to fill in")
        else:
            args.append(text)
    launch = {"command": "docker", "args": args} | ({"env": secrets} if secrets else {})
    return {"transport": "stdio", "stdio": launch}


def _remote(server: Json) -> dict[str, Any]:
    remote = json_object(server, "remote")
    url = remote.get("url") or server.get("sseEndpoint")
    headers = remote.get("headers")
    if not isinstance(url, str) or not isinstance(headers, Mapping | None):
        raise InvalidRecord("its remote has no URL or has invalid headers")
    is_legacy = remote.get("transport_type") == "sse" or not remote.get("url")
    secrets = set(_secrets(server))
    filled = {
        header: _with_secrets(value, secrets)
        for header, value in (headers or {}).items()
        if isinstance(value, str)
    }
    endpoint = {"url": url} | ({"headers": filled} if filled else {})
    return {"transport": "http_sse_legacy" if is_legacy else "streamable_http", "http": endpoint}


def _with_secrets(text: str, secrets: set[str]) -> str:
    """Replace the catalog's own secrets in a header, written in shell syntax. Other variables are invalid."""

    def fill(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable not in secrets:
            raise InvalidRecord(f"a header uses `{variable}`, which is not one of the server's secrets")
        return f"${{ENV:{variable}}}"

    return _SHELL_VARIABLE.sub(fill, text)


def _secrets(server: Json) -> Iterator[str]:
    for one in json_objects(server, "secrets"):
        yield _variable(one.get("env"))


def _variable(name: object) -> str:
    if isinstance(name, str) and _VARIABLE_NAME.fullmatch(name):
        return name
    raise InvalidRecord("it has an invalid variable name")


def _fill_templates(text: str) -> str | None:
    """Replace the parts that a user has to fill in by references. None if one is a list."""
    if any(match[2] for match in _TEMPLATE.finditer(text)):
        return None
    return _TEMPLATE.sub(lambda match: server_json.make_reference(match[1]), text)


def _parse_labels(server: Json) -> dict[str, Any]:
    metadata = json_object(server, "metadata")
    tags = [one for one in _texts(metadata, "tags") if _LABEL.fullmatch(one)]
    category, title = metadata.get("category"), server.get("title")
    labels: dict[str, Any] = {"tags": list(dict.fromkeys(tags))[:64]} if tags else {}
    if isinstance(category, str) and _LABEL.fullmatch(category):
        labels["category"] = category
    if isinstance(title, str) and title and title.isprintable():
        labels["display_name"] = title[:200]
    return labels


def _refuse_references(value: object) -> None:
    """Raises InvalidRecord for references: a catalog is untrusted and must not name variables of the node."""
    if isinstance(value, str) and "${ENV:" in value:
        raise InvalidRecord("it contains a Toolgate reference `${ENV:…}`, which catalogs may not use")
    if isinstance(value, Mapping):
        for one in (*value.keys(), *value.values()):
            _refuse_references(one)
    elif isinstance(value, list):
        for one in value:
            _refuse_references(one)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts(owner: Json, member: str) -> list[str]:
    found = owner.get(member)
    return [_text(one) for one in found if one is not None] if isinstance(found, list) else []
