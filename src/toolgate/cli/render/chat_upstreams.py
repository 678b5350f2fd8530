"""Chat upstreams: the list, one in full, and what came of trying one."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import (
    BAD,
    DIM,
    OK,
    WARN,
    cell,
    count_of,
    fact_table,
    grid,
    indent,
    join_names,
    sentence,
    stack_parts,
)

JsonObject = Mapping[str, Any]

MAX_NAMED: Final = 50
"""Of the models that a trial found."""


def render_chat_upstreams(upstreams: Sequence[JsonObject]) -> RenderableType:
    """One line an upstream: where it is, and what it is asked for."""
    if not upstreams:
        return Text("no chat upstreams yet: add one with `toolgate chat-upstreams apply -f FILE`")
    table = grid("UPSTREAM", "STATE", "MODE", "MODELS", "URL", flexible={"MODELS", "URL"})
    for one in upstreams:
        table.add_row(
            cell(one["upstream_id"], "bold"),
            _state(one),
            cell(one["mode"]),
            join_names(one["models"]),
            cell(one["base_url"]),
        )
    return table


def render_chat_upstream(upstream: JsonObject) -> RenderableType:
    """Everything about one upstream. Secrets come masked from the gateway."""
    table = fact_table(2)
    for label, value in _details(upstream):
        if value.plain:
            table.add_row(cell(label, DIM), value)
    return table


def render_chat_trial(upstream_id: str, report: JsonObject) -> RenderableType:
    """What an upstream said when it was asked for its models."""
    name = cell(upstream_id, "bold")
    if not report["ok"]:
        said = sentence(Text("✗ ", style=BAD), name, ": ", cell(report["error"]))
        return Group(said, *([indent(cell(report["hint"]))] if report["hint"] else []))
    admitted: Sequence[str] = report["admitted"]
    found = sentence(
        Text("✓ ", style=OK), name, f": {count_of(report['found'], 'model')} in {report['took_ms']:,} ms"
    )
    none = cell("its patterns admit none of them: callers get no model of it", WARN)
    return stack_parts(
        found,
        _models("callers get", admitted) if admitted else none,
        _models("callers do not get", report["others"]),
    )


def _state(upstream: JsonObject) -> Text:
    return cell("enabled", OK) if upstream["enabled"] else cell("disabled", DIM)


def _details(upstream: JsonObject) -> list[tuple[str, Text]]:
    headers: JsonObject = upstream["headers"]
    budgets: JsonObject = upstream["budgets"]
    return [
        ("upstream", cell(upstream["upstream_id"], "bold")),
        ("name", cell(upstream["display_name"])),
        ("state", _state(upstream)),
        ("url", cell(upstream["base_url"])),
        ("models", join_names(upstream["models"])),
        ("secret", cell(upstream.get("auth_ref"))),
        ("headers", join_names(f"{name}: {value}" for name, value in headers.items())),
        ("mode", cell(upstream["mode"])),
        ("names", cell(upstream["name_profile"])),
        ("other tools", cell(upstream["other_tools"])),
        ("undeclared calls", cell("filtered" if upstream["filter_undeclared_calls"] else "")),
        ("budgets", cell(", ".join(f"{name} {value:,}" for name, value in budgets.items()))),
        ("answer within", cell(f"{upstream['answer_timeout_ms']:,} ms")),
        ("at once", cell(f"{upstream['max_concurrency']:,}")),
        ("revision", cell(upstream["revision"])),
    ]


def _models(title: str, models: Sequence[str]) -> RenderableType | None:
    if not models:
        return None
    more = [f"and {len(models) - MAX_NAMED:,} more"] if len(models) > MAX_NAMED else []
    return Group(cell(f"{title}:", DIM), indent(join_names([*models[:MAX_NAMED], *more])))
