"""Spans of requests to servers, passed on to the server in `_meta`. Used only if tracing is on."""

from collections.abc import Mapping
from typing import Final

import msgspec

from toolgate.gateway.cluster.servers import ServerCaller
from toolgate.model.json_text import Members
from toolgate.model.tools import ToolDefinition
from toolgate.telemetry.spans import TRACEPARENT, TRACESTATE, AttributeValue, Span, Tracer, make_span_name
from toolgate.upstream.connection.contract import ClientChannel, Params
from toolgate.upstream.connection.messages import is_tool_error, parse_error, parse_meta
from toolgate.upstream.pool.pool import NO_ORIGIN, CallOrigin, ServerResponse

TOOL_ERROR: Final = "tool_error"
"""The error type of a tool that reports a failure (semantic conventions of MCP)."""
SERVER_ERROR: Final = "server_error"

_encode = msgspec.json.encode


class TracedServers:
    """Servers with a span for each request."""

    def __init__(self, servers: ServerCaller, tracing: Tracer) -> None:
        self._servers = servers
        self._tracing = tracing

    async def call(
        self,
        server_id: str,
        method: str,
        params: Params,
        /,
        *,
        tool: ToolDefinition | None = None,
        client: ClientChannel | None = None,
        origin: CallOrigin = NO_ORIGIN,
    ) -> ServerResponse:
        """See `Servers.call`."""
        tracing = self._tracing
        target = None if tool is None else tool.ref.name
        notes = {"toolgate.server_id": server_id, **span_attributes(method, target)}
        with tracing.span(make_span_name(method, target), "client", notes) as span:
            sent = with_trace(params, tracing.carried())
            answer = await self._servers.call(
                server_id, method, sent, tool=tool, client=client, origin=origin
            )
            note_response(span, answer, is_tool=tool is not None)
        return answer


def span_attributes(method: str, tool: str | None) -> dict[str, AttributeValue]:
    """The attributes of an MCP request by the semantic conventions."""
    notes: dict[str, AttributeValue] = {"mcp.method.name": method}
    if tool is not None:
        notes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    return notes


def note_response(span: Span, answer: ServerResponse, *, is_tool: bool) -> None:
    """Note whether a server's response is a failure, and nothing of its content."""
    members = answer.reply.members
    if members is None:
        span.note("rpc.response.status_code", str(parse_error(answer.reply.error).code))
        span.fail(SERVER_ERROR)
    elif is_tool and is_tool_error(members):
        span.fail(TOOL_ERROR)


def with_trace(params: Params, carried: Mapping[str, str]) -> Params:
    """`params` with the trace added to their `_meta`. Raises InvalidParams."""
    meta = params.get("_meta")
    members: Members = {} if meta is None else parse_meta(meta)
    for name in (TRACEPARENT, TRACESTATE):
        members.pop(name, None)
    members |= {name: msgspec.Raw(_encode(value)) for name, value in carried.items()}
    return {**params, "_meta": msgspec.Raw(_encode(members))}
