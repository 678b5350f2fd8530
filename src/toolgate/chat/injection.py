"""MCP tools as functions that a model is offered."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from toolgate.chat.root_schemas import parameters_of
from toolgate.model.raw import Members, decode_members
from toolgate.model.servers import EMPTY
from toolgate.model.tools import ToolDefinition

_DOTTED: Final = "mcp.{ref.server_id}.{ref.name}"
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What a model is offered beside the caller's own functions."""

    tools: tuple[bytes, ...] = ()
    """Each an entry of `tools`, encoded."""
    names: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """What a model may call → the name in the caller's view. Both spellings are keys."""
    declared: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """What a model may call → the name it is declared by in `tools`."""
    shadowed: tuple[str, ...] = ()
    """Tools that are not offered, for the caller has a function of that very name."""


def inject(tools: Mapping[str, tuple[str, ToolDefinition]], own: Collection[str]) -> Injection:
    """Offer `tools` (name in chat → name in the view, definition) to a model.

    Where the caller has a function of the same name its own is meant, and the tool cannot be called at all.
    """
    taken = frozenset(own)
    offered = {name: tool for name, tool in tools.items() if name not in taken}
    spellings = {_DOTTED.format(ref=definition.ref): name for name, (_, definition) in offered.items()} | {
        name: name for name in offered
    }
    declared = {spelling: name for spelling, name in spellings.items() if spelling not in taken}
    return Injection(
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
    return _title(members) or _title(_members(members, "annotations"))


def function_parameters(definition: ToolDefinition) -> bytes:
    """Its schema as models' servers take it: an object at its root, with `properties`, without `$schema`."""
    return _encode(parameters_of(_members(decode_members(definition.raw), "inputSchema")))


def _members(members: Members, name: str) -> Members:
    return decode_members(members.get(name, b"{}"))


def _title(members: Members) -> str:
    return msgspec.json.decode(members.get("title", b'""'), type=str)
