"""Schemas whose root models' servers do not take.

OpenAI wants `type: "object"` at the root of a function's parameters, and no `anyOf`, `oneOf`, `allOf`,
`enum`, `const` or `not` beside it; one such schema has the whole request refused. The arguments of MCP tools
are objects anyway. So what the root's alternatives say of single arguments is lifted into the root, where a
model looks for it; all of it, where they differ. What that leaves unsaid (which arguments exclude each other)
stands word for word in the description, and the server still checks every call. Names and `$defs` stay as
they are, so a call needs no translation back.

MCP tools as functions that a model is offered.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from toolgate.model.json_text import Members, decode_members, encode_raw
from toolgate.model.servers import EMPTY
from toolgate.model.tools import ToolDefinition

Schema = dict[str, Any]
_REFUSED: Final = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const", "not")
_DROPPED: Final = (*_REFUSED, "unevaluatedProperties")
"""What is taken from such a root. The last one would count what now stands elsewhere."""
_POINTERS: Final = (b"#/allOf/", b"#/anyOf/", b"#/oneOf/", b"#/not/")
_MAX_DEPTH: Final = 64
"""A schema has 32 levels at most; references lead on."""
_NOTE: Final = "The arguments as a whole must also fit this JSON Schema: "
_OBJECT: Final = msgspec.Raw(b'"object"')
_NONE: Final = msgspec.Raw(b"{}")


def normalize_parameters(schema: Members) -> Members:
    """`schema` with a root that every model's server takes."""
    root = {name: raw for name, raw in schema.items() if name != "$schema"}
    if any(name in root for name in _REFUSED):
        root = _lift_alternatives(root)
    return {**root, "type": _OBJECT, "properties": root.get("properties", _NONE)}


def _lift_alternatives(root: Members) -> Members:
    whole = {name: msgspec.json.decode(raw) for name, raw in root.items()}
    if any(pointer in bytes(raw) for raw in root.values() for pointer in _POINTERS):
        # Some reference leads into what has to go. Rather nothing than one that leads nowhere.
        return _describe_dropped(whole, whole)
    shape = _ShapeReader(whole).shape_of(whole)
    kept = {name: raw for name, raw in root.items() if name not in _DROPPED}
    properties = {name: _merge_schemas(found) for name, found in shape.properties.items()}
    return kept | {
        "properties": encode_raw(properties),
        "required": encode_raw(sorted(shape.required)),
        **_describe_dropped(whole, {name: whole[name] for name in _DROPPED if name in whole}),
    }


def _describe_dropped(whole: Schema, unsaid: Schema) -> Members:
    said, note = whole.get("description"), _NOTE + msgspec.json.encode(unsaid).decode()
    return {"description": encode_raw(f"{said}\n\n{note}" if isinstance(said, str) and said else note)}


@dataclass(slots=True)
class _Shape:
    """The arguments that a schema speaks of, each with all that is said of it, and those it demands."""

    properties: dict[str, dict[bytes, Any]] = field(default_factory=dict)
    """By their JSON: what is said twice counts once."""
    required: set[str] = field(default_factory=set)

    def take(self, other: "_Shape") -> None:
        for name, found in other.properties.items():
            self.properties.setdefault(name, {}).update(found)


class _ShapeReader:
    """Looks into the alternatives of one root."""

    def __init__(self, whole: Schema) -> None:
        self._whole = whole
        self._seen: set[str] = set()

    def shape_of(self, schema: object, *, depth: int = 0) -> _Shape:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return _Shape()
        shape = _read_properties(schema)
        for part in self._together(schema):
            found = self.shape_of(part, depth=depth + 1)
            shape.take(found)
            shape.required |= found.required
        for key in ("anyOf", "oneOf"):
            self._take_alternatives(shape, schema.get(key), depth + 1)
        return shape

    def _take_alternatives(self, shape: _Shape, branches: object, depth: int) -> None:
        listed = branches if isinstance(branches, list) else []
        found = [self.shape_of(branch, depth=depth) for branch in listed]
        for branch in found:
            shape.take(branch)
        if found:
            shape.required |= set.intersection(*(branch.required for branch in found))

    def _together(self, schema: Schema) -> Iterator[object]:
        """What holds beside `schema`. A reference is followed once, so that none goes round in circles."""
        parts = schema.get("allOf")
        yield from parts if isinstance(parts, list) else ()
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in self._seen:
            self._seen.add(ref)
            yield self._target(ref)

    def _target(self, ref: str) -> object:
        node: object = self._whole if ref.startswith("#/") else None
        for step in ref.split("/")[1:]:
            node = node.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        return node


def _read_properties(schema: Schema) -> _Shape:
    properties, required = schema.get("properties"), schema.get("required")
    said = properties.items() if isinstance(properties, dict) else ()
    names = required if isinstance(required, list) else ()
    return _Shape(
        properties={name: {msgspec.json.encode(found): found} for name, found in said},
        required={name for name in names if isinstance(name, str)},
    )


def _merge_schemas(found: dict[bytes, Any]) -> Any:
    first, *others = found.values()
    return {"anyOf": [first, *others]} if others else first


_DOTTED: Final = "mcp.{ref.server_id}.{ref.name}"
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedTools:
    """What a model is offered beside the caller's own functions."""

    tools: tuple[bytes, ...] = ()
    """Each an entry of `tools`, encoded."""
    names: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """What a model may call → the name in the caller's view. Both spellings are keys."""
    declared: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """What a model may call → the name it is declared by in `tools`."""
    shadowed: tuple[str, ...] = ()
    """Tools that are not offered, for the caller has a function of that very name."""


def inject_tools(tools: Mapping[str, tuple[str, ToolDefinition]], own: Collection[str]) -> InjectedTools:
    """Offer `tools` (name in chat → name in the view, definition) to a model.

    Where the caller has a function of the same name its own is meant, and the tool cannot be called at all.
    """
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
    """An entry of `tools` in chat completions."""
    function: dict[str, object] = {"name": name}
    if description := function_description(definition):
        function["description"] = description
    # Not strict: hardly any schema of a server keeps to what strict functions may say.
    function |= {"parameters": msgspec.Raw(function_parameters(definition)), "strict": False}
    return _encode({"type": "function", "function": function})


def function_description(definition: ToolDefinition) -> str:
    """What the tool does; where its server says nothing of that, its title."""
    if definition.description:
        return definition.description
    members = decode_members(definition.raw)
    return _read_title(members) or _read_title(_member_object(members, "annotations"))


def function_parameters(definition: ToolDefinition) -> bytes:
    """Its schema as models' servers take it: an object at its root, with `properties`, without `$schema`."""
    return _encode(normalize_parameters(_member_object(decode_members(definition.raw), "inputSchema")))


def _member_object(members: Members, name: str) -> Members:
    return decode_members(members.get(name, b"{}"))


def _read_title(members: Members) -> str:
    return msgspec.json.decode(members.get("title", b'""'), type=str)
