"""Catalogs of Docker's MCP gateway.

A catalog decides what to run and which values to fill in, never how to run it. Members that would give a
container more than its image (volumes, a user, hosts, privileges) are dropped with a warning. An image, name
or value that programs could read differently is rejected. No value becomes a variable of the program that
starts the container. Nothing is pulled or started.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange import server_json
from toolgate.registry.interchange.definitions import MAX_LABEL, ImportResult, is_label, make_tags
from toolgate.registry.interchange.server_json import Json, json_object, json_objects
from toolgate.registry.records.codec import parse_server

_IMAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"
)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEMPLATE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*(\|[^{}]*)?\}\}")
_SHELL_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_LEFT_OUT: Final = (
    *("volumes", "user", "extraHosts", "allowHosts", "privileged", "capAdd", "devices", "network"),
    *("securityOpt", "entrypoint", "workdir", "ports", "pid", "ipc"),
)
"""Members that decide how a container runs. To use one, add it to the record."""


def is_docker_catalog(document: Json) -> bool:
    servers = document.get("registry")
    return isinstance(servers, Mapping) and all(isinstance(one, Mapping) for one in servers.values())


def parse_docker_catalog(document: object) -> ImportResult:
    """Parse a Docker catalog. Unusable servers are skipped: catalogs have hundreds."""
    imports = ImportResult()
    if not isinstance(document, dict) or not is_docker_catalog(document):
        raise InvalidRecord("not a Docker catalog: `registry` with its servers is missing")
    for name, server in document["registry"].items():
        try:
            body, warnings = parse_docker_server(name, server)
            parse_server({"server_id": "any", **body})
        except InvalidRecord as exc:
            imports.skipped[name] = str(exc)
        else:
            imports.bodies.append({"server_id": imports.make_id(name), **body})
            imports.warnings.extend(warnings)
    return imports


def parse_docker_server(name: str, server: Json) -> tuple[dict[str, Any], list[str]]:
    """Return the body of one server without its id, and warnings. Raises InvalidRecord if it is unusable."""
    # A catalog is untrusted and must not name variables of the node.
    if "${ENV:" in json.dumps(server, default=str):
        raise InvalidRecord("it contains a Toolgate reference `${ENV:…}`, which catalogs may not use")
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
    secrets = {env: f"${{ENV:{env}}}" for env in _list_secrets(server)}
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
    secrets = _list_secrets(server)
    filled = {
        header: _with_secrets(value, secrets)
        for header, value in (headers or {}).items()
        if isinstance(value, str)
    }
    endpoint = {"url": url} | ({"headers": filled} if filled else {})
    return {"transport": "http_sse_legacy" if is_legacy else "streamable_http", "http": endpoint}


def _with_secrets(text: str, secrets: Collection[str]) -> str:
    """Replace the catalog's own secrets in a header, written in shell syntax. Other variables are invalid."""

    def fill(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable not in secrets:
            raise InvalidRecord(f"a header uses `{variable}`, which is not one of the server's secrets")
        return f"${{ENV:{variable}}}"

    return _SHELL_VARIABLE.sub(fill, text)


def _list_secrets(server: Json) -> list[str]:
    return [_variable(one.get("env")) for one in json_objects(server, "secrets")]


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
    tags, category, title = make_tags(_texts(metadata, "tags")), metadata.get("category"), server.get("title")
    labels: dict[str, Any] = {"tags": tags} if tags else {}
    if is_label(category):
        labels["category"] = category
    if isinstance(title, str) and title and title.isprintable():
        labels["display_name"] = title[:MAX_LABEL]
    return labels


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _texts(owner: Json, member: str) -> list[str]:
    found = owner.get(member)
    return [_text(one) for one in found if one is not None] if isinstance(found, list) else []
