"""The `mcp_servers` of LiteLLM's `config.yaml`, and of Codex, whose `config.toml` has the same name for them.

Values like `os.environ/NAME` become references. A fixed credential becomes a header, OAuth becomes
`http.oauth`; other ways to authenticate are reported. An access group becomes a tag. Models, keys and teams
are not imported.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.names import REFERENCE
from toolgate.registry.interchange.definitions import (
    Definition,
    ImportResult,
    as_number,
    as_text,
    make_tags,
    map_texts,
    quote_names,
)
from toolgate.registry.interchange.server_json import Json, json_object, json_texts

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
