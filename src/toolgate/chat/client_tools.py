"""The tools that a request declares: functions, the new way and the old, and others.

`tool_choice`: what a caller wants a model to call.

A choice that demands a call is satisfied by the first one that obeys it. Asked with it again, a model
could never answer: so it is then asked with what `after_satisfied` says.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from toolgate.chat.parsing import get_member, missing_param, parse_array, parse_members, quote, require_text
from toolgate.errors import InvalidChat
from toolgate.model.chat import OtherTools
from toolgate.model.json_text import UNREADABLE, Members, as_object, as_text

MAX_FUNCTION_NAME: Final = 128
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+")
"""What any model's server takes; most take less, and say so themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTools:
    """The tools of a request. Calls of those that have a name here are its caller's to make."""

    functions: frozenset[str] = frozenset()
    customs: frozenset[str] = frozenset()
    other_kinds: tuple[str, ...] = ()
    """The types of all tools that are no functions."""

    @property
    def own(self) -> frozenset[str]:
        """All names that are the caller's: no tool of ours goes by one of them."""
        return self.functions | self.customs


def parse_tools(members: Members) -> ClientTools:
    """What a request declares, or InvalidChat. Of tools that are no functions, all but their type passes."""
    functions: list[str] = []
    customs: set[str] = set()
    other_kinds: list[str] = []
    for where, tool in _parse_objects(members, "tools"):
        kind = require_text(tool, "type", where)
        if kind == "function":
            functions.append(_parse_function_name(_function_of(tool, where), f"{where}.function"))
        else:
            other_kinds.append(kind)
            customs |= _parse_custom_name(tool)
    functions += [
        _parse_function_name(function, where) for where, function in _parse_objects(members, "functions")
    ]
    [(name, uses)] = Counter(functions).most_common(1) or [("", 1)]
    if uses > 1:
        raise InvalidChat(f"Tool names must be unique: '{name}' is declared twice.", param="tools")
    return ClientTools(
        functions=frozenset(functions), customs=frozenset(customs), other_kinds=tuple(other_kinds)
    )


def check_other_tools(other_kinds: Sequence[str], policy: OtherTools) -> None:
    """InvalidChat for tools that are no functions, where the model is not to have such."""
    if policy == "refuse" and other_kinds:
        raise InvalidChat(
            f"Invalid value: '{quote(other_kinds[0])}'. Tools of this type are not passed to this model.",
            param="tools",
            hint="declare functions, or ask an operator for `other_tools: pass` on the chat upstream",
        )


def _parse_custom_name(tool: Members) -> set[str]:
    """The name of a custom tool; none for any other, nor for one that the model's server will refuse."""
    held = as_object(tool.get("custom")) if as_text(tool["type"]) == "custom" else None
    name = None if held is None else as_text(held.get("name"))
    return set() if name is None else {name}


def _function_of(tool: Members, where: str) -> Members:
    if "function" not in tool:
        raise missing_param(f"{where}.function")
    return parse_members(tool["function"], f"{where}.function")


def _parse_objects(members: Members, name: str) -> Iterator[tuple[str, Members]]:
    raw = get_member(members, name)
    if raw is None:
        return
    for at, one in enumerate(parse_array(raw, name)):
        yield f"{name}[{at}]", parse_members(one, f"{name}[{at}]")


def _parse_function_name(function: Members, where: str) -> str:
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


ChoiceKind = Literal["absent", "none", "auto", "required", "named", "allowed"]
ChoiceMode = Literal["auto", "required"]

_WORDS: Final[Mapping[object, ChoiceKind]] = {
    None: "absent",
    "none": "none",
    "auto": "auto",
    "required": "required",
    "any": "required",
}
"""`any` is Mistral's word for it."""
_HINT: Final = "send `none`, `auto`, `required`, or an object that names a function or holds `allowed_tools`"
_AUTO: Final = b'"auto"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """What a caller chose."""

    raw: bytes | None = None
    """As it was sent."""
    kind: ChoiceKind = "absent"
    names: tuple[str, ...] = ()
    """The tool that is `named`, or those that are `allowed`, as the caller calls them."""
    mode: ChoiceMode = "auto"
    """Whether something must be called at all."""

    def after_first_call(self) -> bytes | None:
        """What to send once the demanded call was made. Tools that were not allowed stay so."""
        if self.raw is None or self.mode == "auto":
            return self.raw
        if self.kind != "allowed":
            return _AUTO
        sent = msgspec.json.decode(self.raw)
        _allowed_tools(sent)["mode"] = "auto"
        return msgspec.json.encode(sent)

    def renamed(self, names: Mapping[str, str]) -> "ToolChoice":
        """The same choice, with each name of a function that is in `names` said as it is there."""
        if self.raw is None or not any(names.get(name, name) != name for name in self.names):
            return self
        sent = msgspec.json.decode(self.raw)
        for tool in _allowed_tools(sent)["tools"] if self.kind == "allowed" else [sent]:
            _rename(tool, names)
        return replace(
            self, raw=msgspec.json.encode(sent), names=tuple(names.get(name, name) for name in self.names)
        )


NO_CHOICE: Final = ToolChoice()


def parse_choice(raw: bytes | None) -> ToolChoice:
    """The choice of a request to chat completions or responses, or InvalidChat."""
    try:
        sent = None if raw is None else msgspec.json.decode(raw)
    except UNREADABLE as exc:
        raise _invalid_choice("`tool_choice` is not JSON") from exc
    if isinstance(sent, dict):
        return _parse_object(sent, raw)
    if isinstance(sent, list | float | int) or sent not in _WORDS:
        raise _invalid_choice("`tool_choice` is not one there is")
    kind = _WORDS[sent]
    return ToolChoice(raw=raw, kind=kind, mode="required" if kind == "required" else "auto")


def _parse_object(sent: dict[str, Any], raw: bytes | None) -> ToolChoice:
    if sent.get("type") != "allowed_tools":
        return ToolChoice(raw=raw, kind="named", names=_parse_names(sent), mode="required")
    holder = _allowed_tools(sent)
    mode, tools = holder.get("mode", "auto"), holder.get("tools")
    if mode not in ("auto", "required"):
        raise _invalid_choice("`tool_choice.allowed_tools.mode` is neither `auto` nor `required`")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _invalid_choice("`tool_choice.allowed_tools.tools` is no list of tools")
    names = tuple(name for tool in tools for name in _parse_names(tool))
    return ToolChoice(raw=raw, kind="allowed", names=names, mode=mode)


def _allowed_tools(sent: dict[str, Any]) -> dict[str, Any]:
    """Where `mode` and `tools` stand: in an object of their own (chat completions), or not (responses)."""
    held = sent.get("allowed_tools")
    return held if isinstance(held, dict) else sent


def _parse_names(tool: dict[str, Any]) -> tuple[str, ...]:
    """The one name a choice of a tool holds; none where it is of a kind that has no name."""
    holder = _named_tool(tool)
    name = holder.get("name")
    if isinstance(name, str) and name:
        return (name,)
    if tool.get("type") in ("function", "custom"):
        raise _invalid_choice("`tool_choice` names no function")
    return ()


def _named_tool(tool: dict[str, Any]) -> dict[str, Any]:
    held = tool.get(str(tool.get("type")))
    return held if isinstance(held, dict) else tool


def _rename(tool: dict[str, Any], names: Mapping[str, str]) -> None:
    holder = _named_tool(tool)
    name = holder.get("name")
    if isinstance(name, str):
        holder["name"] = names.get(name, name)


def _invalid_choice(message: str) -> InvalidChat:
    return InvalidChat(message, param="tool_choice", hint=_HINT)
