"""Scopes: what a URL shows, and why the rest is not among it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.budgets import name_budget
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
from toolgate.cli.render.pins import point_to_diff
from toolgate.cli.render.prices import FOUND, render_sum
from toolgate.model.names import PROMPT, RESOURCE, kind_of

_WORDS: Final = {PROMPT: "prompt", RESOURCE: "resource"}
Answer = Mapping[str, Any]
Decision = Mapping[str, Any]


def render_tools(answer: Answer) -> RenderableType:
    """The tools of a URL, what each costs a model, and the rule that lets each through."""
    tools: Sequence[Answer] = answer["tools"]
    table = grid("TOOL", "TOKENS", "ALLOWED BY", flexible={"ALLOWED BY"})
    table.columns[1].justify = "right"
    for tool in tools:
        table.add_row(cell(tool["name"], "bold"), cell(f"{tool['tokens']:,}"), cell(tool["rule"], DIM))
    return stack(
        table if tools else None, render_sum(answer, tools=len(tools)), warnings(answer.get("warnings") or ())
    )


def render_explanation(answer: Answer) -> RenderableType:
    """Every tool, in or out, grouped by the layer and rule that decided."""
    tools: Sequence[Decision] = answer["tools"]
    left_out = [one for one in answer["servers"] if not one["allowed"]]
    return stack(
        _refusal(answer["refusal"]),
        FOUND if answer.get("mode") == "find" else None,
        _profiles(answer.get("profiles") or ()),
        _visible([one for one in tools if one["allowed"]]),
        _hidden([one for one in tools if not one["allowed"]], left_out),
        _waiting(tools),
        _asking(tools),
        _shadowed(tools),
        _budgets(answer.get("budgets") or ()),
        _unverified(answer.get("unverified") or ()),
        warnings(answer["warnings"]),
    )


def _unverified(servers: Sequence[str]) -> RenderableType | None:
    if not servers:
        return None
    return sentence("as an earlier run knew them, and not verified since: ", names(servers))


def _profiles(profiles: Sequence[Answer]) -> RenderableType | None:
    """The versions of profiles in a rollout that decided."""
    rolling = [one for one in profiles if one["side"]]
    lines = (
        sentence(
            "profile ",
            cell(one["profile_id"], "bold"),
            f" version {one['version']} ({one['side']}, {one['share']} % of {one['by']}s)",
        )
        for one in rolling
    )
    return Group(*lines) if rolling else None


def _waiting(tools: Sequence[Decision]) -> RenderableType | None:
    held = sorted({one["server_id"] for one in tools if one["reason"] == "quarantined"})
    return point_to_diff(held) if held else None


def _asking(tools: Sequence[Decision]) -> RenderableType | None:
    """Tools whose calls wait for a person."""
    asking = [one for one in tools if one.get("approval")]
    if not asking:
        return None
    title = Text(f"each call of {count(len(asking), 'tool')} waits for a person", style=f"bold {WARN}")
    table = grid("SERVER", "TOOLS", "ASKED FOR BY", flexible={"TOOLS", "ASKED FOR BY"})
    for (server_id, rule), group in _grouped(asking, ("server_id", "approval")):
        table.add_row(cell(server_id, "bold"), names(map(_shown_name, group)), cell(rule, DIM))
    return Group(title, table)


def _shadowed(tools: Sequence[Decision]) -> RenderableType | None:
    """What is visible only because the policy of the task is not enforced."""
    lax = [{**one["shadow"], **_named(one)} for one in tools if one.get("shadow")]
    if not lax:
        return None
    verb = "is" if len(lax) == 1 else "are"
    title = Text(
        f"{_count_kinds(lax)} of these {verb} visible only because the task is not enforced",
        style=f"bold {WARN}",
    )
    column = _column_of(lax)
    table = grid("SERVER", column, "WOULD BE HIDDEN BY", flexible={column, "WOULD BE HIDDEN BY"})
    for (server_id, *why), group in _grouped(lax, ("server_id", "layer", "reason", "rule")):
        table.add_row(cell(server_id, "bold"), names(map(_shown_name, group)), _because(*why))
    return Group(title, table)


def _budgets(budgets: Sequence[Answer]) -> RenderableType | None:
    """What all calls together may use over time."""
    if not budgets:
        return None
    table = grid("OF", "AT MOST", flexible={"OF"})
    for one in budgets:
        at_most = f"{one['limit']:,} {name_budget(one['budget'])}"
        table.add_row(sentence(cell(one["layer"], "bold"), " ", cell(one["holder_id"])), cell(at_most))
    return Group(Text("calls take from these budgets: `toolgate budgets`", style="bold"), table)


def _named(decision: Decision) -> Decision:
    return {key: decision.get(key) for key in ("server_id", "tool", "native_name")}


def _shown_name(decision: Decision) -> str:
    """The name of a tool here; where that is an alias, with what its server calls it."""
    native = decision.get("native_name")
    return f"{decision['tool']} (`{native}`)" if native else str(decision["tool"])


def _refusal(refusal: Answer | None) -> RenderableType | None:
    if refusal is None:
        return None
    return Group(
        sentence(Text("refused: ", style=BAD), cell(refusal["message"])),
        sentence(Text("    try: ", style="bold"), cell(refusal["hint"])),
    )


def _visible(decisions: Sequence[Decision]) -> RenderableType:
    title = Text(f"{_count_kinds(decisions)} visible", style=f"bold {OK if decisions else WARN}")
    if not decisions:
        return title
    column = _column_of(decisions)
    table = grid("SERVER", column, "ALLOWED BY", flexible={column, "ALLOWED BY"})
    for (server_id, layer, rule), group in _grouped(decisions, ("server_id", "layer", "rule")):
        because = sentence(cell(layer, "bold"), ": ", cell(rule, DIM))
        table.add_row(cell(server_id, "bold"), names(map(_shown_name, group)), because)
    return Group(title, table)


def _hidden(tools: Sequence[Decision], servers: Sequence[Decision]) -> RenderableType | None:
    """A server left out whole is one line, however many tools it is known to have."""
    if not tools and not servers:
        return None
    left_out = {one["server_id"] for one in servers}
    column = _column_of(tools)
    table = grid("SERVER", column, "HIDDEN BY", flexible={column, "HIDDEN BY"})
    single = [one for one in tools if one["server_id"] not in left_out]
    for (server_id, *why), group in _grouped(single, ("server_id", "layer", "reason", "rule")):
        table.add_row(cell(server_id, "bold"), names(map(_shown_name, group)), _because(*why))
    for one in servers:
        known = sum(tool["server_id"] == one["server_id"] for tool in tools)
        shown = cell(f"all {known} of them" if known else "all of them", DIM)
        table.add_row(
            cell(one["server_id"], "bold"), shown, _because(one["layer"], one["reason"], one["rule"])
        )
    return Group(Text(_hidden_count(tools, servers), style=f"bold {WARN}"), table)


def _hidden_count(tools: Sequence[Decision], servers: Sequence[Decision]) -> str:
    parts = [
        _count_kinds(tools) if tools else "",
        count(len(servers), "whole server") if servers else "",
    ]
    return f"{', '.join(filter(None, parts))} hidden"


def _column_of(decisions: Sequence[Decision]) -> str:
    return "NAMES" if any(kind_of(one["tool"]) for one in decisions) else "TOOLS"


def _count_kinds(decisions: Sequence[Decision]) -> str:
    """`3 tools`, and prompts and resources beside them where there are any."""
    kinds = Counter(kind_of(one["tool"]) for one in decisions)
    parts = [count(kinds[""], "tool")] if kinds[""] or not decisions else []
    parts += [count(kinds[kind], word) for kind, word in _WORDS.items() if kinds[kind]]
    return ", ".join(parts)


def _because(layer: str, reason: str, rule: str) -> Text:
    head = sentence(cell(layer, "bold"), ": ", cell(reason))
    return Text("\n").join([head, cell(rule, DIM)]) if rule else head


def _grouped(
    decisions: Iterable[Decision], keys: Sequence[str]
) -> list[tuple[tuple[Any, ...], list[Decision]]]:
    """Decisions with the same `keys`, in the order in which the first of each came."""
    groups: dict[tuple[Any, ...], list[Decision]] = {}
    for one in decisions:
        groups.setdefault(tuple(one.get(key) for key in keys), []).append(one)
    return list(groups.items())
