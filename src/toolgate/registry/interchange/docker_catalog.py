"""Reads a catalog of Docker's MCP gateway (`registry:` with images and remotes) as bodies of servers.

A catalog decides what to run and what to fill in, never how. What would give a container more than its image
(volumes, a user, hosts, privileges) is left out with a warning. An image, a name or a value that could be
read as something else is refused. No value becomes a variable of the program that starts the container.
Nothing is pulled or started.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.server_json import make_reference

Json = Mapping[str, Any]

_IMAGE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEMPLATE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*(\|[^{}]*)?\}\}")
_SHELL_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_LABEL = re.compile(r"[\w.+-][\w .+-]{0,62}[\w.+-]|[\w.+-]")

_LEFT_OUT: Final = (
    *("volumes", "user", "extraHosts", "allowHosts", "privileged", "capAdd", "devices", "network"),
    *("securityOpt", "entrypoint", "workdir", "ports", "pid", "ipc"),
)
"""Members that decide how a container runs. To use one, add it to the record."""


@dataclass(frozen=True, slots=True)
class DockerServer:
    """The body of a server without its id, and what was left out."""

    name: str
    body: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def is_docker_catalog(document: Json) -> bool:
    """Whether an object looks like a catalog."""
    servers = document.get("registry")
    return isinstance(servers, Mapping) and all(isinstance(one, Mapping) for one in servers.values())


def find_docker_servers(document: Json) -> Mapping[str, Json]:
    """Return name → definition. Raises InvalidRecord."""
    if not is_docker_catalog(document):
        raise InvalidRecord("this is not a Docker catalog: it has no `registry` of servers")
    found: Mapping[str, Json] = document["registry"]
    return found


def parse_docker_server(name: str, server: Json) -> DockerServer:
    """Return the body of one server. Raises InvalidRecord if it cannot be used."""
    _refuse_references(server)
    remote = server.get("remote")
    url = remote.get("url") if isinstance(remote, Mapping) else None
    if url or server.get("sseEndpoint"):
        found = _remote(name, server)
    elif server.get("type") == "poci":
        raise InvalidRecord("each of its tools is a separate container, not an MCP server")
    else:
        found = _container(name, server)
    found.body.update(_parse_labels(server))
    if server.get("oauth") and "http" in found.body:
        found.warnings.append(f"`{name}` needs a login: add `http.oauth` to its record")
    return found


def _container(name: str, server: Json) -> DockerServer:
    image = server.get("image")
    if not isinstance(image, str) or not _IMAGE.fullmatch(image):
        raise InvalidRecord("it has neither a valid image nor a URL")
    warnings = [
        f"`{name}`: `{member}` is left out: a catalog must not decide how a container runs"
        for member in _LEFT_OUT
        if server.get(member)
    ]
    secrets = {env: f"${{ENV:{env}}}" for env in _secrets(server)}
    args = ["run", "--rm", "-i", *(part for env in secrets for part in ("-e", env))]
    if server.get("disableNetwork") is True:
        args.append("--network=none")
    for variable, value in _variables(server):
        text = _fill_templates(value)
        if text is None:
            warnings.append(f"`{name}`: the variable `{variable}` is left out: it is a list, to be filled in")
        else:
            args += ["-e", f"{variable}={text}"]
    args.append(image)
    for word in _texts(server, "command"):
        text = _fill_templates(word)
        if text is None:
            warnings.append(f"`{name}`: an argument is left out: it is a list, to be filled in")
        else:
            args.append(text)
    launch = {"command": "docker", "args": args} | ({"env": secrets} if secrets else {})
    return DockerServer(name, {"transport": "stdio", "stdio": launch}, warnings)


def _remote(name: str, server: Json) -> DockerServer:
    remote = server.get("remote")
    remote = remote if isinstance(remote, Mapping) else {}
    url = remote.get("url") or server.get("sseEndpoint")
    headers = remote.get("headers")
    if not isinstance(url, str) or not isinstance(headers, Mapping | None):
        raise InvalidRecord("its remote has no URL, or invalid headers")
    is_legacy = remote.get("transport_type") == "sse" or not remote.get("url")
    secrets = set(_secrets(server))
    filled = {
        header: _with_secrets(value, secrets)
        for header, value in (headers or {}).items()
        if isinstance(value, str)
    }
    endpoint = {"url": url} | ({"headers": filled} if filled else {})
    return DockerServer(
        name, {"transport": "http_sse_legacy" if is_legacy else "streamable_http", "http": endpoint}
    )


def _with_secrets(text: str, secrets: set[str]) -> str:
    """Replace the catalog's own secrets in a header, which are written as in a shell. Nothing else is
    allowed."""

    def fill(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable not in secrets:
            raise InvalidRecord(f"a header names `{variable}`, which is not one of its secrets")
        return f"${{ENV:{variable}}}"

    return _SHELL_VARIABLE.sub(fill, text)


def _secrets(server: Json) -> Iterator[str]:
    """Yield the variables of its secrets."""
    for one in _objects(server, "secrets"):
        yield _variable(one.get("env"))


def _variables(server: Json) -> Iterator[tuple[str, str]]:
    for one in _objects(server, "env"):
        value = one.get("value")
        yield _variable(one.get("name")), "" if value is None else _text(value)


def _variable(name: object) -> str:
    if isinstance(name, str) and _VARIABLE.fullmatch(name):
        return name
    raise InvalidRecord("it has an invalid variable name")


def _fill_templates(text: str) -> str | None:
    """Replace what a user has to fill in by references. None if that is a list."""
    if any(match[2] for match in _TEMPLATE.finditer(text)):
        return None
    return _TEMPLATE.sub(lambda match: make_reference(match[1]), text)


def _parse_labels(server: Json) -> dict[str, Any]:
    """Return tags, category and title."""
    metadata = server.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
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
        raise InvalidRecord("it contains a reference of this gateway, `${ENV:…}`: a catalog has none")
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


def _objects(owner: Json, member: str) -> list[Json]:
    found = owner.get(member)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
