"""Modules of workloads, and workloads in tasks.

Budgets over time: how much of each is used, and when it resets.

Tasks, profiles and keys.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui

JsonObject = Mapping[str, Any]


def render_modules(modules: Sequence[JsonObject]) -> RenderableType:
    """One line a module."""
    if not modules:
        return Text("no modules yet: upload one with `toolgate modules upload FILE`")
    table = ui.grid("MODULE", "UPLOADED", "BYTES", "TASKS*")
    for one in modules:
        table.add_row(
            ui.bold(one["sha256"][:16]), ui.cell(_date(one)), ui.cell(f"{one['size']:,}"), _render_users(one)
        )
    return table


def render_module(module: JsonObject) -> RenderableType:
    """One module in full."""
    about = ui.unheaded_grid(2)
    about.add_row(ui.cell("uploaded", ui.DIM), ui.cell(_date(module)))
    about.add_row(ui.cell("bytes", ui.DIM), ui.cell(f"{module['size']:,}"))
    about.add_row(ui.cell("tasks", ui.DIM), _render_users(module))
    return ui.stack_parts(ui.bold(module["sha256"]), about)


def render_uploaded(answer: JsonObject) -> RenderableType:
    """A module that is kept."""
    state = "" if answer["is_new"] else ", which was there already"
    imports = answer["imports"]
    return Group(
        ui.done(f"module of {answer['size']:,} bytes{state}"),
        ui.indent(ui.bold(answer["sha256"])),
        ui.indent(
            ui.sentence(
                f"calls {ui.count_of(len(imports), 'function')} of its host: ", ui.join_names(imports)
            )
        )
        if imports
        else ui.indent(Text("calls nothing of its host", style=ui.DIM)),
        *filter(None, [ui.render_warnings(answer["warnings"])]),
    )


def render_removed(answer: JsonObject) -> RenderableType:
    """A module that is gone."""
    return ui.done("removed module ", ui.bold(answer["sha256"]))


def render_workload(workload: JsonObject) -> RenderableType:
    """What a task runs, with what, and how far."""
    about = ui.unheaded_grid(2)
    for arg in workload.get("args") or ():
        about.add_row(ui.cell("argument", ui.DIM), ui.cell(arg))
    for name, value in (workload.get("env") or {}).items():
        about.add_row(ui.cell("variable", ui.DIM), ui.cell(f"{name}={value}"))
    for name, value in (workload.get("limits") or {}).items():
        about.add_row(ui.cell(name, ui.DIM), ui.cell(f"{value:,}"))
    about.add_row(ui.cell("retries", ui.DIM), ui.cell(workload.get("retries", 0)))
    # The hash is as wide as it is: beside the other labels it would not fit into 80 columns.
    return Group(ui.sentence(Text("RUNS  ", style="bold"), ui.cell(workload["module"])), about)


def _date(module: JsonObject) -> str:
    return ui.render_time(module["at_ms"], ui.MINUTE_FORMAT)


def _render_users(module: JsonObject) -> Text:
    return ui.join_names(module["tasks"]) if module["tasks"] else ui.cell("none", ui.DIM)


_MOST_USED: Final = 0.8
_WORDS: Final = {
    "calls_per_minute": "calls/minute",
    "calls_per_day": "calls/day",
    "tokens_per_day": "tokens/day",
}


def render_budgets(budgets: Sequence[JsonObject], now_s: float) -> RenderableType:
    """One line a budget."""
    if not budgets:
        return Text("no budgets yet: set one with `toolgate keys add NAME --calls-per-minute N`")
    table = ui.grid("OF*", "BUDGET", "USED", "LIMIT", "RESETS IN")
    for column in table.columns[2:4]:
        column.justify = "right"
    for one in budgets:
        table.add_row(
            ui.bold(f"{one['holder_kind']} {one['holder_id']}"),
            ui.cell(name_budget(one["budget"])),
            ui.cell(f"{one['used']:,}", _choose_style(one)),
            ui.cell(f"{one['limit']:,}"),
            ui.cell(_render_span(one["resets_at_ms"] / 1e3 - now_s), ui.DIM),
        )
    return ui.stack_parts(table, Text("Calls that were granted to a node count as used.", style=ui.DIM))


def render_key_budgets(key: JsonObject) -> RenderableType:
    """What a key may use from now on."""
    limits = [f"{limit:,} {name_budget(name)}" for name, limit in (key.get("budgets") or {}).items() if limit]
    at_most = f"at most {', '.join(limits)}" if limits else "as much as there is"
    return ui.done("key ", ui.bold(key["key_id"]), f" may use {at_most}")


def name_budget(budget: str) -> str:
    """As it is shown: `calls/minute`."""
    return _WORDS.get(budget, budget)


def _choose_style(one: JsonObject) -> str:
    share = one["used"] / one["limit"]
    return ui.BAD if share >= 1 else ui.WARN if share >= _MOST_USED else ui.OK


def _render_span(seconds: float) -> str:
    whole = max(round(seconds), 0)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{whole} s"


def render_tasks(tasks: Sequence[JsonObject]) -> RenderableType:
    """One line a task: its servers, and whether its tools are on."""
    if not tasks:
        return Text("no tasks yet: add one with `toolgate tasks apply -f FILE`")
    table = ui.grid("TASK", "TOOLS", "NAME*", "SERVERS*")
    for task in tasks:
        config: JsonObject = task.get("config") or {}
        enabled = _decode(config.get("mcp.enabled")) is True
        table.add_row(
            ui.bold(task["task_id"]),
            ui.cell("on", ui.OK) if enabled else ui.cell("off", ui.DIM),
            ui.cell(task.get("display_name")),
            _render_servers(config),
        )
    return table


def render_task(task: JsonObject) -> RenderableType:
    """One task with its config, a key a line."""
    table = ui.grid("KEY", "VALUE*")
    for key, value in (task.get("config") or {}).items():
        table.add_row(ui.cell(key), ui.cell(value))
    title = ui.sentence(ui.bold(task["task_id"]), "  ", ui.cell(task.get("display_name"), ui.DIM))
    workload = task.get("workload")
    return ui.stack_parts(
        title, table if table.row_count else None, render_workload(workload) if workload else None
    )


def render_profiles(profiles: Sequence[JsonObject]) -> RenderableType:
    """One line a profile."""
    if not profiles:
        return Text("no profiles yet: add one with `toolgate profiles apply -f FILE`")
    table = ui.grid("PROFILE", "VERSION", "SERVERS", "TAGS", "ALLOW*", "DENY*")
    for profile in profiles:
        rollout: JsonObject | None = profile.get("rollout")
        version = ui.cell(profile.get("version"), ui.DIM)
        table.add_row(ui.bold(profile["profile_id"]), version, *_render_selection(profile))
        if rollout is not None:
            candidate = f"{rollout['version']} ({rollout['share']} % of {rollout['by']}s)"
            table.add_row("", ui.cell(candidate, ui.WARN), *_render_selection(rollout))
    return table


def _render_selection(version: JsonObject) -> list[RenderableType]:
    lists = (_render_list(version.get(part)) for part in ("servers", "tags", "allow"))
    return [*lists, ui.join_names(version.get("deny") or [])]


def render_versions(answer: JsonObject) -> RenderableType:
    """The versions of a profile, each with what became of its calls."""
    table = ui.grid("VERSION", "SHARE", "CALLS", "ERRORS", "DENIED", "P50", "P95")
    for one in answer["versions"]:
        title = f"{one['version']} {one['side'] or ''}".strip()
        table.add_row(
            ui.bold(title),
            ui.cell(f"{one['share']} %" if one["share"] else "-", ui.WARN if one["side"] else ui.DIM),
            *(ui.cell(f"{one[part]:,}") for part in ("calls", "errors", "denied")),
            *(ui.cell("-" if one[part] is None else f"{one[part]:,.1f} ms") for part in ("p50_ms", "p95_ms")),
        )
    return table


def render_keys(keys: Sequence[JsonObject], now_s: float) -> RenderableType:
    """One line a key: what it may reach and until when. A key itself is never shown."""
    if not keys:
        return Text("no keys yet: add one with `toolgate keys add NAME --role agent`")
    table = ui.grid("KEY", "ROLE", "EXPIRES", "REACHES*")
    for key in keys:
        table.add_row(
            ui.bold(key["key_id"]),
            ui.cell(key["role"]),
            _render_expiry(key.get("expires_at_s"), now_s),
            _render_reach(key),
        )
    return table


def render_new_key(key: JsonObject, file: Path | None = None) -> RenderableType:
    """The only time a key is shown, unless it went into a file."""
    head = ui.done("key ", ui.bold(key["key_id"]), " (", ui.cell(key.get("role")), ")")
    told = ui.render_warnings(key.get("warnings") or ())
    if file is not None:
        placed = ui.sentence(head, " is in ", ui.bold(file))
        return placed if told is None else Group(placed, told)
    return ui.stack_parts(
        head,
        told,
        Text(f"  {key['secret']}"),
        Group(
            Text("It is shown this once: the gateway keeps only its hash. Use it with", style=ui.WARN),
            Text("  export TOOLGATE_KEY=…", style=ui.DIM),
        ),
    )


def _render_servers(config: JsonObject) -> Text:
    servers = _decode(config.get("mcp.default_server_ids"))
    if isinstance(servers, list):
        return ui.join_names(map(str, servers))
    profile = _decode(config.get("mcp.profile"))
    return ui.cell(f"by profile {profile}" if profile else "all that the request names", ui.DIM)


def _decode(text: Any) -> Any:
    """A config value is JSON text; one that is not has been refused by the gateway long before."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def _render_list(values: Sequence[str] | None) -> Text:
    if values is None:
        return ui.cell("any", ui.DIM)
    return ui.join_names(values) if values else ui.cell("none", ui.WARN)


def _render_expiry(expires_at_s: int | None, now_s: float) -> Text:
    if expires_at_s is None:
        return ui.cell("never", ui.DIM)
    days = (expires_at_s - now_s) / 86_400
    if days < 0:
        return ui.cell("expired", ui.BAD)
    return ui.cell(f"in {days:.0f} days" if days >= 2 else f"in {days * 24:.0f} hours")


def _render_reach(key: JsonObject) -> Text:
    ceiling: JsonObject = key.get("ceiling") or {}
    parts = [
        ui.sentence(f"{label} ", _render_list(ceiling[label]))
        for label in ("tasks", "servers", "allow", "deny")
        if ceiling.get(label) is not None and (label != "deny" or ceiling[label])
    ]
    return Text("; ").join(parts) if parts else ui.cell("everything", ui.DIM)
