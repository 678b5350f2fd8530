"""Chat upstreams: the list, one in full, and what came of trying one."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject

MAX_NAMED: Final = 50
"""Of the models that a trial found."""


def render_chat_upstreams(upstreams: Sequence[JsonObject]) -> RenderableType:
    """One line an upstream: where it is, and what it is asked for."""
    if not upstreams:
        return Text("no chat upstreams yet: add one with `toolgate chat-upstreams apply -f FILE`")
    table = ui.grid("UPSTREAM", "STATE", "MODE", "MODELS*", "URL*")
    for one in upstreams:
        table.add_row(
            ui.bold(one["upstream_id"]),
            _state(one),
            ui.cell(one["mode"]),
            ui.join_names(one["models"]),
            ui.cell(one["base_url"]),
        )
    return table


def render_chat_upstream(upstream: JsonObject) -> RenderableType:
    """Everything about one upstream. Secrets come masked from the gateway."""
    table = ui.unheaded_grid(2)
    for label, value in _details(upstream):
        if value.plain:
            table.add_row(ui.cell(label, ui.DIM), value)
    return table


def render_chat_trial(upstream_id: str, report: JsonObject) -> RenderableType:
    """What an upstream said when it was asked for its models."""
    name = ui.bold(upstream_id)
    if not report["ok"]:
        head = ui.failed(name, ": ", ui.cell(report["error"]))
        return Group(head, *([ui.indent(ui.cell(report["hint"]))] if report["hint"] else []))
    admitted: Sequence[str] = report["admitted"]
    found = ui.sentence(
        Text("✓ ", style=ui.OK),
        name,
        f": {ui.count_of(report['found'], 'model')} in {report['took_ms']:,} ms",
    )
    none = ui.cell("its patterns admit none of them: callers get no model of it", ui.WARN)
    return ui.stack_parts(
        found,
        _models("callers get", admitted) if admitted else none,
        _models("callers do not get", report["others"]),
    )


def _state(upstream: JsonObject) -> Text:
    return ui.cell("enabled", ui.OK) if upstream["enabled"] else ui.cell("disabled", ui.DIM)


def _details(upstream: JsonObject) -> list[tuple[str, Text]]:
    headers: JsonObject = upstream["headers"]
    budgets: JsonObject = upstream["budgets"]
    return [
        ("upstream", ui.bold(upstream["upstream_id"])),
        ("name", ui.cell(upstream["display_name"])),
        ("state", _state(upstream)),
        ("url", ui.cell(upstream["base_url"])),
        ("models", ui.join_names(upstream["models"])),
        ("secret", ui.cell(upstream.get("auth_ref"))),
        ("headers", ui.join_names(f"{name}: {value}" for name, value in headers.items())),
        ("mode", ui.cell(upstream["mode"])),
        ("names", ui.cell(upstream["name_profile"])),
        ("other tools", ui.cell(upstream["other_tools"])),
        ("undeclared calls", ui.cell("filtered" if upstream["filter_undeclared_calls"] else "")),
        ("budgets", ui.cell(", ".join(f"{name} {value:,}" for name, value in budgets.items()))),
        ("answer within", ui.cell(f"{upstream['answer_timeout_ms']:,} ms")),
        ("at once", ui.cell(f"{upstream['max_concurrency']:,}")),
        ("revision", ui.cell(upstream["revision"])),
    ]


def _models(title: str, models: Sequence[str]) -> RenderableType | None:
    if not models:
        return None
    more = [f"and {len(models) - MAX_NAMED:,} more"] if len(models) > MAX_NAMED else []
    return Group(ui.cell(f"{title}:", ui.DIM), ui.indent(ui.join_names([*models[:MAX_NAMED], *more])))
