"""Answers of a gateway in the shapes of its OpenAPI document, for tests to vary."""

from typing import Any


def server(server_id: str = "git", **changes: Any) -> dict[str, Any]:
    record = {
        "server_id": server_id,
        "transport": "stdio",
        "stdio": {"command": "mcp-server-git", "args": ["--repository", "."], "env": {}},
        "display_name": "",
        "allowed_tools": ["*"],
        "tags": [],
        "revision": 3,
        "health": health(),
    }
    return {**record, **changes}


def health(**changes: Any) -> dict[str, Any]:
    found = {
        "state": "connected",
        "last_error": "",
        "since_ms": 1_700_000_000_000,
        "restarts": 0,
        "pid": 4711,
        "era": "modern",
        "version": "2026-07-28",
        "stderr_tail": "",
        "in_flight": 0,
        "queued": 0,
        "tools": 12,
        "quarantined": 0,
        "calls": 7,
        "last_list_ms": 9,
    }
    return {**found, **changes}


def tools(*names: str, task: str = "review") -> dict[str, Any]:
    """The answer about a URL with these tools, each `server.tool`."""
    return {
        "revision": 3,
        "tools": [
            {
                "name": name,
                "server_id": name.partition(".")[0],
                "tool": name.partition(".")[2],
                "description": "Does what it says.",
                "tokens": 100,
                "rule": f"task `{task}`: mcp.tool_allowlist",
            }
            for name in names
        ],
        "tokens": 100 * len(names),
        "registered_tools": 31,
        "registered_tokens": 4_000,
        "warnings": [],
        "url": f"http://127.0.0.1:8080/api/mcp/t/{task}",
        "mode": "list",
    }


def decision(server_id: str, tool: str | None, reason: str | None = None, **changes: Any) -> dict[str, Any]:
    """A yes, or with a reason a no."""
    found = {
        "server_id": server_id,
        "tool": tool,
        "allowed": reason is None,
        "layer": "task",
        "reason": reason,
        "rule": "mcp.tool_allowlist",
    }
    return {**found, **changes}


def explanation(*decisions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    found = {
        "revision": 3,
        "refusal": None,
        "tools": [one for one in decisions if one["tool"] is not None],
        "servers": [one for one in decisions if one["tool"] is None],
        "warnings": [],
        "mode": "list",
    }
    return {**found, **changes}


def task_plan(task_id: str | None, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "task_id": task_id,
        "added": [],
        "removed": [],
        "reach_added": [],
        "reach_removed": [],
        "refusal": None,
        "problem": None,
        "share": 100,
    }
    return {**found, **changes}


def change(operation: str, kind: str, record_id: str, **fields: tuple[Any, Any]) -> dict[str, Any]:
    """One record of a set of changes; each field is what it was and what it becomes."""
    shown = [{"field": name, "before": before, "after": after} for name, (before, after) in fields.items()]
    return {"operation": operation, "kind": kind, "id": record_id, "fields": shown}


def plan(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = {
        "id": "0f" * 16,
        "revision": 3,
        "changes": list(changes),
        "tasks": [],
        "unchanged": 2,
        "unlisted": [],
        "warnings": [],
    }
    return {**found, **more}


def applied(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"revision": 4, "changes": list(changes), "warnings": [], **more}


def node(node_id: str, **changes: Any) -> dict[str, Any]:
    found = {
        "node_id": node_id,
        "url": "http://10.0.0.1:8080",
        "version": "0.1.0",
        "revision": 17,
        "is_degraded": False,
        "is_lost": False,
        "is_current": True,
        "age_s": 2.4,
        "servers": 4,
    }
    return {**found, **changes}
