"""Tasks, profiles and keys."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, grid, names, sentence, stack, warnings
from toolgate.cli.render.modules import render_workload

Record = Mapping[str, Any]


def render_tasks(tasks: Sequence[Record]) -> RenderableType:
    """One line a task: its servers, and whether its tools are on."""
    if not tasks:
        return Text("no tasks yet: add one with `toolgate tasks apply -f FILE`")
    table = grid("TASK", "TOOLS", "NAME", "SERVERS", flexible={"NAME", "SERVERS"})
    for task in tasks:
        config: Record = task.get("config") or {}
        enabled = _decode(config.get("mcp.enabled")) is True
        table.add_row(
            cell(task["task_id"], "bold"),
            cell("on", OK) if enabled else cell("off", DIM),
            cell(task.get("display_name")),
            _servers(config),
        )
    return table


def render_task(task: Record) -> RenderableType:
    """One task with its config, a key a line."""
    table = grid("KEY", "VALUE", flexible={"VALUE"})
    for key, value in (task.get("config") or {}).items():
        table.add_row(cell(key), cell(value))
    title = sentence(cell(task["task_id"], "bold"), "  ", cell(task.get("display_name"), DIM))
    workload = task.get("workload")
    return stack(title, table if table.row_count else None, render_workload(workload) if workload else None)


def render_profiles(profiles: Sequence[Record]) -> RenderableType:
    """One line a profile."""
    if not profiles:
        return Text("no profiles yet: add one with `toolgate profiles apply -f FILE`")
    table = grid("PROFILE", "VERSION", "SERVERS", "TAGS", "ALLOW", "DENY", flexible={"ALLOW", "DENY"})
    for profile in profiles:
        rollout: Record | None = profile.get("rollout")
        version = cell(profile.get("version"), DIM)
        table.add_row(cell(profile["profile_id"], "bold"), version, *_selection(profile))
        if rollout is not None:
            candidate = f"{rollout['version']} ({rollout['share']} % of {rollout['by']}s)"
            table.add_row("", cell(candidate, WARN), *_selection(rollout))
    return table


def _selection(version: Record) -> list[RenderableType]:
    lists = (_list(version.get(part)) for part in ("servers", "tags", "allow"))
    return [*lists, names(version.get("deny") or [])]


def render_versions(answer: Record) -> RenderableType:
    """The versions of a profile, each with what became of its calls."""
    table = grid("VERSION", "SHARE", "CALLS", "ERRORS", "DENIED", "P50", "P95")
    for one in answer["versions"]:
        title = f"{one['version']} {one['side'] or ''}".strip()
        table.add_row(
            cell(title, "bold"),
            cell(f"{one['share']} %" if one["share"] else "-", WARN if one["side"] else DIM),
            *(cell(f"{one[part]:,}") for part in ("calls", "errors", "denied")),
            *(cell("-" if one[part] is None else f"{one[part]:,.1f} ms") for part in ("p50_ms", "p95_ms")),
        )
    return table


def render_keys(keys: Sequence[Record], now_s: float) -> RenderableType:
    """One line a key: what it may reach and until when. A key itself is never shown."""
    if not keys:
        return Text("no keys yet: add one with `toolgate keys add NAME --role agent`")
    table = grid("KEY", "ROLE", "EXPIRES", "REACHES", flexible={"REACHES"})
    for key in keys:
        table.add_row(
            cell(key["key_id"], "bold"),
            cell(key["role"]),
            _expiry(key.get("expires_at_s"), now_s),
            _reach(key),
        )
    return table


def render_new_key(key: Record, file: Path | None = None) -> RenderableType:
    """The only time a key is shown, unless it went into a file."""
    head = sentence(
        Text("✓ ", style=OK), "key ", cell(key["key_id"], "bold"), " (", cell(key.get("role")), ")"
    )
    told = warnings(key.get("warnings") or ())
    if file is not None:
        placed = sentence(head, " is in ", cell(file, "bold"))
        return placed if told is None else Group(placed, told)
    return stack(
        head,
        told,
        Text(f"  {key['secret']}"),
        Group(
            Text("It is shown this once: the gateway keeps only its hash. Use it with", style=WARN),
            Text("  export TOOLGATE_KEY=…", style=DIM),
        ),
    )


def _servers(config: Record) -> Text:
    servers = _decode(config.get("mcp.default_server_ids"))
    if isinstance(servers, list):
        return names(map(str, servers))
    profile = _decode(config.get("mcp.profile"))
    return cell(f"by profile {profile}" if profile else "all that the request names", DIM)


def _decode(text: Any) -> Any:
    """A config value is JSON text; one that is not has been refused by the gateway long before."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _list(values: Sequence[str] | None) -> Text:
    if values is None:
        return cell("any", DIM)
    return names(values) if values else cell("none", WARN)


def _expiry(expires_at_s: int | None, now_s: float) -> Text:
    if expires_at_s is None:
        return cell("never", DIM)
    days = (expires_at_s - now_s) / 86_400
    if days < 0:
        return cell("expired", BAD)
    return cell(f"in {days:.0f} days" if days >= 2 else f"in {days * 24:.0f} hours")


def _reach(key: Record) -> Text:
    ceiling: Record = key.get("ceiling") or {}
    parts = [
        sentence(f"{label} ", _list(ceiling[label]))
        for label in ("tasks", "servers", "allow", "deny")
        if ceiling.get(label) is not None and (label != "deny" or ceiling[label])
    ]
    return Text("; ").join(parts) if parts else cell("everything", DIM)
