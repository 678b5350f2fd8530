"""Tasks, profiles, keys, quotas, and the modules that tasks run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject

_MOST_USED: Final = 0.8  # early enough to act before calls fail
_QUOTA_WORDS: Final = {
    "calls_per_minute": "calls/minute",
    "calls_per_day": "calls/day",
    "tokens_per_day": "tokens/day",
}


def render_modules(response: JsonObject) -> RenderableType:
    if not response["modules"]:
        return Text("no modules: upload one with `toolgate modules upload FILE`")
    rows = (
        (ui.bold(one["sha256"][:16]), _render_date(one), f"{one['size']:,}", _render_users(one))
        for one in response["modules"]
    )
    return ui.grid("MODULE", "UPLOADED", "BYTES", "TASKS*", rows=rows)


def render_module(module: JsonObject) -> RenderableType:
    about = {
        "uploaded": _render_date(module),
        "bytes": f"{module['size']:,}",
        "tasks": _render_users(module),
    }
    return ui.stack_parts(ui.bold(module["sha256"]), ui.fact_table(about, ui.DIM))


def render_uploaded(response: JsonObject) -> RenderableType:
    state = "" if response["is_new"] else ", already uploaded"
    used = Text("imports no host functions", ui.DIM)
    if imports := response["imports"]:
        used = ui.sentence(f"imports {ui.count_of(len(imports), 'host function')}: ", ui.join_names(imports))
    return ui.group_parts(
        ui.done(f"module of {response['size']:,} bytes{state}"),
        ui.indent(ui.bold(response["sha256"])),
        ui.indent(used),
        ui.render_warnings(response["warnings"]),
    )


def _render_workload(workload: JsonObject) -> RenderableType:
    rows = [
        *(("argument", arg) for arg in workload.get("args") or ()),
        *(("variable", f"{name}={value}") for name, value in (workload.get("env") or {}).items()),
        *((name, f"{value:,}") for name, value in (workload.get("limits") or {}).items()),
        ("retries", workload.get("retries", 0)),
    ]
    about = ui.unheaded_grid(2, ((ui.cell(label, ui.DIM), value) for label, value in rows))
    # Next to the other labels, the hash does not fit in 80 columns.
    return Group(ui.sentence(Text("RUNS  ", style="bold"), ui.cell(workload["module"])), about)


def _render_date(module: JsonObject) -> str:
    return ui.render_time(module["at_ms"], ui.MINUTE_FORMAT)


def _render_users(module: JsonObject) -> Text:
    return ui.join_names(module["tasks"]) if module["tasks"] else ui.cell("none", ui.DIM)


def render_budgets(budgets: Sequence[JsonObject], now_s: float) -> RenderableType:
    """One line per quota: how much of it is used, and when it resets."""
    if not budgets:
        return Text("no quotas: set one with `toolgate keys create NAME --calls-per-minute N`")
    table = ui.grid("HOLDER*", "QUOTA", ">USED", ">LIMIT", "RESETS IN")
    for one in budgets:
        share, left_s = one["used"] / one["limit"], max(round(one["resets_at_ms"] / 1e3 - now_s), 0)
        hours, minutes = left_s // 3600, left_s % 3600 // 60
        left = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{left_s} s"
        table.add_row(
            ui.bold(f"{one['holder_kind']} {one['holder_id']}"),
            name_budget(one["budget"]),
            ui.cell(f"{one['used']:,}", ui.BAD if share >= 1 else ui.WARN if share >= _MOST_USED else ui.OK),
            f"{one['limit']:,}",
            ui.cell(left, ui.DIM),
        )
    return ui.stack_parts(table, Text("Calls leased to a node count as used.", style=ui.DIM))


def render_key_budgets(key: JsonObject) -> RenderableType:
    limits = _join_limits(key)
    return ui.done("key ", ui.bold(key["key_id"]), f" has quotas: {limits}" if limits else " has no quotas")


def _join_limits(key: JsonObject) -> str:
    budgets = (key.get("budgets") or {}).items()
    return ", ".join(f"{limit:,} {name_budget(name)}" for name, limit in budgets if limit)


def name_budget(budget: str) -> str:
    """The shown name of a quota: `calls/minute`."""
    return _QUOTA_WORDS.get(budget, budget)


def render_tasks(tasks: Sequence[JsonObject]) -> RenderableType:
    """One line per task: its servers, and whether its tools are on."""
    if not tasks:
        return Text("no tasks: add one with `toolgate tasks apply -f FILE`")
    table = ui.grid("TASK", "TOOLS", "NAME*", "SERVERS*")
    for task in tasks:
        config: JsonObject = task.get("config") or {}
        is_on = _decode(config.get("mcp.enabled")) is True
        servers, profile = _decode(config.get("mcp.default_server_ids")), _decode(config.get("mcp.profile"))
        table.add_row(
            ui.bold(task["task_id"]),
            ui.cell("on", ui.OK) if is_on else ui.cell("off", ui.DIM),
            task.get("display_name"),
            ui.join_names(map(str, servers))
            if isinstance(servers, list)
            else ui.cell(f"those of profile {profile}" if profile else "those of the request", ui.DIM),
        )
    return table


def render_task(task: JsonObject) -> RenderableType:
    config, workload = task.get("config") or {}, task.get("workload")
    return ui.stack_parts(
        ui.sentence(ui.bold(task["task_id"]), "  ", ui.cell(task.get("display_name"), ui.DIM)),
        ui.grid("KEY", "VALUE*", rows=config.items()) if config else None,
        _render_workload(workload) if workload else None,
    )


def render_profiles(profiles: Sequence[JsonObject]) -> RenderableType:
    """One line per profile, and one for its next version."""
    if not profiles:
        return Text("no profiles: add one with `toolgate profiles apply -f FILE`")
    rows: list[Sequence[Any]] = []
    for profile in profiles:
        version = ui.cell(profile.get("version"), ui.DIM)
        rows.append((ui.bold(profile["profile_id"]), version, *_render_selection(profile)))
        if rollout := profile.get("rollout"):
            candidate = f"{rollout['version']} ({rollout['share']} % of {rollout['by']}s)"
            rows.append(("", ui.cell(candidate, ui.WARN), *_render_selection(rollout)))
    return ui.grid("PROFILE", "VERSION", "SERVERS", "TAGS", "ALLOW*", "DENY*", rows=rows)


def render_profile(profile: JsonObject) -> RenderableType:
    """One profile: its version, and the next one during a rollout."""
    about = {"profile": ui.bold(profile["profile_id"]), **_list_selection(profile)}
    facts = ui.fact_table({**about, "revision": profile.get("revision")}, ui.DIM)
    rollout = profile.get("rollout")
    if not rollout:
        return facts
    share = f"{rollout['share']} % of {rollout.get('by', 'caller')}s"
    following = ui.fact_table({"share": share, **_list_selection(rollout)}, ui.DIM)
    return ui.stack_parts(facts, Group(Text("next version", style=f"bold {ui.WARN}"), ui.indent(following)))


def _list_selection(version: JsonObject) -> dict[str, Any]:
    """The lists of one version; those of an environment replace them there."""
    lists = {name: version.get(name) for name in ("servers", "tags", "allow", "deny")}
    environments = version.get("environments") or {}
    return {
        "version": version.get("version"),
        **{name: None if values is None else _render_list(values) for name, values in lists.items()},
        **{f"in {name}": ui.encode_json(selection) for name, selection in environments.items()},
    }


def _render_selection(version: JsonObject) -> list[RenderableType]:
    lists = (_render_list(version.get(part)) for part in ("servers", "tags", "allow"))
    return [*lists, ui.join_names(version.get("deny") or [])]


def render_versions(response: JsonObject) -> RenderableType:
    table = ui.grid("VERSION", "SHARE", "CALLS", "ERRORS", "DENIED", "P50", "P95")
    for one in response["versions"]:
        table.add_row(
            ui.bold(f"{one['version']} {one['side'] or ''}".strip()),
            ui.cell(f"{one['share']} %" if one["share"] else "-", ui.WARN if one["side"] else ui.DIM),
            *(f"{one[part]:,}" for part in ("calls", "errors", "denied")),
            *("-" if one[part] is None else f"{one[part]:,.1f} ms" for part in ("p50_ms", "p95_ms")),
        )
    return table


def render_keys(keys: Sequence[JsonObject], now_s: float) -> RenderableType:
    """One line per key: its reach and its expiry. The key itself is never shown."""
    if not keys:
        return Text("no keys: create one with `toolgate keys create NAME --role agent`")
    rows = (
        (
            ui.bold(key["key_id"]),
            key["role"],
            _render_expiry(key.get("expires_at_s"), now_s),
            _render_reach(key),
        )
        for key in keys
    )
    return ui.grid("KEY", "ROLE", "EXPIRES", "REACHES*", rows=rows)


def render_key(key: JsonObject, now_s: float) -> RenderableType:
    """Everything about one key but the key itself, which the gateway does not have."""
    return ui.fact_table(
        {
            "key": ui.bold(key["key_id"]),
            "role": key["role"],
            "expires": _render_expiry(key.get("expires_at_s"), now_s),
            "reaches": _render_reach(key),
            "default task": key.get("default_task"),
            "quotas": _join_limits(key),
            "integrations": key.get("integrations"),
            "revision": key.get("revision"),
        },
        ui.DIM,
    )


def render_new_key(key: JsonObject, file: Path | None = None) -> RenderableType:
    """A new key, shown this once unless it is in a file."""
    head = ui.done("key ", ui.bold(key["key_id"]), " (", ui.cell(key.get("role")), ")")
    warnings = ui.render_warnings(key.get("warnings") or ())
    if file is not None:
        return ui.group_parts(ui.sentence(head, " is in ", ui.bold(file)), warnings)
    return ui.stack_parts(
        head,
        warnings,
        Text(f"  {key['secret']}"),
        Group(
            Text("The key is shown only now: the gateway stores its hash. To use it, run:", style=ui.WARN),
            Text("  export TOOLGATE_KEY=…", style=ui.DIM),
        ),
    )


def _decode(text: Any) -> Any:
    """A config value is JSON text; the gateway rejects anything else."""
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
