"""`tool_choice`: what a caller wants a model to call.

A choice that demands a call is satisfied by the first one that obeys it. Asked with it again, a model
could never answer: so it is then asked with what `after_satisfied` says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from toolgate.errors import InvalidChat
from toolgate.model.raw import UNREADABLE

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

    def after_satisfied(self) -> bytes | None:
        """What to send once the demanded call was made. Tools that were not allowed stay so."""
        if self.raw is None or self.mode == "auto":
            return self.raw
        if self.kind != "allowed":
            return _AUTO
        sent = msgspec.json.decode(self.raw)
        _holder(sent)["mode"] = "auto"
        return msgspec.json.encode(sent)

    def renamed(self, names: Mapping[str, str]) -> "ToolChoice":
        """The same choice, with each name of a function that is in `names` said as it is there."""
        if self.raw is None or not any(names.get(name, name) != name for name in self.names):
            return self
        sent = msgspec.json.decode(self.raw)
        for tool in _holder(sent)["tools"] if self.kind == "allowed" else [sent]:
            _rename(tool, names)
        return replace(
            self, raw=msgspec.json.encode(sent), names=tuple(names.get(name, name) for name in self.names)
        )


ABSENT: Final = ToolChoice()


def parse_choice(raw: bytes | None) -> ToolChoice:
    """The choice of a request to chat completions or responses, or InvalidChat."""
    try:
        sent = None if raw is None else msgspec.json.decode(raw)
    except UNREADABLE as exc:
        raise _invalid("`tool_choice` is not JSON") from exc
    if isinstance(sent, dict):
        return _parse_object(sent, raw)
    if isinstance(sent, list | float | int) or sent not in _WORDS:
        raise _invalid("`tool_choice` is not one there is")
    kind = _WORDS[sent]
    return ToolChoice(raw=raw, kind=kind, mode="required" if kind == "required" else "auto")


def _parse_object(sent: dict[str, Any], raw: bytes | None) -> ToolChoice:
    if sent.get("type") != "allowed_tools":
        return ToolChoice(raw=raw, kind="named", names=_names_of(sent), mode="required")
    holder = _holder(sent)
    mode, tools = holder.get("mode", "auto"), holder.get("tools")
    if mode not in ("auto", "required"):
        raise _invalid("`tool_choice.allowed_tools.mode` is neither `auto` nor `required`")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _invalid("`tool_choice.allowed_tools.tools` is no list of tools")
    names = tuple(name for tool in tools for name in _names_of(tool))
    return ToolChoice(raw=raw, kind="allowed", names=names, mode=mode)


def _holder(sent: dict[str, Any]) -> dict[str, Any]:
    """Where `mode` and `tools` stand: in an object of their own (chat completions), or not (responses)."""
    held = sent.get("allowed_tools")
    return held if isinstance(held, dict) else sent


def _names_of(tool: dict[str, Any]) -> tuple[str, ...]:
    """The one name a choice of a tool holds; none where it is of a kind that has no name."""
    holder = _named(tool)
    name = holder.get("name")
    if isinstance(name, str) and name:
        return (name,)
    if tool.get("type") in ("function", "custom"):
        raise _invalid("`tool_choice` names no function")
    return ()


def _named(tool: dict[str, Any]) -> dict[str, Any]:
    held = tool.get(str(tool.get("type")))
    return held if isinstance(held, dict) else tool


def _rename(tool: dict[str, Any], names: Mapping[str, str]) -> None:
    holder = _named(tool)
    name = holder.get("name")
    if isinstance(name, str):
        holder["name"] = names.get(name, name)


def _invalid(message: str) -> InvalidChat:
    return InvalidChat(message, param="tool_choice", hint=_HINT)
