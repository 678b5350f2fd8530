"""The selection in a URL (`?task=`, `?servers=`, `?tools=`, `?profile=`, `?mode=`): parsed and formatted
alike everywhere.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from toolgate.errors import InvalidParams, InvalidRecord, InvalidRequest
from toolgate.gateway.scope.caller import Mode
from toolgate.model.names import parse_task_id
from toolgate.model.servers import EMPTY
from toolgate.policy.layers import SessionRequest, parse_servers_selection, parse_tools_selection


def format_server_url(base_url: str, server_id: str, task_id: str | None = None) -> str:
    """The URL of one server, where its tools have their own names; as a task sees it, if one is named."""
    return f"{base_url}/api/mcp/s/{server_id}{f'?task={task_id}' if task_id else ''}"


def format_mcp_url(base_url: str, task_id: str | None, selection: Mapping[str, str] = EMPTY) -> str:
    """The URL of a task, or of everything, narrowed by a selection (`servers`, `tools`, `profile`)."""
    path = f"/api/mcp/t/{task_id}" if task_id else "/api/mcp"
    # Commas, stars and slashes are legal in a query and far easier to read than their escapes.
    query = "&".join(f"{name}={quote(value, safe=',*/')}" for name, value in selection.items())
    return f"{base_url}{path}{'?' if query else ''}{query}"


def format_scope_url(base_url: str, query: Mapping[str, str]) -> str:
    """The MCP endpoint of the gateway at `base_url`, narrowed by `query`. A task is part of the path."""
    selection = dict(query)
    task = selection.pop("task", None)
    return format_mcp_url(base_url.rstrip("/"), task and parse_task_id(task), selection)


PARAMETERS: Final = frozenset({"mode", "profile", "servers", "task", "tools"})
_MODES: Final[Mapping[str, Mode]] = {"list": "list", "find": "find"}


def parse_selection(values: Mapping[str, str]) -> tuple[str | None, SessionRequest]:
    """The task and the session request of a query, or InvalidRequest. An empty list selects nothing."""
    try:
        task_id = parse_task_id(values["task"]) if "task" in values else None
        request = SessionRequest(
            servers=parse_servers_selection(_split(values["servers"])) if "servers" in values else None,
            tools=parse_tools_selection(_split(values["tools"])) if "tools" in values else None,
            profile=parse_task_id(values["profile"]) if "profile" in values else None,
        )
    except (InvalidParams, InvalidRecord) as exc:
        raise InvalidRequest(str(exc), hint=exc.hint) from exc
    return task_id, request


def parse_mode(values: Mapping[str, str], *, default: Mode = "list") -> Mode:
    """How the tools are to be shown, or InvalidRequest."""
    mode = _MODES.get(values.get("mode", default))
    if mode is None:
        raise InvalidRequest("`mode` is neither `list` nor `find`", hint="leave it out to list the tools")
    return mode


def _split(text: str) -> list[str]:
    return text.split(",") if text else []
