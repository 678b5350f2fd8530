"""`tools` and `tool_choice` of a Responses request: the gateway's tools, and those that it offers.

An `mcp` tool is the gateway's if it has only a label and no address of a server. All other tools are the
client's and pass unchanged.
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
"""The label of the whole scope. Any other label is a server's id."""
MAX_TOOLS: Final = 1_024  # models take 128 at most; each tool here is matched against the whole scope
MAX_NAMES: Final = 1_024  # as many as there may be tools
_EMPTY: Final = msgspec.Raw(b'""')
_ADDRESSES: Final = ("server_url", "connector_id", "tunnel_id")
_PARSED: Final = ("server_label", "allowed_tools", "require_approval")
_Names = Annotated[frozenset[str], msgspec.Meta(max_length=MAX_NAMES)]


class ToolFilter(msgspec.Struct, frozen=True):
    """Selects tools. None matches all."""

    names: _Names | None = msgspec.field(default=None, name="tool_names")
    read_only: bool | None = None

    def matches(self, names: frozenset[str], *, is_read_only: bool) -> bool:
        """Whether the filter selects the tool with these `names`."""
        if self.names is not None and not self.names & names:
            return False
        return self.read_only is None or self.read_only == is_read_only


class _ApprovalWire(msgspec.Struct):
    always: ToolFilter | None = None
    never: ToolFilter | None = None


class _McpToolWire(msgspec.Struct):
    server_label: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    allowed_tools: _Names | ToolFilter | None = None
    require_approval: Literal["always", "never"] | _ApprovalWire | None = None


ALL_TOOLS: Final = ToolFilter()


@dataclass(frozen=True, slots=True)
class McpTool:
    """One `mcp` tool of a request that is for the gateway."""

    label: str
    allowed: ToolFilter = ALL_TOOLS
    needs_approval_for: ToolFilter | None = ALL_TOOLS
    """Calls of these tools need approval. None: no calls."""
    approves_without: ToolFilter | None = None
    """Calls of these tools need none, unless `needs_approval_for` matches them."""

    def needs_approval(self, names: frozenset[str], *, is_read_only: bool) -> bool:
        always, never = self.needs_approval_for, self.approves_without
        if always is not None and always.matches(names, is_read_only=is_read_only):
            return True
        return never is not None and not never.matches(names, is_read_only=is_read_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool as a request offers it to the model, and as the response names it."""

    label: str
    name: str
    chat_name: str
    view_name: str
    definition: ToolDefinition
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Finds the tool for a name that a model calls, and whether the call goes to the client."""

    by_name: Mapping[str, OfferedTool]
    """The gateway's tools, by every name that the model may use."""
    functions: frozenset[str]
    """The client's own functions."""
    takes_unknown: bool = False
    """The client may have functions that the gateway does not know, so unknown names are the client's."""
    is_empty: bool = False
    """The gateway offers nothing: every call is the client's."""

    def is_own(self, name: str) -> bool:
        return name in self.functions or (self.takes_unknown and name not in self.by_name)

    def __contains__(self, name: object) -> bool:
        """Whether a call by this name goes to the client: its own calls, and those that need approval."""
        offer = self.by_name.get(str(name))
        return self.is_own(str(name)) or (offer is not None and offer.needs_approval)


@dataclass(frozen=True, slots=True)
class ResponsesTools:
    mcp_tools: tuple[McpTool, ...]
    """Those for the gateway."""
    others: tuple[msgspec.Raw, ...]
    """As they came, in their order."""
    functions: frozenset[str]
    """The names of the client's own functions."""
    other_kinds: tuple[str, ...]
    """The types of the client's tools that are not functions."""


def parse_responses_tools(raw: msgspec.Raw | None) -> ResponsesTools:
    """Parse the tools of a request. Raises InvalidChat."""
    mcp_tools: list[McpTool] = []
    others: list[msgspec.Raw] = []
    functions: set[str] = set()
    other_kinds: list[str] = []
    for where, sent in _parse_list(raw, "tools"):
        tool = parse_members(sent, where)
        kind = _parse_member_text(tool, "type", where)
        if kind == "mcp" and not any(tool.get(key, NULL) != NULL for key in _ADDRESSES):
            mcp_tools.append(_parse_mcp(tool, where))
            continue
        others.append(sent)
        if kind == "function":
            functions.add(_parse_member_text(tool, "name", where))
            continue
        other_kinds.append(kind)
        if kind == "namespace":
            for place, one in _parse_list(tool.get("tools"), f"{where}.tools"):
                functions.add(_parse_member_text(parse_members(one, place), "name", place))
    if len({one.label for one in mcp_tools}) < len(mcp_tools):
        raise InvalidChat("two `mcp` tools have the same `server_label`", param="tools")
    return ResponsesTools(tuple(mcp_tools), tuple(others), frozenset(functions), tuple(other_kinds))


def select_offers(
    tools: Mapping[str, tuple[str, ToolDefinition]], mcp_tools: Sequence[McpTool]
) -> tuple[OfferedTool, ...]:
    """Select the `tools` (name in chat → name in the caller's view, definition) that `mcp_tools` allow. A
    tool gets the label of its server if the request has that label, else the gateway's."""
    by_label = {one.label: one for one in mcp_tools}
    offers = []
    for chat_name, (view_name, definition) in tools.items():
        server_id = definition.ref.server_id
        mcp_tool = by_label.get(server_id) or by_label.get(GATEWAY_LABEL)
        if mcp_tool is None:
            continue
        names = frozenset({chat_name, view_name, definition.ref.name})
        is_read_only = definition.is_read_only
        if mcp_tool.allowed.matches(names, is_read_only=is_read_only):
            offers.append(
                OfferedTool(
                    label=mcp_tool.label,
                    name=definition.ref.name if mcp_tool.label == server_id else view_name,
                    chat_name=chat_name,
                    view_name=view_name,
                    definition=definition,
                    needs_approval=mcp_tool.needs_approval(names, is_read_only=is_read_only),
                )
            )
    return tuple(offers)


def unknown_label() -> InvalidChat:
    """The error for a label without a server in this scope: the same if another scope has the server."""
    hint = "use `toolgate` for the whole scope, or a server's id, or add a `server_url` to the tool"
    return InvalidChat("a `server_label` names no MCP server of this scope", param="tools", hint=hint)


def _parse_list(raw: msgspec.Raw | None, param: str) -> list[tuple[str, msgspec.Raw]]:
    tools = [] if raw is None or raw == NULL else parse_array(raw, param)
    if len(tools) > MAX_TOOLS:
        raise InvalidChat(f"`{param}` has more than {MAX_TOOLS} entries", param=param)
    return [(f"{param}[{at}]", one) for at, one in enumerate(tools)]


def _parse_member_text(members: Members, key: str, where: str) -> str:
    return parse_text(members.get(key, _EMPTY), f"{where}.{key}")


def _parse_mcp(tool: Members, param: str) -> McpTool:
    try:
        decoded = {key: msgspec.json.decode(tool[key]) for key in _PARSED if key in tool}
        sent = msgspec.convert(decoded, type=_McpToolWire)
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise InvalidChat(f"invalid `mcp` tool: {exc}", param=param) from exc
    approval, allowed = sent.require_approval, sent.allowed_tools
    if not isinstance(allowed, ToolFilter):
        allowed = ToolFilter(allowed)
    if isinstance(approval, _ApprovalWire) and (approval.always or approval.never):
        return McpTool(sent.server_label, allowed, approval.always, approval.never)
    # Without `require_approval`, all calls need approval.
    return McpTool(sent.server_label, allowed, None if approval == "never" else ALL_TOOLS)


# `tool_choice`


def resolve_choice(
    raw: msgspec.Raw | None, offers: Sequence[OfferedTool], labels: Sequence[str]
) -> ToolChoice:
    """Replace choices of `mcp` tools with these `labels` by their functions. Other choices stay."""
    choice = parse_choice(None if raw is None else bytes(raw))
    sent = None if raw is None else msgspec.json.decode(raw)
    if not isinstance(sent, dict):
        return choice
    # `parse_choice` has checked the shape.
    allowed: list[dict[str, Any]] = sent.get("tools", []) if sent.get("type") == "allowed_tools" else []
    if _is_gateway_tool(sent, labels):
        tools = _find_functions(sent, offers)
        is_one = len(tools) == 1
        resolved = tools[0] if is_one else {"type": "allowed_tools", "mode": "required", "tools": tools}
    elif any(_is_gateway_tool(one, labels) for one in allowed):
        groups = (_find_functions(one, offers) if _is_gateway_tool(one, labels) else [one] for one in allowed)
        resolved = {**sent, "tools": [one for group in groups for one in group]}
    else:
        return choice
    return parse_choice(msgspec.json.encode(resolved))


def _is_gateway_tool(tool: dict[str, Any], labels: Sequence[str]) -> bool:
    return tool.get("type") == "mcp" and tool.get("server_label") in labels


def _find_functions(tool: dict[str, Any], offers: Sequence[OfferedTool]) -> list[dict[str, str]]:
    """Find the functions for one or all tools of a label. Raises InvalidChat without a match."""
    label, name = tool["server_label"], tool.get("name")
    found = [
        one
        for one in offers
        if one.label == label
        and (name is None or name in (one.name, one.chat_name, one.view_name, one.definition.ref.name))
    ]
    if not found:
        message = "`tool_choice` names an `mcp` tool that the request does not offer"
        raise InvalidChat(message, param="tool_choice")
    return [{"type": "function", "name": one.chat_name} for one in found]
