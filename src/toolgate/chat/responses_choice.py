"""`tool_choice` of a Responses request: choices of `mcp` tools, said as the functions that stand for them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from toolgate.chat.client_tools import ToolChoice, parse_choice
from toolgate.chat.responses.tools import Offer
from toolgate.errors import InvalidChat


def resolve_choice(raw: msgspec.Raw | None, offers: Sequence[Offer], labels: Sequence[str]) -> ToolChoice:
    """The choice as the model is asked with it. `labels` are those resolved here; others are left alone."""
    choice = parse_choice(None if raw is None else bytes(raw))
    sent = None if raw is None else msgspec.json.decode(raw)
    if not isinstance(sent, dict):
        return choice
    if _is_ours(sent, labels):
        tools = _functions(sent, offers)
        is_one = len(tools) == 1
        said = tools[0] if is_one else {"type": "allowed_tools", "mode": "required", "tools": tools}
    elif sent.get("type") == "allowed_tools" and any(_is_ours(one, labels) for one in _tools(sent)):
        replaced = (_functions(one, offers) if _is_ours(one, labels) else [one] for one in _tools(sent))
        said = {**sent, "tools": [one for group in replaced for one in group]}
    else:
        return choice
    return parse_choice(msgspec.json.encode(said))


def _tools(sent: dict[str, Any]) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = sent.get("tools", [])  # `parse_choice` has looked at them
    return tools


def _is_ours(tool: dict[str, Any], labels: Sequence[str]) -> bool:
    return tool.get("type") == "mcp" and tool.get("server_label") in labels


def _functions(tool: dict[str, Any], offers: Sequence[Offer]) -> list[dict[str, str]]:
    """The functions that stand for a tool of a label, or for all of them. Raises InvalidChat for none."""
    label, name = tool["server_label"], tool.get("name")
    found = [
        one
        for one in offers
        if one.label == label
        and (name is None or name in (one.name, one.chat_name, one.view_name, one.definition.ref.name))
    ]
    if not found:
        raise InvalidChat("`tool_choice` names an `mcp` tool that is not there", param="tool_choice")
    return [{"type": "function", "name": one.chat_name} for one in found]
