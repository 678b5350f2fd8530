"""Which tools of a caller's scope a Responses request offers, under which labels.

What clients of the Responses API keep for the gateway: sealed, good for one principal and for a while.

An approval is used once at a node. Nodes do not know what others have seen: a principal that sends the same
approval to another makes the same call again, of its own and within its scope of then.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from toolgate.catalog.search.find_tools import CALL_TOOL
from toolgate.chat.responses.requests import CarriedCall, ResponsesRequest, decode_carried, encode_carried
from toolgate.chat.responses.tools import (
    ALL_TOOLS,
    GATEWAY_LABEL,
    McpTool,
    OfferedTool,
    select_offers,
    unknown_label,
)
from toolgate.errors import PolicyDenied, ToolgateError, TooManyTools
from toolgate.gateway.auth.signing import SealedIds, Signer
from toolgate.gateway.chat.scope import ChatScope, ToolTable, tool_table
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.telemetry.spans import read_trace_id

RESPONSES_DOOR: Final = "responses"
"""What the audit calls this door."""
UNLABELLED: Final = McpTool(GATEWAY_LABEL, needs_approval_for=None)
"""What a task offers where a request has no `mcp` tool of its own: as in chat, nobody is asked."""


class OfferedScope(NamedTuple):
    """What is offered, and to whom."""

    caller: Caller
    view: View
    offers: tuple[OfferedTool, ...]


async def offer_scope(gateway: Gateway, scope: ChatScope, request: ResponsesRequest) -> OfferedScope:
    """The tools of a request. Raises what every door refuses a scope with, and InvalidChat for a label."""
    asked = request.tools.ours or (UNLABELLED,)
    view = await _resolve_view(gateway, scope.caller, request)
    if any(one.label not in (GATEWAY_LABEL, *view.scope.servers) for one in asked):
        _record_refused(gateway, scope.caller, PolicyDenied.code)
        raise unknown_label()
    is_narrow = len(asked) > 1 or asked[0].allowed != ALL_TOOLS
    if view.found is not None and is_narrow:
        return await _select_named_tools(gateway, scope, view, asked)
    gateway.listed(view, RESPONSES_DOOR)
    table = tool_table(view, gateway.snapshot, scope.upstream.name_profile)
    if view.found is None:
        return OfferedScope(scope.caller, view, select_offers(table, asked))
    return OfferedScope(scope.caller, view, _offer_search_tools(table, asked[0]))


def _offer_search_tools(table: ToolTable, asked: McpTool) -> tuple[OfferedTool, ...]:
    """The tools by which others are found and called."""
    found = select_offers(table, [replace(asked, label=GATEWAY_LABEL)])
    # Which tool a `call_tool` is about, only its arguments say: it waits where any tool does.
    waiting = {CALL_TOOL} if asked.needs_approval_for is not None else ()
    return tuple(
        replace(one, label=asked.label, needs_approval=one.needs_approval or one.view_name in waiting)
        for one in found
    )


async def _resolve_view(gateway: Gateway, caller: Caller, request: ResponsesRequest) -> View:
    try:
        return await gateway.wait_for_view(caller)
    except PolicyDenied as exc:
        if not request.narrows_by_labels:
            raise
        _record_refused(gateway, caller, exc)
        raise unknown_label() from exc


def _record_refused(gateway: Gateway, caller: Caller, why: ToolgateError | str) -> None:
    trace = Trace(RESPONSES_DOOR, trace_id=read_trace_id(gateway.tracing))
    gateway.record_refused(caller.principal, why, trace=trace, task_id=caller.effective_task_id)


async def _select_named_tools(
    gateway: Gateway, scope: ChatScope, view: View, asked: Sequence[McpTool]
) -> OfferedScope:
    """Of tools that are too many to list, those that the request names: they may be few enough."""
    every = {name: (name, route.tool) for name, route in view.tools.items() if route.tool is not None}
    wanted = {one.definition.ref for one in select_offers(every, asked)}
    patterns = tuple(sorted(f"{ref.server_id}/{ref.name}" for ref in wanted))
    caller = replace(scope.caller, request=replace(scope.caller.request, tools=patterns))
    selected = await gateway.wait_for_view(caller)
    if selected.found is not None:
        raise TooManyTools(
            "the tools that the request allows are too many to list",
            hint="allow fewer, or have one `mcp` tool without `allowed_tools`: it finds them",
        )
    gateway.listed(selected, RESPONSES_DOOR)
    table = tool_table(selected, gateway.snapshot, scope.upstream.name_profile)
    return OfferedScope(caller, selected, select_offers(table, asked))


MAX_KEPT: Final = 10_000
"""Of what a node remembers for a while; the oldest goes first."""
_PURPOSE: Final = b"responses-call"


class SealedCalls:
    """Seals calls and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._ids = SealedIds(signer, wall_s, purpose=_PURPOSE)

    def seal(self, prefix: str, carried: CarriedCall, *, principal_id: str) -> str:
        """An id that begins with `prefix` and holds `carried`, for this principal."""
        return self._ids.seal(prefix, encode_carried(carried), principal_id=principal_id)

    def open(self, prefix: str, sent: str, *, principal_id: str) -> CarriedCall | None:
        """What an id holds for this principal; None where it is nothing, or nothing any more."""
        data = self._ids.open(prefix, sent, principal_id=principal_id)
        return None if data is None else decode_carried(data)


class RecentIds:
    """What this node has seen lately, by principal: a bounded map that forgets the oldest."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._kept: OrderedDict[bytes, str] = OrderedDict()

    def put(self, principal_id: str, key: str, value: str = "") -> None:
        self._kept[_digest(principal_id, key)] = value
        if len(self._kept) > self._max_kept:
            self._kept.popitem(last=False)

    def get(self, principal_id: str, key: str) -> str | None:
        return self._kept.get(_digest(principal_id, key))


def _digest(principal_id: str, key: str) -> bytes:
    return hashlib.sha256(msgspec.json.encode((principal_id, key))).digest()
