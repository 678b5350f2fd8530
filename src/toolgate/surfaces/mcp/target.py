"""What a URL of the MCP door asks for: a task, one server, or a selection by query.

Each parameter may stand once and only under its own name. A query that could be read in two ways is
refused, because one of the readings might be wider than its author meant.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from toolgate.errors import InvalidParams, InvalidRecord, InvalidRequest, NotFound
from toolgate.model.names import parse_server_id, parse_task_id
from toolgate.policy.layers import SessionRequest, parse_tools_selection

PREFIXES: Final = ("/api/mcp", "/mcp")
PARAMETERS: Final = frozenset({"tools", "servers", "profile", "task", "sessionId"})
MAX_QUERY_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: the task and session request it stands for."""

    task_id: str | None = None
    only_server: str | None = None
    request: SessionRequest = field(default_factory=SessionRequest)


def is_mcp_path(path: str) -> bool:
    """Whether `path` belongs to this door."""
    return path in PREFIXES or path.startswith(("/api/mcp/", "/mcp/"))


def parse_target(path: str, query: bytes) -> Target:
    """The target of a URL. Raises NotFound for a path, InvalidRequest for a query."""
    task_id, server_id = _parse_path(path)
    values = _parse_query(query)
    if "task" in values and task_id is not None:
        raise InvalidRequest("the task stands in the path and in the query")
    try:
        if "task" in values:
            task_id = parse_task_id(values["task"])
        return Target(task_id, server_id, _session_request(values, server_id))
    except (InvalidRecord, InvalidParams) as exc:
        raise InvalidRequest(str(exc), hint=exc.hint) from exc


def _parse_path(path: str) -> tuple[str | None, str | None]:
    prefix = next(one for one in PREFIXES if path == one or path.startswith(one + "/"))
    match path[len(prefix) :].strip("/").split("/"):
        case [""]:
            return None, None
        case ["s", server_id]:
            return None, _known(parse_server_id, server_id)
        case ["t", task_id]:
            return _known(parse_task_id, task_id), None
    raise NotFound(
        "no such path on the MCP door", hint="use `/api/mcp`, `/api/mcp/s/<server>` or `/api/mcp/t/<task>`"
    )


def _known(parse: Callable[[str], str], text: str) -> str:
    """A name in a path that cannot be one names nothing that exists."""
    try:
        return parse(text)
    except InvalidRecord as exc:
        raise NotFound(f"nothing is called `{text[:80]}`", hint=exc.hint) from exc


def _parse_query(query: bytes) -> dict[str, str]:
    if len(query) > MAX_QUERY_BYTES:
        raise InvalidRequest(f"the query is longer than {MAX_QUERY_BYTES} bytes")
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), errors="strict"
        )
    except ValueError as exc:
        raise InvalidRequest("the query cannot be read") from exc
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in PARAMETERS:
            raise InvalidRequest(
                f"unknown parameter `{name[:40]}`", hint="use tools, servers, profile or task, each once"
            )
        if name in values:
            raise InvalidRequest(f"`{name}` stands twice", hint="separate several values by commas")
        values[name] = value
    return values


def _session_request(values: dict[str, str], server_id: str | None) -> SessionRequest:
    servers = _server_ids(values.get("servers"))
    if server_id is not None:
        if servers is not None and server_id not in servers:
            raise InvalidRequest("the server stands in the path and `servers` leaves it out")
        servers = (server_id,)
    tools = None
    if "tools" in values:
        tools = parse_tools_selection(values["tools"].split(",") if values["tools"] else [])
    profile = parse_task_id(values["profile"]) if "profile" in values else None
    return SessionRequest(servers=servers, tools=tools, profile=profile)


def _server_ids(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(sorted({parse_server_id(one) for one in text.split(",")})) if text else ()
