"""The tools that a client declares, and its `tool_choice`.

The first call that obeys a `tool_choice` satisfies it. If it were sent again, the model could never stop
calling, so later prompts send `ToolChoice.after_first_call`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from toolgate.chat.parsing import get_member, parse_array, parse_members, quote, require_members, require_text
from toolgate.errors import InvalidChat
from toolgate.model.chat import OtherTools
from toolgate.model.json_text import UNREADABLE, Members, as_object, as_text

MAX_FUNCTION_NAME: Final = 128  # no model's server takes longer names; most take 64, and say so
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+")

ChoiceKind = Literal["absent", "none", "auto", "required", "named", "allowed"]
ChoiceMode = Literal["auto", "required"]

_WORDS: Final[Mapping[object, ChoiceKind]] = {
    None: "absent",
    "none": "none",
    "auto": "auto",
    "required": "required",
    "any": "required",
}
"""`any` is Mistral's word for `required`."""
_HINT: Final = "send `none`, `auto`, `required`, or an object that names a function or holds `allowed_tools`"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTools:
    """The tools that a request declares. The client gets their calls."""

    functions: frozenset[str] = frozenset()
    customs: frozenset[str] = frozenset()
    other_kinds: tuple[str, ...] = ()
    """The types of all tools that are not functions."""

    @property
    def own(self) -> frozenset[str]:
        """All names that the client uses. They shadow the gateway's tools."""
        return self.functions | self.customs


def parse_tools(members: Members) -> ClientTools:
    """Parse `tools` and `functions`. Raises InvalidChat; of other tools only the type is checked."""
    functions: list[str] = []
    customs: set[str] = set()
    others: list[str] = []
    for where, tool in _parse_objects(members, "tools"):
        kind = require_text(tool, "type", where)
        if kind == "function":
            functions.append(_parse_name(require_members(tool, "function", where), f"{where}.function"))
            continue
        others.append(kind)
        custom = as_object(tool.get("custom")) if kind == "custom" else None
        name = None if custom is None else as_text(custom.get("name"))
        customs |= set() if name is None else {name}  # the model's server rejects one without a name
    functions += [_parse_name(function, where) for where, function in _parse_objects(members, "functions")]
    [(name, uses)] = Counter(functions).most_common(1) or [("", 1)]
    if uses > 1:
        raise InvalidChat(f"Tool names must be unique: '{name}' is declared twice.", param="tools")
    return ClientTools(functions=frozenset(functions), customs=frozenset(customs), other_kinds=tuple(others))


def check_other_tools(other_kinds: Sequence[str], policy: OtherTools) -> None:
    """Raises InvalidChat for tools that are not functions, if the upstream's `policy` rejects them."""
    if policy == "refuse" and other_kinds:
        raise InvalidChat(
            f"Invalid value: '{quote(other_kinds[0])}'. Tools of this type are not passed to this model.",
            param="tools",
            hint="declare functions, or have an operator set `other_tools: pass` on the chat upstream",
        )


def _parse_objects(members: Members, name: str) -> Iterator[tuple[str, Members]]:
    raw = get_member(members, name)
    for at, one in enumerate([] if raw is None else parse_array(raw, name)):
        yield f"{name}[{at}]", parse_members(one, f"{name}[{at}]")


def _parse_name(function: Members, where: str) -> str:
    param = f"{where}.name"
    name = require_text(function, "name", where)
    if not _FUNCTION_NAME.fullmatch(name):
        raise InvalidChat(
            f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern "
            f"'^{_FUNCTION_NAME.pattern}$'.",
            param=param,
        )
    if len(name) > MAX_FUNCTION_NAME:
        raise InvalidChat(
            f"Invalid '{param}': string too long. Expected a string with maximum length {MAX_FUNCTION_NAME}, "
            f"but got a string with length {len(name)} instead.",
            param=param,
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    raw: bytes | None = None
    """As it was sent."""
    kind: ChoiceKind = "absent"
    names: tuple[str, ...] = ()
    """The client's names of the tools: one for `named`, several for `allowed`."""
    mode: ChoiceMode = "auto"
    """Whether the model must call something."""

    def after_first_call(self) -> bytes | None:
        """The choice to send once the model has made the call. It allows no further tools."""
        if self.raw is None or self.mode == "auto":
            return self.raw
        if self.kind != "allowed":
            return b'"auto"'
        sent = msgspec.json.decode(self.raw)
        _find_allowed(sent)["mode"] = "auto"
        return msgspec.json.encode(sent)

    def rename(self, names: Mapping[str, str]) -> "ToolChoice":
        """Replace each function's name that is a key of `names`."""
        if self.raw is None or not any(names.get(name, name) != name for name in self.names):
            return self
        sent = msgspec.json.decode(self.raw)
        for tool in _find_allowed(sent)["tools"] if self.kind == "allowed" else [sent]:
            holder = _find_named(tool)
            if isinstance(name := holder.get("name"), str):
                holder["name"] = names.get(name, name)
        renamed = tuple(names.get(name, name) for name in self.names)
        return replace(self, raw=msgspec.json.encode(sent), names=renamed)


def parse_choice(raw: bytes | None) -> ToolChoice:
    """Parse the `tool_choice` of Chat Completions or of the Responses API. Raises InvalidChat."""
    try:
        sent = None if raw is None else msgspec.json.decode(raw)
    except UNREADABLE as exc:
        raise _invalid_choice("`tool_choice` is not JSON") from exc
    if isinstance(sent, dict):
        return _parse_object(sent, raw)
    if isinstance(sent, list | float | int) or sent not in _WORDS:
        raise _invalid_choice("invalid `tool_choice`")
    kind = _WORDS[sent]
    return ToolChoice(raw=raw, kind=kind, mode="required" if kind == "required" else "auto")


def _parse_object(sent: dict[str, Any], raw: bytes | None) -> ToolChoice:
    if sent.get("type") != "allowed_tools":
        return ToolChoice(raw=raw, kind="named", names=_parse_names(sent), mode="required")
    allowed = _find_allowed(sent)
    mode, tools = allowed.get("mode", "auto"), allowed.get("tools")
    if mode not in ("auto", "required"):
        raise _invalid_choice("`tool_choice.allowed_tools.mode` is neither `auto` nor `required`")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _invalid_choice("`tool_choice.allowed_tools.tools` is not a list of tools")
    names = tuple(name for tool in tools for name in _parse_names(tool))
    return ToolChoice(raw=raw, kind="allowed", names=names, mode=mode)


def _find_allowed(sent: dict[str, Any]) -> dict[str, Any]:
    """Find the object with `mode` and `tools`: a member in Chat Completions, the choice in Responses."""
    held = sent.get("allowed_tools")
    return held if isinstance(held, dict) else sent


def _find_named(tool: dict[str, Any]) -> dict[str, Any]:
    """Find the object with `name`: a member in Chat Completions, the tool itself in Responses."""
    held = tool.get(str(tool.get("type")))
    return held if isinstance(held, dict) else tool


def _parse_names(tool: dict[str, Any]) -> tuple[str, ...]:
    """Parse the name in a choice of one tool; empty for a kind without names."""
    name = _find_named(tool).get("name")
    if isinstance(name, str) and name:
        return (name,)
    if tool.get("type") in ("function", "custom"):
        raise _invalid_choice("`tool_choice` names no function")
    return ()


def _invalid_choice(message: str) -> InvalidChat:
    return InvalidChat(message, param="tool_choice", hint=_HINT)
