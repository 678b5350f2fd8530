"""The arguments of a tool call from words such as `limit=5`, typed by the tool's input schema. Pure.

It reads as much of JSON Schema as servers use to say what a member is: `type`, `enum`, `const`, `anyOf`,
`oneOf`, `allOf` and references within the document. What it cannot read may be anything; the server decides.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final

from toolgate.cli.command import UsageError
from toolgate.cli.render.layout import escape_line

Schema = Mapping[str, Any]
ANY_TYPE: Final = ("null", "boolean", "integer", "number", "array", "object", "string")
"""In the order in which a text is tried: a number before text, which everything is."""

_MAX_REFERENCES: Final = 32  # as deep as a schema may be; a reference to itself ends there
_MAX_BRANCHES: Final = 64  # more than any schema has; one that refers to itself twice has 2 to the 32
_MAX_SUMMARY: Final = 120  # characters of a description in an error: a line and a half
_INTEGER: Final = re.compile(r"-?[0-9]{1,400}")
"""400 digits: the gateway refuses longer ones."""
_NO_VALUE: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParameter:
    """One argument that a tool takes."""

    name: str
    types: tuple[str, ...]
    """JSON types, in the order of `ANY_TYPE`."""
    is_required: bool = False
    description: str = ""
    choices: tuple[Any, ...] = ()
    """The only values that fit. Empty: all of the types."""
    items: Schema | bool = True
    """The schema of the elements, if it may be an array."""
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """What a tool takes. `is_open`: also arguments that it does not name."""

    parameters: Mapping[str, ToolParameter]
    is_open: bool
    schema: Schema


def parse_signature(schema: Schema) -> ToolSignature:
    """The parameters in an input schema, required ones first."""
    properties, required = schema.get("properties"), schema.get("required")
    named = properties if isinstance(properties, Mapping) else {}
    needed = set(map(str, required)) if isinstance(required, list) else set()
    found = [
        _parse_parameter(name, member, schema, is_required=name in needed) for name, member in named.items()
    ]
    # A required argument that is not described can still be given.
    found += [ToolParameter(name=name, types=ANY_TYPE, is_required=True) for name in needed - named.keys()]
    found.sort(key=lambda one: not one.is_required)
    others = schema.get("additionalProperties", not named)
    is_open = others is not False or bool(schema.get("patternProperties"))
    return ToolSignature(parameters={one.name: one for one in found}, is_open=is_open, schema=schema)


def _parse_parameter(name: str, member: Any, root: Schema, *, is_required: bool = False) -> ToolParameter:
    branches = list(islice(_expand(member, root), _MAX_BRANCHES))
    types = {one for branch in branches for one in _list_types(branch)}
    choices = [one for branch in branches for one in _list_choices(branch)]
    items = next((one["items"] for one in branches if isinstance(one.get("items"), Mapping | bool)), True)
    own = member if isinstance(member, Mapping) else {}
    described = next((one["description"] for one in (own, *branches) if one.get("description")), "")
    # Only if each branch lists its values: another branch may take any.
    is_closed = all(_list_choices(branch) or branch.get("type") == "null" for branch in branches)
    return ToolParameter(
        name=name,
        types=tuple(one for one in ANY_TYPE if one in types) or ANY_TYPE,
        is_required=is_required,
        description=" ".join(str(described).split()),
        choices=tuple(choices) if is_closed else (),
        items=items,
        default=own.get("default"),
    )


def _expand(schema: Any, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """The alternatives of a schema, each without references, `anyOf` and the like."""
    if not isinstance(schema, Mapping) or depth > _MAX_REFERENCES:
        yield {}
        return
    if isinstance(reference := schema.get("$ref"), str):
        yield from _expand(_find_reference(reference, root), root, depth + 1)
        return
    for word in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(word)
        if isinstance(branches, list) and branches and "type" not in schema:
            # All of `allOf` hold: the first says what it is.
            for branch in branches[:1] if word == "allOf" else branches:
                yield from _expand(branch, root, depth + 1)
            return
    yield schema


def _find_reference(reference: str, root: Schema) -> Schema | bool:
    """The part of the document that `#/$defs/Name` names; if it is missing, a schema that fits everything."""
    found: Any = root
    head, *parts = reference.split("/")
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if head == "#" and isinstance(found, Mapping) else True


def _list_types(schema: Schema) -> Iterable[str]:
    stated = schema.get("type")
    if isinstance(stated, str | list):
        return {one for one in ([stated] if isinstance(stated, str) else stated) if one in ANY_TYPE}
    choices = _list_choices(schema)
    return {_type_of(one) for one in choices} if choices else ANY_TYPE


def _list_choices(schema: Schema) -> Sequence[Any]:
    if "const" in schema:
        return [schema["const"]]
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else []


def _type_of(value: Any) -> str:
    names = {
        type(None): "null",
        bool: "boolean",
        int: "integer",
        float: "number",
        list: "array",
        dict: "object",
    }
    return names.get(type(value), "string")


def build_arguments(
    tool: str, signature: ToolSignature, words: Mapping[str, Sequence[str]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call: those `given` as JSON, and on top of them the `words` of each name, typed.

    Raises UsageError for a name that the tool does not know, a value that does not fit, and for arguments
    that are missing.
    """
    arguments = dict(given)
    for name, texts in words.items():
        parameter = signature.parameters.get(name)
        if parameter is None and not signature.is_open:
            raise _refuse_unknown(tool, name, signature)
        parameter = parameter or ToolParameter(name=name, types=ANY_TYPE)
        arguments[name] = _parse_texts(parameter, texts, signature.schema)
    missing = [one for one in signature.parameters.values() if one.is_required and one.name not in arguments]
    if missing:
        listed = "; ".join(_describe(one, signature.schema) for one in missing)
        hint = f"add them as `NAME=VALUE`; `toolgate call {tool} --describe` shows all arguments"
        raise UsageError(f"`{tool}` needs {listed}", hint=hint)
    return arguments


def _describe(parameter: ToolParameter, root: Schema) -> str:
    text = parameter.description
    summary = f", {text if len(text) <= _MAX_SUMMARY else f'{text[:_MAX_SUMMARY]}…'}" if text else ""
    return f"`{parameter.name}` ({format_type(parameter, root)}{summary})"


def format_type(parameter: ToolParameter, root: Schema) -> str:
    """The types, or the values that fit, for people: `array of string or null`."""
    if parameter.choices:
        return "one of " + ", ".join(map(_format_choice, parameter.choices))
    if parameter.types == ANY_TYPE:
        return "any"
    names = sorted(parameter.types, key=lambda one: one == "null")
    element = _parse_parameter(parameter.name, parameter.items, root)
    if "array" in names and element.types != ANY_TYPE:
        names[names.index("array")] = f"array of {' or '.join(element.types)}"
    return " or ".join(names)


def _format_choice(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _refuse_unknown(tool: str, name: str, signature: ToolSignature) -> UsageError:
    near = get_close_matches(name, signature.parameters, n=1)
    known = ", ".join(f"`{one}`" for one in signature.parameters)
    meant = f"did you mean `{near[0]}`?" if near else f"it takes {known or 'no arguments'}."
    hint = f"{meant} --args-json sends arguments that the schema does not name"
    return UsageError(f"`{tool}` has no argument `{name}`", hint=hint)


def _parse_texts(parameter: ToolParameter, texts: Sequence[str], root: Schema) -> Any:
    """One value of one text; or an array, of several texts or of one that is no JSON array itself."""
    is_array = "array" in parameter.types
    if len(texts) > 1 and not is_array:
        hint = f"give it once: it is {format_type(parameter, root)}"
        raise UsageError(f"`{parameter.name}` is given {len(texts)} times", hint=hint)
    if len(texts) == 1:
        value = _parse_text(parameter, texts[0])
        if value is not _NO_VALUE:
            return value
        if not is_array or texts[0].lstrip().startswith("["):
            raise _refuse_value(parameter, texts[0], root)
    element = _parse_parameter(parameter.name, parameter.items, root)
    values = [_parse_text(element, text) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if value is _NO_VALUE:
            raise _refuse_value(element, text, root)
    return values


def _parse_text(parameter: ToolParameter, text: str) -> Any:
    """The value that a text is by the types of a parameter, or `_NO_VALUE`."""
    if parameter.choices:
        fits = (one for one in parameter.choices if text in {_format_choice(one), json.dumps(one)})
        found = next(fits, _NO_VALUE)
        return None if found is _NO_VALUE and text == "null" and "null" in parameter.types else found
    values = (_parse_as(one, text) for one in parameter.types)
    return next((one for one in values if one is not _NO_VALUE), _NO_VALUE)


def _parse_as(kind: str, text: str) -> Any:
    """The value that a text is as one JSON type, or `_NO_VALUE`."""
    bare = text.strip()
    if kind == "string":
        return text
    if kind in {"integer", "number"} and _INTEGER.fullmatch(bare):
        return int(bare)
    try:
        value = json.loads(bare, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return _NO_VALUE
    # Any other integer is too long, and a number that is too large is read as infinity.
    is_usable = kind != "integer" and value not in (math.inf, -math.inf)
    return value if is_usable and _type_of(value) == kind else _NO_VALUE


def _reject_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not JSON")


def _refuse_value(parameter: ToolParameter, text: str, root: Schema) -> UsageError:
    shown = escape_line(text if len(text) <= _MAX_SUMMARY else f"{text[:_MAX_SUMMARY]}…")
    kind = format_type(parameter, root)
    hint = f"`{parameter.name}` must be {kind if parameter.choices else f'of type {kind}'}"
    if {"array", "object"} & set(parameter.types):
        hint += "; write arrays and objects as JSON, or read them from a file: `NAME=@FILE`"
    return UsageError(f"invalid value of `{parameter.name}`: `{shown}`", hint=hint)
