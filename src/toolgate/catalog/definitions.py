"""Checks each tool definition a server sends, alone, so that one bad tool never costs a list.

What a call depends on (name, description, schemas) must be right, or the tool is quarantined with the
reason. What only adorns it (title, icons, hints) is left out when it has the wrong type: strict clients
would refuse the whole list for it, and every hint's default is the cautious one. Everything else passes as
the server wrote it. No definition is ever judged by what its text says.
"""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from toolgate.catalog.members import (
    MAX_LISTED,
    Icon,
    Members,
    Quarantined,
    check_depth,
    check_description,
    encode_canonical,
    keep_fitting,
    parse_members,
    respell,
    shown,
)
from toolgate.catalog.schemas import (
    Schema,
    SchemaRefused,
    check_schema,
    legacy_form,
    parse_input_schema,
    parse_param_headers,
)
from toolgate.catalog.tokens import estimate_tokens
from toolgate.model.names import ToolRef, is_tool_name
from toolgate.model.raw import decode_members
from toolgate.model.tools import ToolDefinition

MAX_SCHEMA_BYTES: Final = 256 * 1024

UNDIGESTED: Final = frozenset({"icons", "execution"})
"""Icons are looked at by people alone, and their URLs are often signed anew with every list."""
_SEEN_BY_MODELS: Final = ("name", "description", "inputSchema")
_SCHEMAS: Final = ("inputSchema", "outputSchema")


class _Execution(msgspec.Struct, rename="camel"):
    task_support: Literal["forbidden", "optional", "required"] = "forbidden"


class _OutputSchema(msgspec.Struct):
    dialect: str = msgspec.field(default="", name="$schema")


_ADORNMENTS: Final[Mapping[str, Any]] = {
    "title": str,
    "icons": list[Icon],
    "annotations": dict[str, Any],
    "execution": _Execution,
    "outputSchema": _OutputSchema,
    "_meta": dict[str, Any],
}
_HINTS: Final[Mapping[str, Any]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


def check_list(
    server_id: str, raws: Sequence[bytes]
) -> tuple[Mapping[str, ToolDefinition], Mapping[str, str]]:
    """The tools of a server by name, and what was quarantined, with the reasons.

    The two never share a key: a quarantined definition that cannot go by its name (it has none, or it is
    taken) is listed as `name#position`, and no tool name holds a `#`. The first to use a name keeps it,
    good or bad, so nothing further down a list can take a tool's place.
    """
    tools: dict[str, ToolDefinition] = {}
    quarantined: dict[str, str] = {}
    claimed: dict[str, str] = {}
    for position, raw in enumerate(raws[:MAX_LISTED], start=1):
        checked = check_definition(server_id, raw)
        name = checked.ref.name if isinstance(checked, ToolDefinition) else checked.name
        first = claimed.setdefault(name.casefold(), name)
        if not name or name in tools or name in quarantined:
            reason = checked.reason if isinstance(checked, Quarantined) else "its name is already taken"
            quarantined[f"{name}#{position}"] = reason
        elif isinstance(checked, Quarantined):
            quarantined[name] = checked.reason
        elif first != name:
            quarantined[name] = f"its name differs from `{first}` only in case"
        else:
            tools[name] = checked
    if len(raws) > MAX_LISTED:
        left_out = len(raws) - MAX_LISTED
        quarantined[f"#{MAX_LISTED + 1}"] = f"{left_out} more tools than the {MAX_LISTED} a server may offer"
    return MappingProxyType(tools), MappingProxyType(quarantined)


def check_definition(server_id: str, raw: bytes) -> ToolDefinition | Quarantined:
    """One definition, as the server sent it, checked and measured, or why it is not offered."""
    try:
        members = parse_members(raw)
    except SchemaRefused as refusal:
        return Quarantined("", str(refusal))
    name = members.get("name")
    if not isinstance(name, str):
        return Quarantined("", "it has no name")
    if not is_tool_name(name):
        return Quarantined(shown(name), "its name is not 1 to 128 of `A-Z a-z 0-9 _ . -`")
    try:
        return _define(ToolRef(server_id, name), raw, members)
    except SchemaRefused as refusal:
        return Quarantined(name, str(refusal))


def _define(ref: ToolRef, raw: bytes, sent: Members) -> ToolDefinition:
    members = _repair(sent)
    _check_bounds(members, decode_members(raw))
    if members.get("execution", {}).get("taskSupport") == "required":
        raise SchemaRefused("it can only be called as a task, which this gateway does not carry yet")
    schemas = [members[key] for key in _SCHEMAS if key in members]
    for schema in schemas:
        check_schema(schema)
    return ToolDefinition(
        ref=ref,
        raw=respell(raw, sent=sent, members=members),
        digest=hashlib.sha256(encode_canonical(pick_digested(members))).hexdigest(),
        tokens=estimate_tokens(msgspec.json.encode(_pick(members, _SEEN_BY_MODELS))),
        description=members.get("description", ""),
        is_legacy_safe=all(legacy_form(schema) is schema for schema in schemas),
        is_read_only=_is_read_only(members.get("annotations", {})),
        param_headers=parse_param_headers(members["inputSchema"]),
    )


def _is_read_only(hints: Members) -> bool:
    return hints.get("readOnlyHint") is True and hints.get("destructiveHint") is not True


def pick_digested(members: Members) -> Members:
    """What the digest covers: all that reaches a client, known to MCP or not, but for UNDIGESTED."""
    return {key: value for key, value in members.items() if key not in UNDIGESTED}


def _repair(sent: Members) -> Members:
    """`sent` without the adornments that have the wrong type, and with an `inputSchema`."""
    members = keep_fitting(sent, _ADORNMENTS)
    check_description(members)
    hints: Members = members.get("annotations", {})
    kept = keep_fitting(hints, _HINTS)
    if len(kept) < len(hints):
        members["annotations"] = kept
    members["inputSchema"] = parse_input_schema(sent.get("inputSchema"))
    return members


def _check_bounds(members: Members, raws: Mapping[str, msgspec.Raw]) -> None:
    for key in _SCHEMAS:
        if key in raws and len(bytes(raws[key])) > MAX_SCHEMA_BYTES:
            raise SchemaRefused(f"its `{key}` is larger than {MAX_SCHEMA_BYTES} bytes")
    check_depth({key: value for key, value in members.items() if key not in _SCHEMAS})


def _pick(members: Mapping[str, Any], keys: Sequence[str]) -> Schema:
    return {key: members[key] for key in keys if key in members}
