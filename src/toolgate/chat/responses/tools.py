"""The `tools` of a Responses request: those meant for the gateway, and what is offered for each.

An `mcp` tool is the gateway's when it says only a label, and nothing of where a server would be. All others
are the caller's own, and stay as they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec

from toolgate.chat.parsing import parse_array, parse_members, parse_text
from toolgate.errors import InvalidChat
from toolgate.model.raw import NULL, Members
from toolgate.model.tools import ToolDefinition

GATEWAY_LABEL: Final = "toolgate"
"""The label that means the whole scope. Any other is a server's id."""
MAX_TOOLS: Final = 1_024
MAX_NAMES: Final = 1_024
_EMPTY: Final = msgspec.Raw(b'""')
_ELSEWHERE: Final = ("server_url", "connector_id", "tunnel_id")


class _Filter(msgspec.Struct):
    tool_names: Annotated[list[str], msgspec.Meta(max_length=MAX_NAMES)] | None = None
    read_only: bool | None = None


class _Approval(msgspec.Struct):
    always: _Filter | None = None
    never: _Filter | None = None


class _Sent(msgspec.Struct):
    server_label: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    allowed_tools: Annotated[list[str], msgspec.Meta(max_length=MAX_NAMES)] | _Filter | None = None
    require_approval: Literal["always", "never"] | _Approval | None = None


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


EVERY: Final = ToolFilter()


@dataclass(frozen=True, slots=True)
class McpTool:
    """One `mcp` tool of a request that is meant for the gateway."""

    label: str
    allowed: ToolFilter = EVERY
    asked_about: ToolFilter | None = EVERY
    """Calls of these wait for an approval. None: no call does."""
    never_asked_about: ToolFilter | None = None
    """Calls of these do not, unless `asked_about` speaks of them by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A tool as a request offers it to the model, and as the answer names it."""

    label: str
    name: str
    chat_name: str
    view_name: str
    definition: ToolDefinition
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """`tools`, taken apart."""

    ours: tuple[McpTool, ...]
    others: tuple[msgspec.Raw, ...]
    """As they came, in their order."""
    functions: frozenset[str]
    """The names of the caller's own functions."""
    other_kinds: tuple[str, ...]
    """The types of all tools that are neither ours nor functions."""


def parse_tools(raw: msgspec.Raw | None) -> DeclaredTools:
    """The tools of a request, or InvalidChat."""
    ours: list[McpTool] = []
    others: list[msgspec.Raw] = []
    functions: set[str] = set()
    other_kinds: list[str] = []
    for where, sent in _tools(raw, "tools"):
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
            functions |= _namespaced(one, where) if kind == "namespace" else frozenset()
    labels = [one.label for one in ours]
    if len(set(labels)) < len(labels):
        raise InvalidChat("two `mcp` tools have the same `server_label`", param="tools")
    return DeclaredTools(tuple(ours), tuple(others), frozenset(functions), tuple(other_kinds))


def offer_tools(
    tools: Mapping[str, tuple[str, ToolDefinition]], asked: Sequence[McpTool]
) -> tuple[Offer, ...]:
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
                Offer(
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


def _tools(raw: msgspec.Raw | None, param: str) -> list[tuple[str, msgspec.Raw]]:
    """Each tool as it came, and where it stands."""
    tools = [] if raw is None or raw == NULL else parse_array(raw, param)
    if len(tools) > MAX_TOOLS:
        raise InvalidChat(f"there are more than {MAX_TOOLS} tools", param=param)
    return [(f"{param}[{at}]", one) for at, one in enumerate(tools)]


def _text(members: Members, key: str, where: str) -> str:
    return parse_text(members.get(key, _EMPTY), f"{where}.{key}")


def _namespaced(tool: Members, where: str) -> frozenset[str]:
    tools = _tools(tool.get("tools"), f"{where}.tools")
    return frozenset(_text(parse_members(one, place), "name", place) for place, one in tools)


def _parse_mcp(tool: Members, param: str) -> McpTool:
    try:
        sent = msgspec.convert(
            {
                key: msgspec.json.decode(tool[key])
                for key in ("server_label", "allowed_tools", "require_approval")
                if key in tool
            },
            type=_Sent,
        )
    except (msgspec.DecodeError, msgspec.ValidationError) as exc:
        raise InvalidChat(f"an `mcp` tool is not of the right shape: {exc}", param=param) from exc
    always, never = _approval(sent.require_approval)
    return McpTool(sent.server_label, _filter(sent.allowed_tools) or EVERY, always, never)


def _filter(sent: list[str] | _Filter | None) -> ToolFilter | None:
    if sent is None:
        return None
    if isinstance(sent, list):
        return ToolFilter(frozenset(sent))
    return ToolFilter(None if sent.tool_names is None else frozenset(sent.tool_names), sent.read_only)


def _approval(sent: str | _Approval | None) -> tuple[ToolFilter | None, ToolFilter | None]:
    """Which wait for an approval, and which of the others do not. Absent means that all wait."""
    if sent == "never":
        return None, None
    if not isinstance(sent, _Approval) or (sent.always is None and sent.never is None):
        return EVERY, None
    return _filter(sent.always), _filter(sent.never)


def _needs_approval(tool: McpTool, names: frozenset[str], *, is_read_only: bool) -> bool:
    if tool.asked_about is not None and tool.asked_about.matches(names, is_read_only=is_read_only):
        return True
    never = tool.never_asked_about
    return never is not None and not never.matches(names, is_read_only=is_read_only)
