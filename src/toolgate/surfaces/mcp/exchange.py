"""One HTTP request to the MCP endpoint: what its URL selects, and its headers compared with its body.

`CallerBinding` binds what a URL selects for a principal with its newest view. Intermediaries route and filter
by headers (2026-07-28), so headers that repeat the body must agree with it.
"""

import base64
import binascii
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from toolgate import errors
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Mode, Trace
from toolgate.gateway.scope.view import View
from toolgate.model.names import parse_server_id, parse_task_id
from toolgate.model.principals import Principal
from toolgate.model.tools import ToolDefinition
from toolgate.surfaces.http.messages import HttpRequest, Responder
from toolgate.surfaces.http.parsing import PARAMETERS, parse_mode, parse_query, parse_selection
from toolgate.upstream.connection.contract import Params
from toolgate.upstream.connection.messages import iter_mirrored_headers

PREFIXES: Final = ("/api/mcp", "/mcp")


def is_mcp_path(path: str) -> bool:
    """Whether `path` belongs to the MCP endpoint."""
    return path in PREFIXES or path[:9] == "/api/mcp/" or path[:5] == "/mcp/"


def parse_caller(principal: Principal, path: str, query: bytes) -> Caller:
    """`principal` with what the URL selects. Raises NotFound for a path, InvalidRequest for a query."""
    task_id, server_id, path_mode = _parse_path(path)
    values = parse_query(query, PARAMETERS)
    query_task, request = parse_selection(values)
    mode = parse_mode(values, default=path_mode)
    if path_mode == "find" and mode != "find":
        raise errors.InvalidRequest(
            "the path and `mode` disagree", hint="`/api/mcp/find` is `/api/mcp?mode=find`"
        )
    if query_task is not None and task_id is not None:
        raise errors.InvalidRequest("the path and the query both name a task")
    if server_id is not None:
        if request.servers is not None and server_id not in request.servers:
            raise errors.InvalidRequest("`servers` leaves out the server that the path names")
        request = replace(request, servers=(server_id,))
    return Caller(principal, task_id or query_task, request, server_id, mode)


def _parse_path(path: str) -> tuple[str | None, str | None, Mode]:
    match path.removeprefix("/api").removeprefix("/mcp").strip("/").split("/"):
        case [""]:
            return None, None, "list"
        case ["find"]:
            return None, None, "find"
        case ["s", server_id]:
            return None, _parse_name(parse_server_id, server_id), "list"
        case ["t", task_id]:
            return _parse_name(parse_task_id, task_id), None, "list"
    raise errors.NotFound(
        "no such path of the MCP endpoint",
        hint="use `/api/mcp`, `/api/mcp/find`, `/api/mcp/s/<server>` or `/api/mcp/t/<task>`",
    )


def _parse_name(parse: Callable[[str], str], text: str) -> str:
    """The name, if valid. An invalid one cannot exist: NotFound."""
    try:
        return parse(text)
    except errors.InvalidRecord as exc:
        raise errors.NotFound(f"no server or task has the id `{text[:80]}`", hint=exc.hint) from exc


SURFACE: Final = "mcp"  # the name of this endpoint in the audit, its member `door`


class CallerBinding:
    """A caller with its newest view, so that no view is looked up while the snapshot stays the same.

    Its caller never changes: two tokens of one subject have two bindings, so a request that waits is still
    decided by its own credential. Only the gateway keeps views, and bounds them: a binding holds a weak
    reference.
    """

    __slots__ = ("_known", "_serial", "caller")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._serial = -1
        self._known: weakref.ref[View] | None = None

    def for_principal(self, principal: Principal) -> "CallerBinding":
        """What the same URL or session selects for `principal`."""
        bound = self.caller.principal
        if bound is principal or bound == principal:
            return self
        return CallerBinding(replace(self.caller, principal=principal))

    def view(self, gateway: Gateway) -> View:
        """The view of the current snapshot. Raises an error if the scope is rejected."""
        known = self._known
        view = None if known is None or self._serial != gateway.snapshot.serial else known()
        if view is None or view.caller.mode != self.caller.mode:  # the view of `calling_view` has no list
            view = self._look_up(gateway, gateway.view)
        return view

    def calling_view(self, gateway: Gateway) -> View:
        """As `view`, for a call: the tools of a scope that is too large to list can still be called."""
        known = self._known  # as in `view`, without a call: every tool call runs this
        view = None if known is None or self._serial != gateway.snapshot.serial else known()
        return self._look_up(gateway, gateway.view_for_call) if view is None else view

    def initial_view(self, gateway: Gateway) -> tuple[View, str]:
        """The view and the instructions for `initialize` and `server/discover`.

        A scope that is too large rejects its lists only: clients show no text of a failed `initialize`.
        """
        try:
            view = self.view(gateway)
        except errors.TooManyTools as exc:
            return self.calling_view(gateway), f"{exc}: {exc.hint}"
        return view, view.instructions

    def _look_up(self, gateway: Gateway, find_view: Callable[[Caller], View]) -> View:
        """Find the view and keep it. A caller that selects more than it may is audited."""
        serial = gateway.snapshot.serial
        try:
            view = find_view(self.caller)
        except errors.PolicyDenied as exc:
            task_id = self.caller.effective_task_id
            gateway.record_refused(self.caller.principal, exc, trace=Trace(SURFACE), task_id=task_id)
            raise
        self._known = weakref.ref(view)
        self._serial = serial
        return view


class McpExchange(msgspec.Struct):
    """One HTTP request with its principal and its responder. `headers` are those of the request."""

    request: HttpRequest
    responder: Responder
    principal: Principal
    headers: dict[bytes, bytes]

    @property
    def accepts_stream(self) -> bool:
        """Whether the client accepts an event stream as a response."""
        accepted = self.headers.get(b"accept", b"*/*")
        if b"text/event-stream" in accepted:  # the usual spelling
            return True
        return b"*/*" in accepted or b"text/event-stream" in accepted.lower()

    def require_stream(self) -> None:
        """Raise NotAcceptable if the client does not accept an event stream."""
        accepted = self.headers.get(b"accept", b"*/*").decode("latin-1")
        kinds = {one.split(";")[0].strip().lower() for one in accepted.split(",")}
        if kinds.isdisjoint({"text/event-stream", "*/*", "text/*"}):
            raise errors.NotAcceptable("the client does not accept `text/event-stream`")


async def return_at_once() -> None:
    """Do nothing: the response is sent already."""


def check_header(exchange: McpExchange, name: bytes, expected: str) -> None:
    """Raise HeaderMismatch unless the header has the value `expected`."""
    value = exchange.headers.get(name)
    if value is not None and (value == expected.encode() or _decode_header(value) == expected):
        return
    shown = name.decode()
    if value is None:
        raise errors.HeaderMismatch(f"the header `{shown}` is missing")
    raise errors.HeaderMismatch(f"the header `{shown}` and the body disagree")


def check_argument_headers(exchange: McpExchange, tool: ToolDefinition, params: Params) -> None:
    """Raise HeaderMismatch unless the `Mcp-Param-…` headers of a call equal its arguments."""
    for name, text in iter_mirrored_headers(tool, bytes(params.get("arguments", b"{}"))):
        folded = name.lower().encode()
        if folded in exchange.request.repeated:
            raise errors.HeaderMismatch(f"duplicate header `{name}`")
        if text is not None:
            check_header(exchange, folded, text)
        elif folded in exchange.headers:
            raise errors.HeaderMismatch(
                f"the header `{name}` repeats an argument that the body does not have"
            )


def _decode_header(value: bytes) -> str | None:
    """A header value, decoded as the specification encodes text beyond ASCII; None if malformed."""
    text = value.decode("latin-1").strip(" \t")
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return base64.b64decode(text[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
