"""A request to `/v1/responses`, taken apart as far as the gateway acts on it. All else stays as it came."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.chat.parsing import given, missing, parse_given_flag, parse_text
from toolgate.chat.requests import Asked, parse_own_fields
from toolgate.chat.responses.requests import parse_input
from toolgate.chat.responses.tools import GATEWAY_LABEL, DeclaredTools, parse_tools, unknown_label
from toolgate.errors import InvalidChat, InvalidRecord
from toolgate.model.chat import BudgetsNarrowed
from toolgate.model.names import parse_server_id
from toolgate.model.raw import UNREADABLE, Members

_TAKEN: Final = ("input", "tools", "tool_choice", "model", "stream")
_SERVERS: Final = "mcp.server_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesRequest:
    """What a request asks for."""

    members: Members
    """All that is neither ours nor one of the fields below, as it came."""
    sent: Members
    """As `members`, with `input`, `tools` and the others as they came: what is forwarded untouched."""
    input: tuple[msgspec.Raw, ...]
    tools: DeclaredTools
    choice: msgspec.Raw | None
    model: str
    is_stream: bool
    is_background: bool
    in_conversation: bool
    """The model's server keeps the conversation: it is told only what is new."""
    has_prompt: bool
    """It is asked with a prompt of its own, which may declare functions that are not known here."""
    params: Mapping[str, Any]
    """Session parameters, `mcp.…`."""
    narrows_by_labels: bool
    """Labels that are servers say which are asked for, and nothing else does."""
    asked: Asked


def parse_responses_request(body: Members) -> ResponsesRequest:
    """The request in `body`, or InvalidChat."""
    sent, params, asked = parse_own_fields(body)
    model = given(sent, "model")
    if model is None:
        raise missing("model")
    tools = parse_tools(sent.get("tools"))
    labels = _labels(tools, params)
    narrows = bool(labels) and GATEWAY_LABEL not in labels and _SERVERS not in params
    asks = {"mcp.enabled": True, **({_SERVERS: labels} if narrows else {})} if labels else {}
    most = _max_tool_calls(given(sent, "max_tool_calls"))
    return ResponsesRequest(
        members={name: raw for name, raw in sent.items() if name not in _TAKEN},
        sent=sent,
        input=parse_input(sent.get("input")),
        tools=tools,
        choice=given(sent, "tool_choice"),
        model=parse_text(model, "model"),
        is_stream=parse_given_flag(sent, "stream"),
        is_background=parse_given_flag(sent, "background"),
        in_conversation=given(sent, "conversation") is not None,
        has_prompt=given(sent, "prompt") is not None,
        params={**params, **asks},
        narrows_by_labels=narrows,
        asked=asked if most is None else replace(asked, budgets=_narrowed(asked, most)),
    )


def _labels(tools: DeclaredTools, params: Mapping[str, Any]) -> list[str]:
    """The labels to be resolved here. A tool that says one asks for tools to be offered."""
    labels = [one.label for one in tools.ours]
    if labels and params.get("mcp.enabled") is False:
        raise InvalidChat("`mcp.enabled` is false, and an `mcp` tool is to be resolved here", param="tools")
    for label in labels:
        try:
            parse_server_id(label)
        except InvalidRecord as exc:
            raise unknown_label() from exc
    return labels


def _max_tool_calls(raw: msgspec.Raw | None) -> int | None:
    if raw is None:
        return None
    try:
        most = msgspec.json.decode(raw, type=int)
    except UNREADABLE as exc:
        raise InvalidChat("`max_tool_calls` must be an integer", param="max_tool_calls") from exc
    if most < 1:
        raise InvalidChat("`max_tool_calls` must be at least 1", param="max_tool_calls")
    return most


def _narrowed(asked: Asked, most: int) -> BudgetsNarrowed:
    already = asked.budgets.max_total_tool_calls
    return replace(asked.budgets, max_total_tool_calls=most if already is None else min(most, already))
