"""Schemas whose root models' servers do not take.

OpenAI wants `type: "object"` at the root of a function's parameters, and no `anyOf`, `oneOf`, `allOf`,
`enum`, `const` or `not` beside it; one such schema has the whole request refused. The arguments of MCP tools
are objects anyway. So what the root's alternatives say of single arguments is lifted into the root, where a
model looks for it; all of it, where they differ. What that leaves unsaid (which arguments exclude each other)
stands word for word in the description, and the server still checks every call. Names and `$defs` stay as
they are, so a call needs no translation back.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolgate.model.raw import Members, encode_raw

Schema = dict[str, Any]
_REFUSED: Final = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const", "not")
_SAID: Final = (*_REFUSED, "unevaluatedProperties")
"""What is taken from such a root. The last one would count what now stands elsewhere."""
_POINTERS: Final = (b"#/allOf/", b"#/anyOf/", b"#/oneOf/", b"#/not/")
_MAX_DEPTH: Final = 64
"""A schema has 32 levels at most; references lead on."""
_NOTE: Final = "The arguments as a whole must also fit this JSON Schema: "
_OBJECT: Final = msgspec.Raw(b'"object"')
_NONE: Final = msgspec.Raw(b"{}")


def parameters_of(schema: Members) -> Members:
    """`schema` with a root that every model's server takes."""
    root = {name: raw for name, raw in schema.items() if name != "$schema"}
    if any(name in root for name in _REFUSED):
        root = _lifted(root)
    return {**root, "type": _OBJECT, "properties": root.get("properties", _NONE)}


def _lifted(root: Members) -> Members:
    whole = {name: msgspec.json.decode(raw) for name, raw in root.items()}
    if any(pointer in bytes(raw) for raw in root.values() for pointer in _POINTERS):
        # Some reference leads into what has to go. Rather nothing than one that leads nowhere.
        return _described(whole, whole)
    shape = _Lifting(whole).shape_of(whole)
    kept = {name: raw for name, raw in root.items() if name not in _SAID}
    properties = {name: _either(found) for name, found in shape.properties.items()}
    return kept | {
        "properties": encode_raw(properties),
        "required": encode_raw(sorted(shape.required)),
        **_described(whole, {name: whole[name] for name in _SAID if name in whole}),
    }


def _described(whole: Schema, unsaid: Schema) -> Members:
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


class _Lifting:
    """Looks into the alternatives of one root."""

    def __init__(self, whole: Schema) -> None:
        self._whole = whole
        self._seen: set[str] = set()

    def shape_of(self, schema: object, *, depth: int = 0) -> _Shape:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return _Shape()
        shape = _own_shape(schema)
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


def _own_shape(schema: Schema) -> _Shape:
    properties, required = schema.get("properties"), schema.get("required")
    said = properties.items() if isinstance(properties, dict) else ()
    names = required if isinstance(required, list) else ()
    return _Shape(
        properties={name: {msgspec.json.encode(found): found} for name, found in said},
        required={name for name in names if isinstance(name, str)},
    )


def _either(found: dict[bytes, Any]) -> Any:
    first, *others = found.values()
    return {"anyOf": [first, *others]} if others else first
