"""The MCP servers in the files of other gateways: ContextForge, LiteLLM and agentgateway.

- ContextForge: its exports, and its catalog of servers. A gateway of ContextForge is a server here. A virtual
  server is a selection of tools, as a task is: the import says which, and stores none. Tools, prompts and
  resources that ContextForge makes itself, from REST or from a template, have no counterpart. Credentials are
  encrypted in an export and become references.
- LiteLLM: the `mcp_servers` of its `config.yaml`, and of Codex, whose `config.toml` has the same name for
  them. Values like `os.environ/NAME` become references. A fixed credential becomes a header, OAuth becomes
  `http.oauth`; other ways to authenticate are reported. An access group becomes a tag. Models, keys and teams
  are not imported.
- agentgateway: the targets of its configuration, commands and URLs. Routes, policies and listeners are not
  imported: tasks and keys decide who sees what.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.names import REFERENCE
from toolgate.registry.interchange.definitions import (
    Definition,
    ImportResult,
    as_number,
    as_text,
    describe_task,
    make_tags,
    make_variable,
    map_texts,
    quote_names,
)
from toolgate.registry.interchange.server_json import Json, json_object, json_objects, json_texts

_CREDENTIALS: Final = {"bearer": "Bearer", "basic": "Basic"}
_WITHOUT: Final = frozenset({"", "none", "open"})
"""Kinds of authentication that need nothing. The last one is the catalog's."""
_ENCRYPTED: Final = "its credential is encrypted in the file"
_FOUND_OUT: Final = frozenset({"capabilities", "health_check", "id", "name"})
"""Fields that name a gateway, or hold what every gateway finds out itself."""
_ENDPOINTS: Final = ("sse_endpoint", "websocket_endpoint", "jsonrpc_endpoint")
_MAX_NAME: Final = 256  # characters of a gateway's name: ContextForge allows 255
_SEPARATORS: Final = re.compile(r"[\W_]+")


def is_contextforge(document: Json) -> bool:
    entities = document.get("entities")
    is_export = isinstance(entities, dict) and any(isinstance(one, list) for one in entities.values())
    return is_export or isinstance(document.get("catalog_servers"), list)


def parse_contextforge(document: object) -> ImportResult:
    """Import the gateways of an export, or the servers of a catalog. Raises InvalidRecord."""
    if not isinstance(document, dict) or not is_contextforge(document):
        raise InvalidRecord("not an export of ContextForge: `entities` is missing")
    imports, entities = ImportResult(), json_object(document, "entities")
    ids = dict[str, str]()
    for fields in (*json_objects(entities, "gateways"), *json_objects(document, "catalog_servers")):
        name = str(fields.get("name"))
        ids[_slugify(name)] = server_id = imports.make_id(str(fields.get("id") or name))
        imports.add(server_id, name, _translate_gateway(server_id, fields, imports))
    for fields in json_objects(entities, "servers"):
        _describe_virtual_server(fields, ids, imports)
    for kind, why in (
        ("tools", "a record has no tool that calls a REST API: put a server in front of it"),
        ("prompts", "servers list their own, and the gateway has none itself"),
        ("resources", "servers list their own, and the gateway has none itself"),
        ("roots", "each client states its own"),
    ):
        if found_names := [one.get("name") or one.get("uri") for one in json_objects(entities, kind)]:
            imports.warnings.append(f"no counterpart for the {kind} {quote_names(found_names)}: {why}")
    return imports


def _translate_gateway(server_id: str, fields: Json, imports: ImportResult) -> dict[str, Any]:
    """The fields as other programs name them. What becomes of the credential is a warning."""
    rest = {name: value for name, value in fields.items() if name not in _FOUND_OUT}
    kind = str(rest.pop("auth_type", None) or "").lower()
    rest.pop("auth_value", None)
    if rest.pop("is_active", True) is False:
        rest["enabled"] = False
    found = Definition(str(fields.get("name")), {}, imports)
    if (scheme := _CREDENTIALS.get(kind)) is not None:
        variable = f"{server_id}_{'token' if kind == 'bearer' else 'basic_auth'}"
        rest["headers"] = {"Authorization": f"{scheme} {make_variable(variable, found, _ENCRYPTED)}"}
    elif kind == "query_param":
        rest["url"] = _add_parameters(server_id, rest, found)
    elif kind not in _WITHOUT:
        found.warn(
            f"no counterpart for `auth_type` {quote_names([kind])}: set `http.headers` or `http.oauth`"
        )
    if rest.pop("requires_api_key", False) is True and not rest.get("headers"):
        found.warn("it needs an API key: set `http.headers`")
    return rest


def _add_parameters(server_id: str, fields: dict[str, Any], found: Definition) -> str:
    """The URL with a reference for each parameter that holds a key."""
    url, names = str(fields.get("url")), fields.pop("auth_query_params", None)
    for name in names if isinstance(names, Mapping) else ():
        reference = make_variable(f"{server_id}_{name}", found, _ENCRYPTED)
        url += f"{'&' if '?' in url else '?'}{name}={reference}"
    return url


def _describe_virtual_server(fields: Json, ids: Mapping[str, str], imports: ImportResult) -> None:
    """Describe the task for a virtual server, whose tools are named after gateway and tool."""
    server = Definition(f"virtual server {fields.get('name')}", fields, imports)
    server.take("id", "name", "capabilities", "is_active", *_ENDPOINTS)
    patterns, unknown = [], []
    for tool in server.take_list("tool_ids", "associated_tools") or ():
        slug = _slugify(str(tool))
        if (gateway := _find_gateway(slug, ids)) is None:
            unknown.append(tool)
        else:
            # ContextForge writes a hyphen for whatever the tool has there.
            patterns.append(f"{ids[gateway]}/{slug.removeprefix(f'{gateway}-').replace('-', '?')}")
    if patterns:
        server.warn(describe_task((one.partition("/")[0] for one in patterns), patterns))
    if unknown:
        server.warn(f"no gateway of this file has the tools {quote_names(unknown)}")
    server.report_rest()


def _find_gateway(tool: str, ids: Mapping[str, str]) -> str | None:
    """The gateway with the longest name that the name of a tool begins with."""
    ends = [at for at, char in enumerate(tool[:_MAX_NAME]) if char == "-"]
    return next((tool[:end] for end in reversed(ends) if tool[:end] in ids), None)


def _slugify(text: str) -> str:
    return _SEPARATORS.sub("-", text.lower()).strip("-")


_ENVIRONMENT: Final = re.compile(r"\Aos\.environ/(.*)\Z", re.DOTALL)
_CALLERS_HEADER = re.compile(r"\$\{X-[^}]*\}")
_HEADERS: Final = {
    "api_key": ("X-API-Key", "{}"),
    "authorization": ("Authorization", "{}"),
    "basic": ("Authorization", "Basic {}"),
    "bearer_token": ("Authorization", "Bearer {}"),
    "token": ("Authorization", "token {}"),
}
"""A way to authenticate, and the header it sends."""
_OAUTH: Final = ("client_id", "client_secret", "issuer", "scopes", "oauth2_flow")


def is_litellm(document: Json) -> bool:
    servers = document.get("mcp_servers")
    return isinstance(servers, dict) and all(isinstance(one, dict) for one in servers.values())


def parse_litellm(document: object) -> ImportResult:
    """Import `mcp_servers`. Raises InvalidRecord if `mcp_servers` is missing."""
    if not isinstance(document, dict) or not is_litellm(document):
        raise InvalidRecord("not a configuration of LiteLLM: `mcp_servers` with its servers is missing")
    imports = ImportResult()
    for name, sent in document["mcp_servers"].items():
        if sent.get("spec_path"):
            imports.skipped[name] = "`spec_path`: it is an HTTP API, not an MCP server"
            continue
        fields = map_texts(sent, lambda text, _: _ENVIRONMENT.sub(r"${ENV:\1}", text))
        found = Definition(name, fields, imports)
        oauth = _authenticate(fields, found)
        _rename_fields(name, fields, found)
        body = imports.add(imports.make_id(name), name, fields)
        if oauth and "http" in body:
            body["http"]["oauth"] = oauth
    for tag in dict.fromkeys(tag for body in imports.bodies for tag in body.get("tags", ())):
        imports.warnings.append(f'access group `{tag}` is a tag: a task with `mcp.tags = ["{tag}"]` shows it')
    if rest := [name for name in document if name != "mcp_servers"]:
        imports.warnings.append(f"only servers are imported: no counterpart for {quote_names(rest)}")
    return imports


def _authenticate(fields: dict[str, Any], found: Definition) -> dict[str, Any]:
    """Turn a fixed credential into a header in `fields`. Returns the OAuth client, if it is one."""
    kind = str(fields.pop("auth_type", None) or "none")
    credential = [fields.pop(name, None) for name in ("authentication_token", "auth_value")]
    value = as_text(next((one for one in credential if one is not None), None))
    fields["headers"] = headers = dict(
        json_object(fields, "headers") or json_object(fields, "static_headers")
    )
    if isinstance(variable := fields.pop("bearer_token_env_var", None), str):  # Codex
        headers["Authorization"] = f"Bearer ${{ENV:{variable}}}"
    headers |= {name: f"${{ENV:{one}}}" for name, one in json_object(fields, "env_http_headers").items()}
    for read in ("static_headers", "env_http_headers"):
        fields.pop(read, None)
    if kind in _HEADERS and isinstance(value, str):
        name, form = _HEADERS[kind]
        if kind == "basic" and REFERENCE.search(value):
            found.warn("set the variable of its credential to the Base64 form of `user:password`")
        elif kind == "basic":
            value = base64.b64encode(value.encode()).decode()
        headers[name] = form.format(value)
    elif kind == "oauth2":
        return _make_oauth({name: fields.pop(name, None) for name in _OAUTH}, found)
    elif kind != "none":
        found.warn(
            f"no counterpart for `auth_type` {quote_names([kind])}: set `http.headers` or `http.oauth`"
        )
    return {}


def _make_oauth(sent: Mapping[str, Any], found: Definition) -> dict[str, Any]:
    is_machine = sent["oauth2_flow"] == "client_credentials"
    secret = REFERENCE.fullmatch(sent["client_secret"]) if isinstance(sent["client_secret"], str) else None
    has_secret = secret is not None and isinstance(sent["issuer"], str)
    if is_machine and not has_secret:
        found.warn("its OAuth client is left out: set `http.oauth` with `client_secret_ref` and `issuer`")
        return {}
    if sent["client_secret"] and not has_secret:
        found.warn("its client secret is left out: name it in `http.oauth.client_secret_ref`, with `issuer`")
    scopes = sent["scopes"].split() if isinstance(sent["scopes"], str) else sent["scopes"]
    made: dict[str, Any] = {"grant": "client_credentials" if is_machine else "authorization_code"}
    if not is_machine:
        made["per_principal"] = True
        found.warn("each caller logs in again: tokens are not imported")
    made |= {name: sent[name] for name in ("client_id", "issuer") if sent[name]}
    if has_secret and secret is not None:
        made["client_secret_ref"] = secret[1]
    return made | ({"scopes": scopes} if scopes else {})


def _rename_fields(name: str, fields: dict[str, Any], found: Definition) -> None:
    """Give the fields the names and units of other programs."""
    prefixes = [f"{one}-" for one in (fields.get("alias"), name) if isinstance(one, str)]
    for member in ("allowed_tools", "disallowed_tools"):
        # A tool may be listed with the name of its server before its own.
        tools = [
            tool.removeprefix(next((one for one in prefixes if tool.startswith(one)), ""))
            for tool in json_texts(fields, member)
        ]
        if fields.pop(member, None) and tools:  # an empty list restricts nothing
            fields[member] = tools
    fields["tags"] = make_tags(fields.pop("access_groups", None) or ())
    for member in ("timeout", "tool_timeout_sec"):
        if (seconds := as_number(fields.get(member))) is not None:
            del fields[member]
            fields["timeout"] = seconds * 1_000
    env = json_object(fields, "env")
    if private := [one for one, value in env.items() if _CALLERS_HEADER.search(str(value))]:
        found.warn(f"set {quote_names(private)} where the gateway runs: no header of a caller fills them in")


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
