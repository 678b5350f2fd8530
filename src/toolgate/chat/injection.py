"""MCP tools as functions to offer to a model.

OpenAI requires `type: "object"` at the root of a function's parameters, and rejects a whole request for one
schema with `anyOf`, `oneOf`, `allOf`, `enum`, `const` or `not` there. The arguments of MCP tools are objects
anyway. So this module lifts the arguments of the root's alternatives into the root; if alternatives define
one argument differently, it keeps all definitions. The description quotes the rest (which arguments exclude
each other), and the server still checks every call. Names and `$defs` stay: calls need no translation back.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from toolgate.model.json_text import Members, decode_members, encode_raw
from toolgate.model.servers import EMPTY
from toolgate.model.tools import ToolDefinition

_DOTTED: Final = "mcp.{ref.server_id}.{ref.name}"
Schema = dict[str, Any]
_REFUSED: Final = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const", "not")
_DROPPED: Final = (*_REFUSED, "unevaluatedProperties")
"""Removed from such a root. The last one would count properties that moved."""
_POINTERS: Final = (b"#/allOf/", b"#/anyOf/", b"#/oneOf/", b"#/not/")
_MAX_DEPTH: Final = 64  # a schema of the catalog has 32 levels at most; references can lead deeper
_NOTE: Final = "The arguments as a whole must also fit this JSON Schema: "
_OBJECT: Final = msgspec.Raw(b'"object"')
_NO_MEMBERS: Final = msgspec.Raw(b"{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedTools:
    """The tools to offer to a model in addition to the client's functions."""

    tools: tuple[bytes, ...] = ()
    """Entries of `tools`, encoded."""
    names: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Name that the model may call → name in the caller's view. Both spellings are keys."""
    declared: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Name that the model may call → name in `tools`."""
    shadowed: tuple[str, ...] = ()
    """Tools that the gateway does not offer, because the client has a function of the same name."""


def inject_tools(tools: Mapping[str, tuple[str, ToolDefinition]], own: Collection[str]) -> InjectedTools:
    """Offer `tools` (name in chat → name in the view, definition) to a model. A function of the client
    shadows a tool of the same name: the model cannot call the tool."""
    taken = frozenset(own)
    offered = {name: tool for name, tool in tools.items() if name not in taken}
    spellings = {_DOTTED.format(ref=definition.ref): name for name, (_, definition) in offered.items()} | {
        name: name for name in offered
    }
    declared = {spelling: name for spelling, name in spellings.items() if spelling not in taken}
    return InjectedTools(
        tools=tuple(encode_function(name, definition) for name, (_, definition) in offered.items()),
        names=MappingProxyType({spelling: offered[name][0] for spelling, name in declared.items()}),
        declared=MappingProxyType(declared),
        shadowed=tuple(name for name in tools if name in taken),
    )


def encode_function(name: str, definition: ToolDefinition) -> bytes:
    raw = decode_members(definition.raw)
    title = _read_title(raw) or _read_title(decode_members(raw.get("annotations", _NO_MEMBERS)))
    function: dict[str, object] = {"name": name}
    if description := definition.description or title:
        function["description"] = description
    schema = decode_members(raw.get("inputSchema", _NO_MEMBERS))
    # Not strict: hardly any server's schema fits the restrictions on strict functions.
    function |= {"parameters": normalize_parameters(schema), "strict": False}
    return msgspec.json.encode({"type": "function", "function": function})


def _read_title(members: Members) -> str:
    return msgspec.json.decode(members.get("title", b'""'), type=str)


def normalize_parameters(schema: Members) -> Members:
    """Give `schema` a root that every model's server accepts: an object with `properties`, without
    `$schema`."""
    root = {name: raw for name, raw in schema.items() if name != "$schema"}
    if any(name in root for name in _REFUSED):
        root = _lift_alternatives(root)
    return {**root, "type": _OBJECT, "properties": root.get("properties", _NO_MEMBERS)}


def _lift_alternatives(root: Members) -> Members:
    whole = {name: msgspec.json.decode(raw) for name, raw in root.items()}
    if any(pointer in bytes(raw) for raw in root.values() for pointer in _POINTERS):
        # A reference points into a part that is dropped. Better no properties than a broken reference.
        return _describe_dropped(whole, whole)
    reader = _ShapeReader(whole)
    required = reader.read(whole)
    kept = {name: raw for name, raw in root.items() if name not in _DROPPED}
    properties = {}
    for name, found in reader.properties.items():
        first, *others = found.values()
        properties[name] = {"anyOf": [first, *others]} if others else first
    return kept | {
        "properties": encode_raw(properties),
        "required": encode_raw(sorted(required)),
        **_describe_dropped(whole, {name: whole[name] for name in _DROPPED if name in whole}),
    }


def _describe_dropped(whole: Schema, dropped: Schema) -> Members:
    text, note = whole.get("description"), _NOTE + msgspec.json.encode(dropped).decode()
    return {"description": encode_raw(f"{text}\n\n{note}" if isinstance(text, str) and text else note)}


class _ShapeReader:
    """Collects the arguments of one root's alternatives, each with all its definitions."""

    def __init__(self, whole: Schema) -> None:
        self._whole = whole
        self._seen: set[str] = set()
        self.properties: dict[str, dict[bytes, Any]] = {}
        """The definitions of each argument, by their JSON: duplicates count once."""

    def read(self, schema: object, *, depth: int = 0) -> set[str]:
        """Collect the arguments of `schema`. Returns those that it requires."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return set()
        properties, names = schema.get("properties"), schema.get("required")
        for name, one in properties.items() if isinstance(properties, dict) else ():
            self.properties.setdefault(name, {})[msgspec.json.encode(one)] = one
        required = {name for name in (names if isinstance(names, list) else ()) if isinstance(name, str)}
        for part in self._find_parts(schema):
            required |= self.read(part, depth=depth + 1)
        for key in ("anyOf", "oneOf"):
            branches = schema.get(key)
            if isinstance(branches, list) and branches:
                required |= set.intersection(*(self.read(one, depth=depth + 1) for one in branches))
        return required

    def _find_parts(self, schema: Schema) -> Iterator[object]:
        """Find the schemas that hold in addition to `schema`. Follows a reference once, so cycles end."""
        parts = schema.get("allOf")
        yield from parts if isinstance(parts, list) else ()
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in self._seen:
            self._seen.add(ref)
            node: object = self._whole if ref.startswith("#/") else None
            for step in ref.split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                node = node.get(name) if isinstance(node, dict) else None
            yield node
