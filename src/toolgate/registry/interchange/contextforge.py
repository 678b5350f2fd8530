"""Exports of ContextForge, and its catalog of servers.

A gateway of ContextForge is a server here. A virtual server is a selection of tools, as a task is: the import
says which, and stores none. Tools, prompts and resources that ContextForge makes itself, from REST or from a
template, have no counterpart. Credentials are encrypted in an export and become references.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.definitions import (
    Definition,
    ImportResult,
    describe_task,
    make_variable,
    quote_names,
)
from toolgate.registry.interchange.server_json import Json, json_object, json_objects

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
