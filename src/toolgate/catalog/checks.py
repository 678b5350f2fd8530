"""The checks that definitions of every kind share: bounds, JSON Schema, types of optional members.

A schema is data here: it is never fetched, dereferenced, compiled or evaluated. Strict clients reject a whole
list for one member of the wrong type. So optional members of the wrong type are dropped, and everything else
passes as the server wrote it.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import msgspec

from toolgate.model.json_text import decode_members

MAX_SCHEMA_DEPTH: Final = 32  # half the limit of a body: an envelope surrounds it

Schema = dict[str, Any]
Path = tuple[str, ...]
ParamHeaders = tuple[tuple[Path, str], ...]

_DIALECT: Final = re.compile(r"https?://json-schema\.org/[A-Za-z0-9./-]*#?")
# A `urn:` is a name without an address; every other scheme, and `//host`, invites a reader to fetch it.
_ADDRESS: Final = re.compile(r"(?!urn:)[A-Za-z][A-Za-z0-9+.-]*:|//")

_HEADER_KEY: Final = "x-mcp-header"
_HEADER_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
# `number` is missing on purpose: the specification forbids it, because floats have several spellings.
_HEADER_TYPES: Final = ("string", "integer", "boolean")

# JSON Schema 2020-12 keywords that contain schemas. `properties` is not among them: it alone leads to an
# argument. `default`, `examples`, `const` and `enum` contain data, in which an annotation means nothing.
_HOLDS_SCHEMA: Final = (
    *("items", "contains", "unevaluatedItems", "additionalProperties", "unevaluatedProperties"),
    *("propertyNames", "not", "if", "then", "else", "contentSchema"),
)
_HOLDS_SCHEMAS: Final = (
    *("allOf", "anyOf", "oneOf", "prefixItems"),
    *("patternProperties", "dependentSchemas", "$defs", "definitions"),
)
_BOOLEANS: Final[Mapping[bool, Schema]] = {True: {}, False: {"not": {}}}
_ROOT_MEMBERS: Final = frozenset({"$schema", "type", "properties", "required"})


class InvalidDefinition(ValueError):
    """A definition that cannot be offered. The message is the reason, for people."""


class _ObjectRoot(msgspec.Struct):
    """The root that session-based clients require."""

    type: Literal["object"]
    properties: dict[str, dict[str, Any] | bool] = {}
    required: list[str] = []
    schema: str = msgspec.field(default="", name="$schema")


def is_deeper_than(value: object, limit: int) -> bool:
    """Whether objects and arrays of `value` are nested deeper than `limit`."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        if not level:
            return False
        level = [child for node in level for child in _containers(node)]
    return bool(level)


def check_schema(schema: Schema) -> None:
    """Raises InvalidDefinition if `schema` is too deep, or would make a careless reader fetch something."""
    if is_deeper_than(schema, MAX_SCHEMA_DEPTH):
        raise InvalidDefinition(f"a schema is nested deeper than {MAX_SCHEMA_DEPTH}")
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            _check_addresses(node)
        pending += _containers(node)


def parse_input_schema(value: object) -> Schema:
    """`value` as a schema whose root is an object. Raises InvalidDefinition.

    Arguments are always an object, so the schema, its root `type`, or one of several types may be missing. An
    empty list is accepted as an empty object, because some languages write it so.
    """
    if value is None or value == []:
        return {"type": "object"}
    if not isinstance(value, dict):
        raise InvalidDefinition("`inputSchema` must be an object")
    schema = _repair_root(value)
    try:
        msgspec.convert(schema, _ObjectRoot)
    except msgspec.ValidationError as exc:
        raise InvalidDefinition(f"`inputSchema` must be the schema of an object: {exc}") from exc
    return schema


def to_stateful_schema(schema: Schema) -> Schema | None:
    """`schema` for session-based clients: itself if they accept it, None if no form works for them. Strict
    ones reject a boolean as the schema of a property, and with it the whole list."""
    try:
        root = msgspec.convert(schema, _ObjectRoot)
    except msgspec.ValidationError:
        return None
    if not any(isinstance(sub, bool) for sub in root.properties.values()):
        return schema
    forms = {name: _BOOLEANS[sub] if isinstance(sub, bool) else sub for name, sub in root.properties.items()}
    return schema | {"properties": forms}


def parse_param_headers(schema: Schema) -> ParamHeaders:
    """The arguments that stateless HTTP mirrors as `Mcp-Param-<token>`. Raises InvalidDefinition. An
    annotation is valid only on a property that is reached from the root by `properties` alone."""
    found: dict[str, tuple[Path, str]] = {}
    for path, node in _walk_schemas(schema):
        if _HEADER_KEY not in node:
            continue
        if not path:
            raise InvalidDefinition(f"`{_HEADER_KEY}` must be on an argument")
        where, token = ".".join(path), node[_HEADER_KEY]
        if not isinstance(token, str) or not _HEADER_TOKEN.fullmatch(token):
            raise InvalidDefinition(f"`{_HEADER_KEY}` of `{where}` is not a valid header name")
        if node.get("type") not in _HEADER_TYPES:
            raise InvalidDefinition(f"`{_HEADER_KEY}` of `{where}` must be on a string, integer or boolean")
        if token.lower() in found:
            raise InvalidDefinition(f"`{_HEADER_KEY}` of `{where}` is a duplicate")
        found[token.lower()] = (path, token)
    return tuple(found.values())


def _containers(node: Any) -> list[Any]:
    children = node.values() if isinstance(node, dict) else node
    return [child for child in children if isinstance(child, dict | list)]


def _check_addresses(node: Schema) -> None:
    for key in ("$ref", "$dynamicRef", "$recursiveRef"):
        target = node.get(key)
        if isinstance(target, str) and not target.startswith("#"):
            raise InvalidDefinition(f"a `{key}` points outside its schema")
    dialect = node.get("$schema")
    if isinstance(dialect, str) and not _DIALECT.fullmatch(dialect):
        raise InvalidDefinition("a `$schema` names an unknown dialect")
    identity = node.get("$id")
    if isinstance(identity, str) and _ADDRESS.match(identity):
        raise InvalidDefinition("a `$id` is an address")


def _repair_root(value: Schema) -> Schema:
    schema = {key: member for key, member in value.items() if key not in _ROOT_MEMBERS or member is not None}
    if schema.get("properties") == []:
        del schema["properties"]
    kind = schema.get("type", ["object"])
    if isinstance(kind, list) and "object" in kind:
        schema["type"] = "object"
    return value if schema == value else schema


def _walk_schemas(root: Schema) -> Iterator[tuple[Path | None, Schema]]:
    """Every schema in `root` with the path of its argument; None outside the `properties` chain."""
    pending: deque[tuple[Path | None, Any]] = deque([((), root)])
    while pending:
        path, node = pending.popleft()
        if isinstance(node, dict):
            yield path, node
            pending.extend(_subschemas(path, node))


def _subschemas(path: Path | None, node: Schema) -> Iterator[tuple[Path | None, Any]]:
    for keyword, value in node.items():
        if keyword == "properties" and isinstance(value, dict):
            for name, schema in value.items():
                yield (None if path is None else (*path, name)), schema
        elif keyword in _HOLDS_SCHEMA:
            yield None, value
        elif keyword in _HOLDS_SCHEMAS and isinstance(value, dict | list):
            schemas = value.values() if isinstance(value, dict) else value
            yield from ((None, schema) for schema in schemas)


MAX_DEFINITIONS: Final = 2_000  # tools, prompts, resources or templates of one server
MAX_DESCRIPTION_BYTES: Final = 16 * 1024  # about 4,000 tokens: more is a manual
MAX_DEFINITION_BYTES: Final = 1024 * 1024
"""Both schemas and the description at their limits, and the same again for `_meta` and icons."""
MAX_DEFINITION_DEPTH: Final = 64  # the depth of JSON that the gateway accepts from clients

_MAX_SHOWN_NAME: Final = 80  # a line of a terminal

Members = dict[str, Any]


class Icon(msgspec.Struct, rename="camel"):
    src: str
    mime_type: str = ""
    sizes: list[str] = []
    theme: Literal["dark", "light"] = "light"


@dataclass(frozen=True, slots=True)
class QuarantinedDefinition:
    """A definition that is not offered, and the reason. `name` is empty if it has none."""

    name: str
    reason: str
    native_name: ClassVar[str] = ""


def parse_members(raw: bytes) -> Members:
    """The members of one definition. Raises InvalidDefinition."""
    if len(raw) > MAX_DEFINITION_BYTES:
        raise InvalidDefinition(f"the definition is larger than {MAX_DEFINITION_BYTES} bytes")
    try:
        members = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidDefinition(f"the definition is not valid JSON: {exc}") from exc
    except RecursionError as exc:
        raise InvalidDefinition(f"the definition is nested deeper than {MAX_DEFINITION_DEPTH}") from exc
    if not isinstance(members, dict):
        raise InvalidDefinition("the definition must be an object")
    return members


def keep_valid(members: Members, types: Mapping[str, Any]) -> Members:
    """`members` without members of the wrong type. Members that `types` does not name stay."""
    return {key: value for key, value in members.items() if key not in types or _has_type(value, types[key])}


def check_description(members: Members) -> None:
    """Drop a null description. Raises InvalidDefinition if it is too long or not text."""
    if members.get("description", "") is None:
        del members["description"]
    description = members.get("description", "")
    if not isinstance(description, str):
        raise InvalidDefinition("its description must be text")
    if len(description.encode()) > MAX_DESCRIPTION_BYTES:
        raise InvalidDefinition(f"its description is longer than {MAX_DESCRIPTION_BYTES} bytes")


def check_depth(members: Members) -> None:
    if is_deeper_than(members, MAX_DEFINITION_DEPTH):
        raise InvalidDefinition(f"the definition is nested deeper than {MAX_DEFINITION_DEPTH}")


def reencode(raw: bytes, *, sent: Members, members: Members) -> bytes:
    """`raw` itself if nothing was repaired, else encoded again with every unchanged member as it was."""
    if sent.keys() == members.keys() and all(members[key] is sent[key] for key in members):
        return raw
    raws = decode_members(raw)
    kept = {key: raws[key] if value is sent.get(key) else value for key, value in members.items()}
    return msgspec.json.encode(kept)


def describe_name(name: str) -> str:
    """An invalid name, short, with invisible characters escaped."""
    text = ascii(name)[1:-1]
    return text if len(text) <= _MAX_SHOWN_NAME else f"{text[:_MAX_SHOWN_NAME]}…"


def _has_type(value: object, expected: Any) -> bool:
    try:
        msgspec.convert(value, expected)
    except msgspec.ValidationError:
        return False
    return True
