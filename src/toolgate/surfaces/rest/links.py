"""URLs of the MCP door, as one pastes them into a client."""

from collections.abc import Mapping
from urllib.parse import quote

from toolgate.model.names import parse_task_id
from toolgate.model.servers import EMPTY


def server_url(base_url: str, server_id: str, task_id: str | None = None) -> str:
    """The URL of one server, where its tools have their own names; as a task sees it, if one is named."""
    return f"{base_url}/api/mcp/s/{server_id}{f'?task={task_id}' if task_id else ''}"


def mcp_url(base_url: str, task_id: str | None, selection: Mapping[str, str] = EMPTY) -> str:
    """The URL of a task, or of everything, narrowed by a selection (`servers`, `tools`, `profile`)."""
    path = f"/api/mcp/t/{task_id}" if task_id else "/api/mcp"
    # Commas, stars and slashes are legal in a query and far easier to read than their escapes.
    query = "&".join(f"{name}={quote(value, safe=',*/')}" for name, value in selection.items())
    return f"{base_url}{path}{'?' if query else ''}{query}"


def door_url(base_url: str, query: Mapping[str, str]) -> str:
    """The MCP door of the gateway at `base_url`, narrowed by `query`. A task is part of the path."""
    selection = dict(query)
    task = selection.pop("task", None)
    return mcp_url(base_url.rstrip("/"), task and parse_task_id(task), selection)
