"""Checks each tool definition a server sends, alone, so that one bad tool never costs a list.

What a call depends on (name, description, schemas) must be right, or the tool is quarantined with the
reason. What only adorns it (title, icons, hints) is left out when it has the wrong type: strict clients
would refuse the whole list for it, and every hint's default is the cautious one. Everything else passes as
the server wrote it. No definition is ever judged by what its text says.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from toolgate.catalog.schemas import (
    Schema,
    SchemaRefused,
    check_schema,
    is_deeper_than,
    legacy_form,
    parse_input_schema,
    parse_param_headers,
)
from toolgate.catalog.tokens import estimate_tokens
from toolgate.model.names import ToolRef, is_tool_name
from toolgate.model.tools import ToolDefinition

MAX_TOOLS: Final = 2_000
MAX_DESCRIPTION_BYTES: Final = 16 * 1024
MAX_SCHEMA_BYTES: Final = 256 * 1024
MAX_DEFINITION_BYTES: Final = 1024 * 1024
"""Both schemas and the description at their limits, and as much again for `_meta` and icons."""
MAX_DEFINITION_DEPTH: Final = 64

_SHOWN_NAME: Final = 80
_DIGESTED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta")
_SEEN_BY_MODELS: Final = ("name", "description", "inputSchema")
_SCHEMAS: Final = ("inputSchema", "outputSchema")

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A definition that is not offered, and why. `name` is empty where the server gave none."""

    name: str
    reason: str


class _Icon(msgspec.Struct, rename="camel"):
    src: str
    mime_type: str = ""
    sizes: list[str] = []
    theme: Literal["dark", "light"] = "light"


class _Execution(msgspec.Struct, rename="camel"):
    task_support: Literal["forbidden", "optional", "required"] = "forbidden"


class _OutputSchema(msgspec.Struct):
    dialect: str = msgspec.field(default="", name="$schema")


_ADORNMENTS: Final[Mapping[str, Any]] = {
    "title": str,
    "icons": list[_Icon],
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
    for position, raw in enumerate(raws[:MAX_TOOLS], start=1):
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
    if len(raws) > MAX_TOOLS:
        left_out = len(raws) - MAX_TOOLS
        quarantined[f"#{MAX_TOOLS + 1}"] = f"{left_out} more tools than the {MAX_TOOLS} a server may offer"
    return MappingProxyType(tools), MappingProxyType(quarantined)


def digest_list(tools: Mapping[str, ToolDefinition], quarantined: Mapping[str, str]) -> str:
    """Tells one list of a server from another, whatever the order its tools came in."""
    digests = {name: tool.digest for name, tool in tools.items()}
    return hashlib.sha256(_encode_canonical([digests, dict(quarantined)])).hexdigest()


def check_definition(server_id: str, raw: bytes) -> ToolDefinition | Quarantined:
    """One definition, as the server sent it, checked and measured, or why it is not offered."""
    try:
        members = _parse_object(raw)
    except SchemaRefused as refusal:
        return Quarantined("", str(refusal))
    name = members.get("name")
    if not isinstance(name, str):
        return Quarantined("", "it has no name")
    if not is_tool_name(name):
        return Quarantined(_shown(name), "its name is not 1 to 128 of `A-Z a-z 0-9 _ . -`")
    try:
        return _define(ToolRef(server_id, name), raw, members)
    except SchemaRefused as refusal:
        return Quarantined(name, str(refusal))


def _parse_object(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_DEFINITION_BYTES:
        raise SchemaRefused(f"the definition is larger than {MAX_DEFINITION_BYTES} bytes")
    try:
        members = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise SchemaRefused(f"the definition is not valid JSON: {exc}") from exc
    except RecursionError as exc:
        raise SchemaRefused(f"the definition is nested deeper than {MAX_DEFINITION_DEPTH}") from exc
    if not isinstance(members, dict):
        raise SchemaRefused("the definition is not an object")
    return members


def _shown(name: str) -> str:
    """An unusable name, with what cannot be seen escaped. Never itself a tool name."""
    text = ascii(name)[1:-1]
    return text if len(text) <= _SHOWN_NAME else f"{text[:_SHOWN_NAME]}…"


def _define(ref: ToolRef, raw: bytes, sent: dict[str, Any]) -> ToolDefinition:
    raws = _decode_members(raw)
    members = _repair(sent)
    _check_bounds(members, raws)
    if members.get("execution", {}).get("taskSupport") == "required":
        raise SchemaRefused("it can only be called as a task, which this gateway does not carry yet")
    schemas = [members[key] for key in _SCHEMAS if key in members]
    for schema in schemas:
        check_schema(schema)
    return ToolDefinition(
        ref=ref,
        raw=_respell(raw, raws, sent=sent, members=members),
        digest=hashlib.sha256(_encode_canonical(_pick(members, _DIGESTED))).hexdigest(),
        tokens=estimate_tokens(_encode(_pick(members, _SEEN_BY_MODELS))),
        description=members.get("description", ""),
        is_legacy_safe=all(legacy_form(schema) is schema for schema in schemas),
        param_headers=parse_param_headers(members["inputSchema"]),
    )


def _repair(sent: dict[str, Any]) -> dict[str, Any]:
    """`sent` without the adornments that have the wrong type, and with an `inputSchema`."""
    members = {key: value for key, value in sent.items() if _fits(key, value, _ADORNMENTS)}
    if members.get("description", "") is None:
        del members["description"]
    if not isinstance(members.get("description", ""), str):
        raise SchemaRefused("its description is not text")
    hints: dict[str, Any] = members.get("annotations", {})
    kept = {key: value for key, value in hints.items() if _fits(key, value, _HINTS)}
    if len(kept) < len(hints):
        members["annotations"] = kept
    members["inputSchema"] = parse_input_schema(sent.get("inputSchema"))
    return members


def _fits(key: str, value: object, types: Mapping[str, Any]) -> bool:
    if key not in types:
        return True
    try:
        msgspec.convert(value, types[key])
    except msgspec.ValidationError:
        return False
    return True


def _check_bounds(members: Mapping[str, Any], raws: Mapping[str, msgspec.Raw]) -> None:
    if len(members.get("description", "").encode()) > MAX_DESCRIPTION_BYTES:
        raise SchemaRefused(f"its description is longer than {MAX_DESCRIPTION_BYTES} bytes")
    for key in _SCHEMAS:
        if key in raws and len(bytes(raws[key])) > MAX_SCHEMA_BYTES:
            raise SchemaRefused(f"its `{key}` is larger than {MAX_SCHEMA_BYTES} bytes")
    rest = {key: value for key, value in members.items() if key not in _SCHEMAS}
    if is_deeper_than(rest, MAX_DEFINITION_DEPTH):
        raise SchemaRefused(f"the definition is nested deeper than {MAX_DEFINITION_DEPTH}")


def _respell(
    raw: bytes, raws: dict[str, msgspec.Raw], *, sent: dict[str, Any], members: dict[str, Any]
) -> bytes:
    """`raw` itself where nothing was repaired, else anew, with every untouched member as it was written."""
    if sent.keys() == members.keys() and all(members[key] is sent[key] for key in members):
        return raw
    return _encode({key: raws[key] if value is sent.get(key) else value for key, value in members.items()})


def _pick(members: Mapping[str, Any], keys: Sequence[str]) -> Schema:
    return {key: members[key] for key in keys if key in members}
