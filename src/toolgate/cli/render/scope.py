"""Scopes: the tools of a URL, and why the others are not among them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import (
    BAD,
    DIM,
    OK,
    WARN,
    cell,
    count,
    grid,
    names,
    sentence,
    stack,
    warnings,
)

Answer = Mapping[str, Any]
Decision = Mapping[str, Any]


def render_tools(answer: Answer) -> RenderableType:
    """The tools of a URL, what each costs a model, and the rule that lets each through."""
    tools: Sequence[Answer] = answer["tools"]
    table = grid("TOOL", "TOKENS", "ALLOWED BY", flexible="ALLOWED BY")
    table.columns[1].justify = "right"
    for tool in tools:
        table.add_row(cell(tool["name"], "bold"), cell(f"{tool['tokens']:,}"), cell(tool["rule"], DIM))
    return stack(table if tools else None, _summary(answer), warnings(answer.get("warnings") or ()))


def render_explanation(answer: Answer) -> RenderableType:
    """Every tool, in or out, grouped by the layer and rule that decided."""
    decisions = [*answer.get("tools", ()), *answer.get("servers", ())]
    visible = [one for one in decisions if one["allowed"] and one.get("tool") is not None]
    hidden = [one for one in decisions if not one["allowed"]]
    return stack(
        _refusal(answer.get("refusal")),
        _visible(visible),
        _hidden(hidden),
        warnings(answer.get("warnings") or ()),
    )


def _summary(answer: Answer) -> RenderableType:
    seen, registered = answer["tokens"], answer["registered_tokens"]
    saved = f", {1 - seen / registered:.0%} less" if 0 < seen < registered else ""
    return Group(
        sentence(
            Text(count(len(answer["tools"]), "tool"), style="bold"),
            f" of {answer['registered_tools']:,}, {seen:,} of {registered:,} tokens{saved}",
        ),
        sentence("at ", cell(answer.get("url"), "bold")),
    )


def _refusal(refusal: Answer | None) -> RenderableType | None:
    if refusal is None:
        return None
    return Group(
        sentence(Text("refused: ", style=BAD), cell(refusal["message"])),
        sentence(Text("    try: ", style="bold"), cell(refusal["hint"])),
    )


def _visible(decisions: Sequence[Decision]) -> RenderableType:
    title = Text(f"{count(len(decisions), 'tool')} visible", style=f"bold {OK if decisions else WARN}")
    if not decisions:
        return title
    table = grid("SERVER", "TOOLS", "ALLOWED BY", flexible="TOOLS")
    _wrap_last(table)
    for (server_id, layer, rule), group in _grouped(decisions, ("server_id", "layer", "rule")):
        table.add_row(cell(server_id, "bold"), names(one["tool"] for one in group), _because(layer, rule))
    return Group(title, table)


def _hidden(decisions: Sequence[Decision]) -> RenderableType | None:
    if not decisions:
        return None
    title = Text(_hidden_count(decisions), style=f"bold {WARN}")
    table = grid("SERVER", "TOOLS", "HIDDEN BY", flexible="TOOLS")
    _wrap_last(table)
    keys = ("server_id", "layer", "reason", "rule")
    for (server_id, layer, reason, rule), group in _grouped(decisions, keys):
        tools = [one["tool"] for one in group if one.get("tool") is not None]
        shown = names(tools) if tools else cell("all of them", DIM)
        table.add_row(cell(server_id, "bold"), shown, _because(layer, rule, reason))
    return Group(title, table)


def _hidden_count(decisions: Sequence[Decision]) -> str:
    tools = sum(1 for one in decisions if one.get("tool") is not None)
    servers = len(decisions) - tools
    parts = [count(tools, "tool") if tools else "", count(servers, "whole server") if servers else ""]
    return f"{' and '.join(filter(None, parts))} hidden"


def _because(layer: str, rule: str, reason: str | None = None) -> Text:
    head = sentence(cell(layer, "bold"), cell(f": {reason}" if reason else ""))
    return Text("\n").join([head, cell(rule, DIM)]) if rule else head


def _wrap_last(table: Any) -> None:
    """The rule beside the tools may need several lines as well."""
    last = table.columns[-1]
    last.no_wrap = False
    last.ratio = 1
    last.overflow = "fold"


def _grouped(
    decisions: Iterable[Decision], keys: Sequence[str]
) -> list[tuple[tuple[Any, ...], list[Decision]]]:
    """Decisions with the same `keys`, in the order in which the first of each came."""
    groups: dict[tuple[Any, ...], list[Decision]] = {}
    for one in decisions:
        groups.setdefault(tuple(one.get(key) for key in keys), []).append(one)
    return list(groups.items())
