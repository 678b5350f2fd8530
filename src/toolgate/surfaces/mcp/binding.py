"""Callers: what a URL of the MCP endpoint selects for a principal, bound with its newest view."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from toolgate.errors import InvalidRecord, InvalidRequest, NotFound, PolicyDenied, TooManyTools
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller, Mode, Trace
from toolgate.gateway.scope.view import View
from toolgate.model.names import parse_server_id, parse_task_id
from toolgate.model.principals import Principal
from toolgate.surfaces.http.parsing import parse_query
from toolgate.surfaces.http.selection import PARAMETERS, parse_mode, parse_selection

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
        raise InvalidRequest("the path and `mode` disagree", hint="`/api/mcp/find` is `/api/mcp?mode=find`")
    if query_task is not None and task_id is not None:
        raise InvalidRequest("the path and the query both name a task")
    if server_id is not None:
        if request.servers is not None and server_id not in request.servers:
            raise InvalidRequest("`servers` leaves out the server that the path names")
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
    raise NotFound(
        "no such path of the MCP endpoint",
        hint="use `/api/mcp`, `/api/mcp/find`, `/api/mcp/s/<server>` or `/api/mcp/t/<task>`",
    )


def _parse_name(parse: Callable[[str], str], text: str) -> str:
    """An invalid name answers like one that does not exist."""
    try:
        return parse(text)
    except InvalidRecord as exc:
        raise NotFound(f"nothing is called `{text[:80]}`", hint=exc.hint) from exc


SURFACE: Final = "mcp"
"""The name of this endpoint in the audit, its member `door`."""


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
        """The view of the current snapshot. Raises why the scope is rejected."""
        view = self._current(gateway)
        if view is None or view.caller.mode != self.caller.mode:  # kept for calls only
            view = self._look_up(gateway, gateway.view)
        return view

    def calling_view(self, gateway: Gateway) -> View:
        """As `view`, for a call: the tools of a scope that is too large to list can still be called."""
        known = self._known  # as in `_current`, without the call: every tool call runs this
        view = None if known is None or self._serial != gateway.snapshot.serial else known()
        return self._look_up(gateway, gateway.view_for_call) if view is None else view

    def initial_view(self, gateway: Gateway) -> tuple[View, str]:
        """The view and the instructions for `initialize` and `server/discover`.

        A scope that is too large rejects its lists only: clients show no text of a failed `initialize`.
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
        """The view by `look`. A caller that selects more than it may is audited."""
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
