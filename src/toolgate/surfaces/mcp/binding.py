"""What a URL of the MCP door asks for: a task, one server, or a selection by query.

One credential's caller, bound to a URL or a session, with its newest view at hand.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from toolgate.errors import InvalidRecord, InvalidRequest, NotFound, PolicyDenied, TooManyTools
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Mode, Trace
from toolgate.gateway.scope.view import View
from toolgate.model.names import parse_server_id, parse_task_id
from toolgate.model.principals import Principal
from toolgate.policy.layers import SessionRequest
from toolgate.surfaces.http.parsing import parse_query
from toolgate.surfaces.http.selection import PARAMETERS, parse_mode, parse_selection

PREFIXES: Final = ("/api/mcp", "/mcp")


@dataclass(frozen=True, slots=True)
class McpTarget:
    """A parsed URL: the task and session request it stands for."""

    task_id: str | None = None
    only_server: str | None = None
    request: SessionRequest = field(default_factory=SessionRequest)
    mode: Mode = "list"


def is_mcp_path(path: str) -> bool:
    """Whether `path` belongs to this door."""
    return path in PREFIXES or path[:9] == "/api/mcp/" or path[:5] == "/mcp/"


def parse_mcp_url(path: str, query: bytes) -> McpTarget:
    """The target of a URL. Raises NotFound for a path, InvalidRequest for a query."""
    task_id, server_id, path_mode = _parse_path(path)
    values = parse_query(query, PARAMETERS)
    asked_task, request = parse_selection(values)
    mode = parse_mode(values, default=path_mode)
    if path_mode == "find" and mode != "find":
        raise InvalidRequest("the path and `mode` disagree", hint="`/api/mcp/find` is `/api/mcp?mode=find`")
    if asked_task is not None and task_id is not None:
        raise InvalidRequest("the task stands in the path and in the query")
    if server_id is not None:
        if request.servers is not None and server_id not in request.servers:
            raise InvalidRequest("the server stands in the path and `servers` leaves it out")
        request = replace(request, servers=(server_id,))
    return McpTarget(task_id or asked_task, server_id, request, mode)


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
    raise NotFound(
        "no such path on the MCP door",
        hint="use `/api/mcp`, `/api/mcp/find`, `/api/mcp/s/<server>` or `/api/mcp/t/<task>`",
    )


def _parse_name(parse: Callable[[str], str], text: str) -> str:
    """A name in a path that cannot be one names nothing that exists."""
    try:
        return parse(text)
    except InvalidRecord as exc:
        raise NotFound(f"nothing is called `{text[:80]}`", hint=exc.hint) from exc


SURFACE: Final = "mcp"
"""What the audit calls this door."""


class CallerBinding:
    """Saves looking a view up by its caller as long as the snapshot stays the same.

    Its caller never changes: two tokens of one subject have two bindings, so that a request which waits is
    still decided by the credential it came with.
    Only the gateway keeps views, and bounds them: here one is merely known while it is kept there.
    """

    __slots__ = ("_known", "_serial", "caller")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._serial = -1
        self._known: weakref.ref[View] | None = None

    def for_principal(self, principal: Principal) -> "CallerBinding":
        """What the same URL or session is for `principal`."""
        bound = self.caller.principal
        if bound is principal or bound == principal:
            return self
        return CallerBinding(replace(self.caller, principal=principal))

    def view(self, gateway: Gateway) -> View:
        """The view of the current snapshot; raises what the scope refuses with."""
        view = self._current(gateway)
        if view is None or view.caller.mode != self.caller.mode:  # kept for calls alone
            view = self._look_up(gateway, gateway.view)
        return view

    def calling_view(self, gateway: Gateway) -> View:
        """As `view`, for a call: where a scope is refused for its size, its tools can still be called."""
        known = self._known  # as in `_current`, without the call: every call of a tool comes by here
        view = None if known is None or self._serial != gateway.snapshot.serial else known()
        return self._look_up(gateway, gateway.view_for_call) if view is None else view

    def initial_view(self, gateway: Gateway) -> tuple[View, str]:
        """The view a client is greeted with, and the instructions it gets.

        A scope that is refused for its size refuses its lists: of a refused greeting, clients show no text.
        """
        try:
            view = self.view(gateway)
        except TooManyTools as exc:
            return self.calling_view(gateway), f"{exc}: {exc.hint}"
        return view, view.instructions

    def _current(self, gateway: Gateway) -> View | None:
        known = self._known
        return None if known is None or self._serial != gateway.snapshot.serial else known()

    def _look_up(self, gateway: Gateway, look: Callable[[Caller], View]) -> View:
        """A caller that asks for more than it may have is audited."""
        serial = gateway.snapshot.serial
        try:
            view = look(self.caller)
        except PolicyDenied as exc:
            task_id = self.caller.effective_task_id
            gateway.record_refused(self.caller.principal, exc, trace=Trace(SURFACE), task_id=task_id)
            raise
        self._known = weakref.ref(view)
        self._serial = serial
        return view
