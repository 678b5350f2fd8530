"""Which tools of a caller's scope a Responses request offers, under which labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from toolgate.catalog.search.find_tools import CALL_TOOL
from toolgate.chat.responses.tools import EVERY, GATEWAY_LABEL, McpTool, Offer, offer_tools, unknown_label
from toolgate.chat.responses_request import ResponsesRequest
from toolgate.errors import PolicyDenied, ToolgateError, TooManyTools
from toolgate.gateway.chat.scope import ChatScope, ToolTable, tool_table
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.view import View
from toolgate.telemetry.spans import trace_id_of

DOOR: Final = "responses"
"""What the audit calls this door."""
UNLABELLED: Final = McpTool(GATEWAY_LABEL, asked_about=None)
"""What a task offers where a request has no `mcp` tool of its own: as in chat, nobody is asked."""


class Offering(NamedTuple):
    """What is offered, and to whom."""

    caller: Caller
    view: View
    offers: tuple[Offer, ...]


async def offer(gateway: Gateway, scope: ChatScope, request: ResponsesRequest) -> Offering:
    """The tools of a request. Raises what every door refuses a scope with, and InvalidChat for a label."""
    asked = request.tools.ours or (UNLABELLED,)
    view = await _view(gateway, scope.caller, request)
    if any(one.label not in (GATEWAY_LABEL, *view.scope.servers) for one in asked):
        _record_refused(gateway, scope.caller, PolicyDenied.code)
        raise unknown_label()
    is_narrow = len(asked) > 1 or asked[0].allowed != EVERY
    if view.found is not None and is_narrow:
        return await _select(gateway, scope, view, asked)
    gateway.listed(view, DOOR)
    table = tool_table(view, gateway.snapshot, scope.upstream.name_profile)
    if view.found is None:
        return Offering(scope.caller, view, offer_tools(table, asked))
    return Offering(scope.caller, view, _finding(table, asked[0]))


def _finding(table: ToolTable, asked: McpTool) -> tuple[Offer, ...]:
    """The tools by which others are found and called."""
    found = offer_tools(table, [replace(asked, label=GATEWAY_LABEL)])
    # Which tool a `call_tool` is about, only its arguments say: it waits where any tool does.
    waiting = {CALL_TOOL} if asked.asked_about is not None else ()
    return tuple(
        replace(one, label=asked.label, needs_approval=one.needs_approval or one.view_name in waiting)
        for one in found
    )


async def _view(gateway: Gateway, caller: Caller, request: ResponsesRequest) -> View:
    try:
        return await gateway.settled_view(caller)
    except PolicyDenied as exc:
        if not request.narrows_by_labels:
            raise
        _record_refused(gateway, caller, exc)
        raise unknown_label() from exc


def _record_refused(gateway: Gateway, caller: Caller, why: ToolgateError | str) -> None:
    trace = Trace(DOOR, trace_id=trace_id_of(gateway.tracing))
    gateway.record_refused(caller.principal, why, trace=trace, task_id=caller.effective_task_id)


async def _select(gateway: Gateway, scope: ChatScope, view: View, asked: Sequence[McpTool]) -> Offering:
    """Of tools that are too many to list, those that the request names: they may be few enough."""
    every = {name: (name, route.tool) for name, route in view.tools.items() if route.tool is not None}
    wanted = {one.definition.ref for one in offer_tools(every, asked)}
    patterns = tuple(sorted(f"{ref.server_id}/{ref.name}" for ref in wanted))
    caller = replace(scope.caller, request=replace(scope.caller.request, tools=patterns))
    selected = await gateway.settled_view(caller)
    if selected.found is not None:
        raise TooManyTools(
            "the tools that the request allows are too many to list",
            hint="allow fewer, or have one `mcp` tool without `allowed_tools`: it finds them",
        )
    gateway.listed(selected, DOOR)
    table = tool_table(selected, gateway.snapshot, scope.upstream.name_profile)
    return Offering(caller, selected, offer_tools(table, asked))
