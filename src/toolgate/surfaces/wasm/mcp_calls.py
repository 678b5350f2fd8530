"""`mcp_*`: hostcalls of a guest for the servers and tools of its task.

A descriptor refers to one server, and grants nothing: policy decides on each call, as at that server's MCP
endpoint. Tools keep their names there; if there are too many to list, the three find tools are listed. A
guest never learns where a server runs.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from toolgate import errors
from toolgate.catalog.encoding import InputRequired, adapt_result, encode_definition
from toolgate.chat import tool_calls
from toolgate.gateway.chat.session import parse_server_error
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.routes import FIND_ROUTES, Route
from toolgate.gateway.scope.view import View
from toolgate.model.invocations import InvocationCall
from toolgate.model.json_text import Members, decode_members
from toolgate.model.names import MAX_SERVER_ID, MAX_TOOL_NAME
from toolgate.policy.layers import SessionRequest
from toolgate.policy.resolve import bind_task
from toolgate.surfaces.wasm.context import SURFACE, TaskContext, TaskGuest, decode_text
from toolgate.surfaces.wasm.descriptors import NO_POLICY
from toolgate.upstream.connection.messages import is_tool_error
from toolgate.upstream.pool.pool import ServerResponse
from toolgate.wasm.abi import EPOLLIN, Errno, FdEntry, HostcallFault

MAX_NAME_BYTES: Final = 4 * max(MAX_SERVER_ID, MAX_TOOL_NAME)  # in UTF-8, so that no valid name is cut

_encode = msgspec.json.encode


class KeptResult(NamedTuple):
    """A result that did not fit into the guest's buffer, and its call."""

    tool: str
    arguments: bytes
    result: bytes


class McpSession(FdEntry):
    """One server that the guest has opened."""

    kind = "McpSession"

    def __init__(self, server_id: str) -> None:
        super().__init__()
        self.server_id = server_id
        self.kept: KeptResult | None = None
        self.policy = NO_POLICY
        self.calls = 0

    def status(self) -> Mapping[str, object]:
        if self.policy == NO_POLICY:
            return {}
        return {"policy": self.policy.describe(), "calls": self.calls}

    def narrow(self, data: bytes) -> None:
        with self.record_failures():
            self.policy = self.policy.narrow(data, server_id=self.server_id)

    def poll_mask(self) -> int:
        return 0 if self.kept is None else EPOLLIN

    def close(self) -> None:
        self.kept = None

    def check_calls(self) -> None:
        if self.policy.max_calls is not UNSET and self.calls >= self.policy.max_calls:
            raise errors.ToolCallLimit(f"this descriptor has reached its limit of {self.calls} calls")

    def caller(self, context: TaskContext) -> Caller:
        """The caller of the run, with a request for this server, narrowed by the descriptor's policy."""
        policy = self.policy
        allow = None if policy.allow is UNSET else policy.allow
        request = SessionRequest(enabled=True, servers=(self.server_id,), allow=allow, deny=policy.deny)
        return replace(context.caller, request=request, only_server=self.server_id)

    @contextmanager
    def record_failures(self) -> Iterator[None]:
        """Store an error of the block as `last_error`."""
        self.last_error = None
        try:
            yield
        except errors.ToolgateError as exc:
            self.last_error = tool_calls.describe_error(exc).detail["error"]
            raise


def mcp_open(guest: TaskGuest, pointer: int, length: int) -> int:
    server_id = decode_text(guest.read(pointer, length, most=MAX_NAME_BYTES))
    guest.fds.check_room()
    session = McpSession(server_id)
    guest.wait(lambda: _open_session(guest.context, session))
    return guest.fds.open(session)


def mcp_list_tools(guest: TaskGuest, fd: int, out: int, out_length: int) -> int:
    """List the tools of a server for this guest: `{"server_id", "tools": […]}`."""
    session = guest.fds.get(fd, McpSession)
    guest.check_out(out, out_length)
    with session.record_failures():
        view = guest.wait(lambda: _list_tools(guest.context, session))
    tools = [_encode_definition(name, route) for name, route in _select_tools(view).items()]
    return guest.put_out(out, out_length, _encode({"server_id": session.server_id, "tools": tools}))


def mcp_call_tool(guest: TaskGuest, fd: int, *buffers: int) -> int:
    """Call a tool; its result is one JSON object. `buffers`: name, arguments, result; each with its length.

    A result that does not fit into the buffer is stored. The same call then returns it without running the
    tool again. Any other call drops it.
    """
    name_pointer, name_length, arguments_pointer, arguments_length, out, out_length = buffers
    session = guest.fds.get(fd, McpSession)
    tool = decode_text(guest.read(name_pointer, name_length, most=MAX_NAME_BYTES))
    arguments = guest.read(arguments_pointer, arguments_length, most=tool_calls.MAX_ARGUMENT_BYTES)
    guest.check_out(out, out_length)
    kept, session.kept = session.kept, None
    if kept is None or (kept.tool, kept.arguments) != (tool, arguments):
        kept = KeptResult(tool, arguments, _run_tool(guest, session, tool, arguments))
    try:
        return guest.put_out(out, out_length, kept.result)
    except HostcallFault:
        session.kept = kept
        raise


def mcp_close(guest: TaskGuest, fd: int) -> int:
    guest.fds.close(fd, McpSession)
    return 0


def mcp_registry_list(guest: TaskGuest, out: int, out_length: int) -> int:
    """List the servers that `mcp_open` can open: `{"servers": […]}`."""
    guest.check_out(out, out_length)
    servers = guest.wait(lambda: _list_servers(guest.context))
    return guest.put_out(out, out_length, _encode({"servers": servers}))


def mcp_registry_get(guest: TaskGuest, pointer: int, length: int, out: int, out_length: int) -> int:
    """Describe one of these servers. ENOENT if it cannot be opened."""
    server_id = decode_text(guest.read(pointer, length, most=MAX_NAME_BYTES))
    guest.check_out(out, out_length)
    server = guest.wait(lambda: _describe_server(guest.context, server_id))
    if server is None:
        raise HostcallFault(Errno.ENOENT)
    return guest.put_out(out, out_length, _encode(server))


def _run_tool(guest: TaskGuest, session: McpSession, tool: str, arguments: bytes) -> bytes:
    parsed = tool_calls.parse_arguments(decode_text(arguments))
    if isinstance(parsed, tool_calls.CallError):
        session.last_error = parsed.detail["error"]
        guest.wait(partial(_record_unmade, guest.context, session, tool, parsed.code))
        raise HostcallFault(Errno.EINVAL)
    sessions = (entry for entry in guest.fds.entries.values() if isinstance(entry, McpSession))
    results = (one.kept for one in sessions if one.kept is not None)
    if (
        sum(len(kept.arguments) + len(kept.result) for kept in results)
        >= guest.context.limits.max_result_bytes
    ):
        raise HostcallFault(Errno.ENOMEM)
    with session.record_failures():
        return guest.wait(lambda: _call_tool(guest.context, session, tool, parsed))


# On the event loop, where the gateway runs


async def _list_tools(context: TaskContext, session: McpSession) -> View:
    view = await context.gateway.wait_for_view(session.caller(context))
    context.gateway.record_listing(view, SURFACE)
    return view


async def _record_unmade(context: TaskContext, session: McpSession, tool: str, code: str) -> None:
    """Audit a rejected call, as every endpoint does."""
    if not context.calls.count_denial():
        return
    try:
        view = context.gateway.view_for_call(session.caller(context))
    except errors.ToolgateError:  # a caller without a scope has no tool, either
        return
    context.gateway.record_unmade(view, tool, trace=context.trace, code=code)


async def _open_session(context: TaskContext, session: McpSession) -> None:
    with context.record_denials():
        view = await context.gateway.wait_for_view(session.caller(context))
    context.gateway.scope_audit.record_offer(view, SURFACE)
    if not view.tools:
        raise errors.NotFound(f"no server `{session.server_id}`")


async def _call_tool(context: TaskContext, session: McpSession, tool: str, arguments: bytes) -> bytes:
    try:
        session.check_calls()
        context.calls.count_call()  # on the event loop, where calls of models count, too
    except errors.ToolCallLimit as exc:
        await _record_unmade(context, session, tool, exc.code)
        raise
    session.calls += 1
    clock = asyncio.get_running_loop().time
    began_s, code = clock(), "cancelled"
    try:
        result, code = _encode_result(await _send_call(context, session, tool, arguments))
        most = session.policy.max_output_bytes
        if most is not UNSET and len(result) > most:
            raise errors.OutputTooLarge(
                f"the result has {len(result)} bytes, and the descriptor allows {most}",
                hint="request less at once",
            )
    except InputRequired as exc:
        code = errors.InputNotGiven.code
        raise errors.InputNotGiven(
            "the tool requests input from its user, and a guest cannot elicit any"
        ) from exc
    except errors.ToolgateError as exc:
        code = exc.code
        raise
    finally:
        took_ms = round((clock() - began_s) * 1e3)
        context.calls.keep(
            InvocationCall(server_id=session.server_id, tool=tool[:MAX_TOOL_NAME], code=code, ms=took_ms)
        )
    return result


async def _send_call(
    context: TaskContext, session: McpSession, tool: str, arguments: bytes
) -> ServerResponse:
    """Send within the descriptor's timeout, if it has one; the server's timeout applies, too."""
    timeout_ms = session.policy.timeout_ms
    try:
        async with asyncio.timeout(None if timeout_ms is UNSET else timeout_ms / 1e3):
            view = await context.gateway.wait_for_view(session.caller(context), for_call=True)
            params = {"arguments": msgspec.Raw(arguments)}
            return await context.gateway.call(view, tool, params, trace=context.trace)
    except TimeoutError as exc:
        if timeout_ms is UNSET:
            raise
        raise errors.CallTimedOut(
            f"the tool returned no result within {timeout_ms} ms",
            hint="open the server again with a larger `timeout_ms`",
        ) from exc


def _encode_result(response: ServerResponse) -> tuple[bytes, str]:
    """The result for the guest, and the code of a failure. A failed tool has a result, too."""
    members = response.rpc.members
    if members is None:
        error = parse_server_error(response.rpc.error)
        return _encode(error.detail), error.code
    code = tool_calls.TOOL_ERROR if is_tool_error(members) else ""
    return adapt_result(members, upstream=response.revision, client="legacy"), code


async def _list_servers(context: TaskContext) -> list[Mapping[str, Any]]:
    gateway = context.gateway
    task = gateway.task_policy(context.caller)
    if task is None:
        return []
    platform = context.caller.platform(gateway.snapshot, task)
    named = sorted(bind_task(platform, task).allowed & platform.servers.keys())
    await gateway.servers.settled(named)
    found = [await _describe_server(context, server_id) for server_id in named]
    return [server for server in found if server is not None]


async def _describe_server(context: TaskContext, server_id: str) -> Mapping[str, Any] | None:
    await asyncio.sleep(0)  # yields to other tasks, because there may be thousands of servers
    try:
        view = await context.gateway.wait_for_view(McpSession(server_id).caller(context))
    except (errors.PolicyDenied, errors.NotFound, errors.TooManyTools):
        return None
    offer = context.gateway.snapshot.servers.get(server_id)
    if offer is None or not view.tools:
        return None
    return {
        "server_id": server_id,
        "display_name": offer.record.display_name,
        "tags": offer.record.tags,
        "tools": list(_select_tools(view)),
    }


def _select_tools(view: View) -> Mapping[str, Route]:
    """The tools that can be called by name; if there are too many to list, the find tools."""
    return view.routes if view.found is None else FIND_ROUTES


def _encode_definition(name: str, route: Route) -> Members:
    assert route.tool is not None  # a view's tools are tools
    members = decode_members(encode_definition(route.tool, name, revision="legacy"))
    members.setdefault("description", msgspec.Raw(b'""'))
    return members


CALLS: Final = (mcp_open, mcp_list_tools, mcp_call_tool, mcp_close, mcp_registry_list, mcp_registry_get)
