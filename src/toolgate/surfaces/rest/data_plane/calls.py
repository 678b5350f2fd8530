"""One call of a tool over REST: for consoles and scripts that speak no MCP.

It is the call that the MCP door would make for the same selection. Arguments and result pass as they are.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from pydantic import Field

from toolgate.catalog.encoding import InputNeeded, adapt_result
from toolgate.catalog.search.find_tools import CALL_TOOL, MAX_NAME_CHARS
from toolgate.errors import (
    ApprovalDenied,
    ApprovalRequired,
    BudgetExceeded,
    CallTimedOut,
    InputNotGiven,
    InvalidArguments,
    LoginRequired,
    NodeBusy,
    NotFound,
    NotReady,
    OutputTooLarge,
    PolicyDenied,
    PolicyStale,
    ServerBusy,
    ServerRefused,
    ServerUnavailable,
    ToolgateError,
    UnknownTool,
)
from toolgate.gateway.call.tracing import note_answer
from toolgate.gateway.chat.tool_loop import server_error
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.view import View
from toolgate.govern.process import Serving
from toolgate.model.raw import decode_members, encode_raw
from toolgate.registry.records.server_bodies import Body
from toolgate.surfaces.http.parsing import check_members_once, parse_json
from toolgate.surfaces.rest.framework.request import parse_model
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, Intake
from toolgate.surfaces.rest.selection import SELECTION, parse_caller
from toolgate.surfaces.rest.shapes import Shown
from toolgate.telemetry.spans import trace_id_of
from toolgate.upstream.connection.messages import is_tool_error
from toolgate.upstream.pool.pool import Answer as Answered

DOOR: Final = "rest"
"""What the audit calls this door."""
_NO_ARGUMENTS: Final = msgspec.Raw(b"{}")


class CallSent(Body):
    """One call of a tool."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    """As `GET /api/v1/mcp/tools` lists it for the same query."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What fits the tool's `inputSchema`."""


class CallAnswer(Shown, frozen=True, kw_only=True):
    """What the tool said."""

    result: dict[str, Any]
    """As MCP has it: a `CallToolResult`."""
    is_error: bool
    """Whether the tool says that it failed."""
    duration_ms: int
    request_id: str
    """By which the audit knows the call."""


class Wanted(NamedTuple):
    """A call as it was sent."""

    name: str
    arguments: msgspec.Raw


async def call_tool(serving: Serving, call: Call[Wanted]) -> Answer:
    """Call one tool, as the MCP door would for the same selection.

    Policy, pins and budgets are those of every door, and whoever goes away cancels the call. Nobody can be
    asked anything meanwhile. What answers to no name of the selection is unknown, whatever the reason.
    """
    clock = asyncio.get_running_loop().time
    view = await _view(serving.gateway, call)
    began_s = clock()
    answered = await _call(serving.gateway, view, call)
    took_ms = round((clock() - began_s) * 1e3)
    return Answer(_show(answered, took_ms, call.request_id))


async def _view(gateway: Gateway, call: Call[Wanted]) -> View:
    caller = parse_caller(call.caller, call.query)
    try:
        return await gateway.settled_view(caller, for_call=True)
    except PolicyDenied as exc:
        task_id = caller.effective_task_id
        gateway.record_refused(call.caller, exc, trace=_trace(gateway, call), task_id=task_id)
        raise


def _trace(gateway: Gateway, call: Call[Wanted]) -> Trace:
    return Trace(DOOR, request_id=call.request_id, trace_id=trace_id_of(gateway.tracing))


async def _call(gateway: Gateway, view: View, call: Call[Wanted]) -> Answered:
    name, arguments = call.body
    if view.found is not None and name in view.found:
        # Listed to whoever asks here, and called by what finds it.
        arguments = encode_raw({"name": name, "arguments": arguments})
        name = CALL_TOOL
    tracing = gateway.tracing
    answered = await gateway.call(view, name, {"arguments": arguments}, trace=_trace(gateway, call))
    if tracing is not None:
        note_answer(tracing.current, answered, is_tool=True)
    return answered


def _show(answered: Answered, took_ms: int, request_id: str) -> Mapping[str, Any]:
    """`CallAnswer`, with the result as its server wrote it."""
    members = answered.reply.members
    if members is None:
        raise _refused(answered.reply.error)
    try:
        result = adapt_result(members, upstream=answered.era, client="legacy")
    except InputNeeded as exc:
        raise InputNotGiven("the tool wants to ask its user something, and nobody here can answer") from exc
    return {
        "result": msgspec.Raw(result),
        "is_error": is_tool_error(members),
        "duration_ms": took_ms,
        "request_id": request_id,
    }


def _refused(raw: bytes | None) -> ToolgateError:
    """What a server says of a call that it did not make."""
    error = server_error(raw)
    return (InvalidArguments if error.code == InvalidArguments.code else ServerRefused)(error.message)


def _parse_wanted(body: bytes) -> Wanted:
    """The body of a call. It is passed on, so nothing in it may be read in two ways."""
    whole = parse_json(body)
    check_members_once(body, whole)
    sent = parse_model(CallSent, whole)
    return Wanted(sent.name, decode_members(body).get("arguments", _NO_ARGUMENTS))


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="POST",
        path="/api/v1/mcp/call",
        role="agent",
        summary="Call a tool",
        handler=call_tool,
        is_traced=True,
        query=SELECTION,
        body=Intake(CallSent, _parse_wanted, is_raw=True),
        answer=CallAnswer,
        errors=(
            NotFound,
            PolicyDenied,
            UnknownTool,
            InvalidArguments,
            InputNotGiven,
            ApprovalRequired,
            ApprovalDenied,
            LoginRequired,
            NodeBusy,
            ServerBusy,
            BudgetExceeded,
            ServerRefused,
            ServerUnavailable,
            CallTimedOut,
            OutputTooLarge,
            NotReady,
            PolicyStale,
        ),
    ),
)
