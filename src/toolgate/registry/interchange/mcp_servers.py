"""The `mcpServers` and `servers` objects of editors, of mcp-hub, MCPHub, MetaMCP and FastMCP.

They share one form with small differences, so one reader takes them all. The settings of MCPHub have groups
and keys next to the servers. A group shows what a task shows: the import says which, and stores none.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.registry.interchange.definitions import (
    Definition,
    ImportResult,
    describe_task,
    make_pattern,
    map_texts,
    quote_names,
)
from toolgate.registry.interchange.server_json import Json, json_objects, json_texts

_PLACES: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp", "mcpServers"))
_OF_MCPHUB: Final = frozenset(
    {"bearerKeys", "groups", "oauthClients", "systemConfig", "userConfigs", "users"}
)
_WITH_COUNTERPART: Final = frozenset(
    {"$schema", "inputs", "mcp", "mcpServers", "servers", "groups", "bearerKeys"}
)
"""Members next to the servers that are read, or that tell how an editor prompts for a value."""
# MCPHub takes `$NAME` as well. A `$` before anything else is text.
_SHORT_VARIABLE = re.compile(r"\$([A-Z_][A-Z0-9_]*)")


def parse_mcp_servers(document: object) -> ImportResult:
    """Import an object of servers. Raises InvalidRecord if it is missing."""
    servers, imports = _find_servers(document), ImportResult()
    is_mcphub = isinstance(document, dict) and not _OF_MCPHUB.isdisjoint(document)
    ids = dict[str, str]()
    for name, fields in servers.items():
        if (kind := fields.get("type")) == "openapi":
            imports.skipped[name] = f"type `{kind}`: it is an HTTP API, not an MCP server"
            continue
        ids[name] = imports.make_id(name)
        imports.add(ids[name], name, map_texts(fields, _expand_short) if is_mcphub else fields)
    if is_mcphub and isinstance(document, dict):
        _describe_groups(document, ids, imports)
    if isinstance(document, dict) and (rest := [name for name in document if name not in _WITH_COUNTERPART]):
        imports.warnings.append(f"only servers are imported: no counterpart for {quote_names(rest)}")
    return imports


def _expand_short(text: str, _place: str) -> str:
    return _SHORT_VARIABLE.sub(r"${\1}", text)


def _find_servers(document: object) -> Mapping[str, Any]:
    for place in _PLACES:
        found = document
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict) and all(isinstance(server, dict) for server in found.values()):
            return found
    raise InvalidRecord("the document has no `mcpServers` and no `servers` object")


def _describe_groups(document: Json, ids: Mapping[str, str], imports: ImportResult) -> None:
    """Describe a task for each group of MCPHub, and a key for each of its bearer keys."""
    for fields in json_objects(document, "groups"):
        group = Definition(f"group {fields.get('name')}", fields, imports)
        group.take("id", "name", "description")
        members = [
            one if isinstance(one, dict) else {"name": one} for one in group.take_list("servers") or ()
        ]
        known = [one for one in members if str(one.get("name")) in ids]
        if unknown := [one.get("name") for one in members if str(one.get("name")) not in ids]:
            group.warn(f"no server of this file is called {quote_names(unknown)}")
        patterns = [pattern for one in known for pattern in _select_capabilities(one, ids[str(one["name"])])]
        is_whole = all(pattern.endswith("/*") for pattern in patterns)
        if known:
            group.warn(describe_task((ids[str(one["name"])] for one in known), () if is_whole else patterns))
        group.put_back("alias", [one["alias"] for one in known if one.get("alias")])
        group.report_rest()
    for fields in json_objects(document, "bearerKeys"):
        reach = {
            "tasks": json_texts(fields, "allowedGroups"),
            "servers": [ids.get(name, name) for name in json_texts(fields, "allowedServers")],
        }
        options = "".join(f" --{name} {','.join(found)}" for name, found in reach.items() if found)
        Definition(f"bearer key {fields.get('name')}", {}, imports).warn(
            f"keys are not imported: make one with `toolgate keys create ID{options}`"
        )


def _select_capabilities(member: Json, server_id: str) -> Iterator[str]:
    """The patterns for what a group shows of a server. All its tools, unless it lists some."""
    tools = json_texts(member, "tools") if isinstance(member.get("tools"), list) else ["*"]
    yield from (f"{server_id}/{make_pattern(tool).removeprefix('*/')}" for tool in tools)
    yield from (f"prompt:{server_id}/{name}" for name in json_texts(member, "prompts"))
    yield from (f"resource:{server_id}/{uri}" for uri in json_texts(member, "resources"))
