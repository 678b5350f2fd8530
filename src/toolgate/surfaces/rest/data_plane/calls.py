"""Tool calls over REST, for consoles and scripts without an MCP client.

The call is the one that the MCP endpoint makes for the same selection. Arguments and result pass unchanged.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from pydantic import Field

from toolgate import errors
from toolgate.catalog.encoding import InputRequired, adapt_result
from toolgate.catalog.find_tools import CALL_TOOL, MAX_NAME_CHARS
from toolgate.gateway.call.pipeline import note_response
from toolgate.gateway.chat.session import parse_server_error
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.token_counts import estimate_result
from toolgate.govern.process import GatewayProcess
from toolgate.model.json_text import decode_members, encode_raw
from toolgate.registry.records.body import StrictBody
from toolgate.surfaces.http.parsing import parse_json, reject_duplicate_members
from toolgate.surfaces.rest.data_plane.scopes import SELECTION, parse_caller
from toolgate.surfaces.rest.framework.request import BodySpec, RestCall, parse_model
from toolgate.surfaces.rest.framework.response import ResponseShape
from toolgate.surfaces.rest.framework.routing import post
from toolgate.telemetry.spans import read_trace_id
from toolgate.upstream.connection.messages import is_tool_error
from toolgate.upstream.pool.pool import ServerResponse

AUDIT_SURFACE: Final = "rest"
"""The `door` of these calls in audit events."""
_NO_ARGUMENTS: Final = msgspec.Raw(b"{}")


class CallSent(StrictBody):
    """A call of one tool."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    """The tool's name, as `GET /api/v1/mcp/tools` lists it for the same query."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments, valid against the tool's `inputSchema`."""


class CallResponse(ResponseShape, frozen=True, kw_only=True):
    """The result of a tool call."""

    result: dict[str, Any]
    """The `CallToolResult`, as MCP defines it."""
    is_error: bool
    """Whether the tool reports a failure: `isError` of the result."""
    duration_ms: int
    tokens: int
    """Estimated tokens of the result."""
    request_id: str
    """The id of this request, as in the audit log."""


def _parse_call_body(body: bytes) -> tuple[str, msgspec.Raw]:
    """The name and arguments of a call. Both are passed on, so ambiguous JSON is rejected."""
    whole = parse_json(body)
    reject_duplicate_members(body, whole)
    sent = parse_model(CallSent, whole)
    return sent.name, decode_members(body).get("arguments", _NO_ARGUMENTS)


@post(
    "/api/v1/mcp/call",
    "agent",
    "Call a tool",
    CallResponse,
    body=BodySpec(CallSent, _parse_call_body, is_raw=True),
    query=SELECTION,
    errors=(
        errors.NotFound,
        errors.PolicyDenied,
        errors.UnknownTool,
        errors.InvalidArguments,
        errors.InputNotGiven,
        errors.ApprovalRequired,
        errors.ApprovalDenied,
        errors.LoginRequired,
        errors.NodeBusy,
        errors.ServerBusy,
        errors.BudgetExceeded,
        errors.ServerRefused,
        errors.ServerUnavailable,
        errors.CallTimedOut,
        errors.OutputTooLarge,
        errors.NotReady,
        errors.PolicyStale,
    ),
    is_traced=True,
)
async def call_tool(serving: GatewayProcess, call: RestCall[tuple[str, msgspec.Raw]]) -> Mapping[str, Any]:
    """Call one tool, as the MCP endpoint does for the same selection.

    Policy, pins and quotas apply as on every endpoint. If the caller disconnects, the call is cancelled. The
    server cannot elicit input during the call. A name outside the selection fails with `unknown_tool`.
    """
    gateway, clock = serving.gateway, asyncio.get_running_loop().time
    caller = parse_caller(call.caller, call.query)
    trace = Trace(AUDIT_SURFACE, request_id=call.request_id, trace_id=read_trace_id(gateway.tracer))
    try:
        view = await gateway.wait_for_view(caller, for_call=True)
    except errors.PolicyDenied as exc:
        gateway.record_refused(call.caller, exc, trace=trace, task_id=caller.effective_task_id)
        raise
    began_s = clock()
    name, arguments = call.body
    if view.found is not None and name in view.found:
        # Listed here, and called through the tool that finds it.
        arguments = encode_raw({"name": name, "arguments": arguments})
        name = CALL_TOOL
    response = await gateway.call(view, name, {"arguments": arguments}, trace=trace)
    if gateway.tracer is not None:
        note_response(gateway.tracer.current, response, is_tool=True)
    took_ms = round((clock() - began_s) * 1e3)
    return {**_show_result(response), "duration_ms": took_ms, "request_id": call.request_id}


def _show_result(response: ServerResponse) -> Mapping[str, Any]:
    """The result as its server wrote it. Raises the error of a call that the server rejected."""
    members = response.rpc.members
    if members is None:
        error = parse_server_error(response.rpc.error)
        is_invalid = error.code == errors.InvalidArguments.code
        raise (errors.InvalidArguments if is_invalid else errors.ServerRefused)(error.message)
    try:
        result = adapt_result(members, upstream=response.revision, client="legacy")
    except InputRequired as exc:
        problem = "the tool requests input from its user, which REST does not support"
        raise errors.InputNotGiven(problem) from exc
    return {
        "result": msgspec.Raw(result),
        "is_error": is_tool_error(members),
        "tokens": estimate_result(response.rpc),
    }
