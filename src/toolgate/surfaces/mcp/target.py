"""What a URL of the MCP door asks for: a task, one server, or a selection by query."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from toolgate.errors import InvalidRecord, InvalidRequest, NotFound
from toolgate.gateway.scope.caller import Mode
from toolgate.model.names import parse_server_id, parse_task_id
from toolgate.policy.layers import SessionRequest
from toolgate.surfaces.http.parsing import parse_query
from toolgate.surfaces.http.selection import PARAMETERS, parse_mode, parse_selection

PREFIXES: Final = ("/api/mcp", "/mcp")


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: the task and session request it stands for."""

    task_id: str | None = None
    only_server: str | None = None
    request: SessionRequest = field(default_factory=SessionRequest)
    mode: Mode = "list"


def is_mcp_path(path: str) -> bool:
    """Whether `path` belongs to this door."""
    return path in PREFIXES or path[:9] == "/api/mcp/" or path[:5] == "/mcp/"


def parse_target(path: str, query: bytes) -> Target:
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
    return Target(task_id or asked_task, server_id, request, mode)


def _parse_path(path: str) -> tuple[str | None, str | None, Mode]:
    match path.removeprefix("/api").removeprefix("/mcp").strip("/").split("/"):
        case [""]:
            return None, None, "list"
        case ["find"]:
            return None, None, "find"
        case ["s", server_id]:
            return None, _known(parse_server_id, server_id), "list"
        case ["t", task_id]:
            return _known(parse_task_id, task_id), None, "list"
    raise NotFound(
        "no such path on the MCP door",
        hint="use `/api/mcp`, `/api/mcp/find`, `/api/mcp/s/<server>` or `/api/mcp/t/<task>`",
    )


def _known(parse: Callable[[str], str], text: str) -> str:
    """A name in a path that cannot be one names nothing that exists."""
    try:
        return parse(text)
    except InvalidRecord as exc:
        raise NotFound(f"nothing is called `{text[:80]}`", hint=exc.hint) from exc
