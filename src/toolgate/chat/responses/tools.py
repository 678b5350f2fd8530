"""The `tools` of a Responses request: those meant for the gateway, and what is offered for each.

An `mcp` tool is the gateway's when it says only a label, and nothing of where a server would be. All others
are the caller's own, and stay as they are.

`tool_choice` of a Responses request: choices of `mcp` tools, said as the functions that stand for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from toolgate.chat.client_tools import ToolChoice, parse_choice
from toolgate.chat.parsing import parse_array, parse_members, parse_text
from toolgate.errors import InvalidChat
from toolgate.model.json_text import NULL, Members
from toolgate.model.tools import ToolDefinition

GATEWAY_LABEL: Final = "toolgate"
"""The label that means the whole scope. Any other is a server's id."""
MAX_TOOLS: Final = 1_024
MAX_NAMES: Final = 1_024
_EMPTY: Final = msgspec.Raw(b'""')
_ELSEWHERE: Final = ("server_url", "connector_id", "tunnel_id")


class _FilterWire(msgspec.Struct):
    tool_names: Annotated[list[str], msgspec.Meta(max_length=MAX_NAMES)] | None = None
    read_only: bool | None = None


class _ApprovalWire(msgspec.Struct):
    always: _FilterWire | None = None
    never: _FilterWire | None = None


class _McpToolWire(msgspec.Struct):
    server_label: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    allowed_tools: Annotated[list[str], msgspec.Meta(max_length=MAX_NAMES)] | _FilterWire | None = None
    require_approval: Literal["always", "never"] | _ApprovalWire | None = None


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Which tools are meant. What is None does not matter."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def matches(self, names: frozenset[str], *, is_read_only: bool) -> bool:
        """`names` are all that the tool goes by."""
        if self.names is not None and not self.names & names:
            return False
        return self.read_only is None or self.read_only == is_read_only


ALL_TOOLS: Final = ToolFilter()


@dataclass(frozen=True, slots=True)
class McpTool:
    """One `mcp` tool of a request that is meant for the gateway."""

    label: str
    allowed: ToolFilter = ALL_TOOLS
    needs_approval_for: ToolFilter | None = ALL_TOOLS
    """Calls of these wait for an approval. None: no call does."""
    approves_without: ToolFilter | None = None
    """Calls of these do not, unless `asked_about` speaks of them by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool as a request offers it to the model, and as the answer names it."""

    label: str
    name: str
    chat_name: str
    view_name: str
    definition: ToolDefinition
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Which tool a model means by a name, and whether a call of it goes to the client."""

    by_name: Mapping[str, OfferedTool]
    """The gateway's tools, by every name that the model may use."""
    functions: frozenset[str]
    """The client's own."""
    takes_unknown: bool = False
    """The client may have functions that the gateway does not know, so unknown names are the client's."""
    is_empty: bool = False
    """The gateway offers nothing: every call is the client's."""

    def is_own(self, name: str) -> bool:
        return name in self.functions or (self.takes_unknown and name not in self.by_name)

    def __contains__(self, name: object) -> bool:
        """Whether a call by this name goes to the client: its own, and what waits for its approval."""
        offer = self.by_name.get(str(name))
        return self.is_own(str(name)) or (offer is not None and offer.needs_approval)


@dataclass(frozen=True, slots=True)
class ResponsesTools:
    """`tools`, taken apart."""

    ours: tuple[McpTool, ...]
    others: tuple[msgspec.Raw, ...]
    """As they came, in their order."""
    functions: frozenset[str]
    """The names of the caller's own functions."""
    other_kinds: tuple[str, ...]
    """The types of all tools that are neither ours nor functions."""


def parse_responses_tools(raw: msgspec.Raw | None) -> ResponsesTools:
    """The tools of a request, or InvalidChat."""
    ours: list[McpTool] = []
    others: list[msgspec.Raw] = []
    functions: set[str] = set()
    other_kinds: list[str] = []
    for where, sent in _parse_tool_list(raw, "tools"):
        one = parse_members(sent, where)
        kind = _text(one, "type", where)
        if kind == "mcp" and not any(one.get(key, NULL) != NULL for key in _ELSEWHERE):
            ours.append(_parse_mcp(one, where))
            continue
        others.append(sent)
        if kind == "function":
            functions.add(_text(one, "name", where))
        else:
            other_kinds.append(kind)
            functions |= _parse_namespace(one, where) if kind == "namespace" else frozenset()
    labels = [one.label for one in ours]
    if len(set(labels)) < len(labels):
        raise InvalidChat("two `mcp` tools have the same `server_label`", param="tools")
    return ResponsesTools(tuple(ours), tuple(others), frozenset(functions), tuple(other_kinds))


def select_offers(
    tools: Mapping[str, tuple[str, ToolDefinition]], asked: Sequence[McpTool]
) -> tuple[OfferedTool, ...]:
    """What of `tools` (chat name → name in the caller's view, definition) the request asks for.

    A tool stands under the label of its server where there is one, else under the gateway's.
    """
    by_label = {one.label: one for one in asked}
    offers = []
    for chat_name, (view_name, definition) in tools.items():
        server_id = definition.ref.server_id
        wanted = by_label.get(server_id) or by_label.get(GATEWAY_LABEL)
        if wanted is None:
            continue
        names = frozenset({chat_name, view_name, definition.ref.name})
        is_read_only = definition.is_read_only
        if wanted.allowed.matches(names, is_read_only=is_read_only):
            offers.append(
                OfferedTool(
                    label=wanted.label,
                    name=definition.ref.name if wanted.label == server_id else view_name,
                    chat_name=chat_name,
                    view_name=view_name,
                    definition=definition,
                    needs_approval=_needs_approval(wanted, names, is_read_only=is_read_only),
                )
            )
    return tuple(offers)


def unknown_label() -> InvalidChat:
    """For a label that is nothing to this caller: whether it is anything to others is not said."""
    return InvalidChat(
        "a `server_label` names no MCP server of this scope",
        param="tools",
        hint="use `toolgate` for all of the scope, a server's id, or give the tool a `server_url` of its own",
    )


def _parse_tool_list(raw: msgspec.Raw | None, param: str) -> list[tuple[str, msgspec.Raw]]:
    """Each tool as it came, and where it stands."""
    tools = [] if raw is None or raw == NULL else parse_array(raw, param)
    if len(tools) > MAX_TOOLS:
        raise InvalidChat(f"there are more than {MAX_TOOLS} tools", param=param)
    return [(f"{param}[{at}]", one) for at, one in enumerate(tools)]


def _text(members: Members, key: str, where: str) -> str:
    return parse_text(members.get(key, _EMPTY), f"{where}.{key}")


def _parse_namespace(tool: Members, where: str) -> frozenset[str]:
    tools = _parse_tool_list(tool.get("tools"), f"{where}.tools")
    return frozenset(_text(parse_members(one, place), "name", place) for place, one in tools)


def _parse_mcp(tool: Members, param: str) -> McpTool:
    try:
        sent = msgspec.convert(
            {
                key: msgspec.json.decode(tool[key])
                for key in ("server_label", "allowed_tools", "require_approval")
                if key in tool
            },
            type=_McpToolWire,
        )
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise InvalidChat(f"an `mcp` tool is not of the right shape: {exc}", param=param) from exc
    always, never = _parse_approval(sent.require_approval)
    return McpTool(sent.server_label, _build_filter(sent.allowed_tools) or ALL_TOOLS, always, never)


def _build_filter(sent: list[str] | _FilterWire | None) -> ToolFilter | None:
    if sent is None:
        return None
    if isinstance(sent, list):
        return ToolFilter(frozenset(sent))
    return ToolFilter(None if sent.tool_names is None else frozenset(sent.tool_names), sent.read_only)


def _parse_approval(sent: str | _ApprovalWire | None) -> tuple[ToolFilter | None, ToolFilter | None]:
    """Which wait for an approval, and which of the others do not. Absent means that all wait."""
    if sent == "never":
        return None, None
    if not isinstance(sent, _ApprovalWire) or (sent.always is None and sent.never is None):
        return ALL_TOOLS, None
    return _build_filter(sent.always), _build_filter(sent.never)


def _needs_approval(tool: McpTool, names: frozenset[str], *, is_read_only: bool) -> bool:
    if tool.needs_approval_for is not None and tool.needs_approval_for.matches(
        names, is_read_only=is_read_only
    ):
        return True
    never = tool.approves_without
    return never is not None and not never.matches(names, is_read_only=is_read_only)


def resolve_choice(
    raw: msgspec.Raw | None, offers: Sequence[OfferedTool], labels: Sequence[str]
) -> ToolChoice:
    """The choice as the model is asked with it. `labels` are those resolved here; others are left alone."""
    choice = parse_choice(None if raw is None else bytes(raw))
    sent = None if raw is None else msgspec.json.decode(raw)
    if not isinstance(sent, dict):
        return choice
    if _names_our_label(sent, labels):
        tools = _find_functions(sent, offers)
        is_one = len(tools) == 1
        said = tools[0] if is_one else {"type": "allowed_tools", "mode": "required", "tools": tools}
    elif sent.get("type") == "allowed_tools" and any(
        _names_our_label(one, labels) for one in _choice_tools(sent)
    ):
        replaced = (
            _find_functions(one, offers) if _names_our_label(one, labels) else [one]
            for one in _choice_tools(sent)
        )
        said = {**sent, "tools": [one for group in replaced for one in group]}
    else:
        return choice
    return parse_choice(msgspec.json.encode(said))


def _choice_tools(sent: dict[str, Any]) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = sent.get("tools", [])  # `parse_choice` has looked at them
    return tools


def _names_our_label(tool: dict[str, Any], labels: Sequence[str]) -> bool:
    return tool.get("type") == "mcp" and tool.get("server_label") in labels


def _find_functions(tool: dict[str, Any], offers: Sequence[OfferedTool]) -> list[dict[str, str]]:
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
