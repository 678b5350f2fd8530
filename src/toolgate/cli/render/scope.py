"""Scopes: what a URL shows, why the rest is hidden, and what definitions cost a model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.pins import point_to_diff
from toolgate.cli.render.records import name_budget
from toolgate.model.names import PROMPT, RESOURCE, kind_of

FIND_MODE_NOTE: Final = Text("mode find: clients see three tools, which find and call these")


def render_price(answer: JsonObject) -> RenderableType:
    """The dearest first; or why there is nothing to pay for."""
    prices: Mapping[str, int] = answer["prices"]
    table = ui.grid("TOOL", ">TOKENS", ">SHARE")
    for name, tokens in sorted(prices.items(), key=lambda item: (-item[1], item[0])):
        share = f"{tokens / max(answer['tokens'], 1):.0%}"
        table.add_row(ui.bold(name), ui.cell(f"{tokens:,}"), ui.cell(share, ui.DIM))
    refusal = answer["refusal"]
    return ui.stack_parts(
        ui.sentence(Text("refused: ", style=ui.BAD), ui.cell(refusal["message"])) if refusal else None,
        table if prices else None,
        render_sum(answer, tools=len(prices)),
        ui.render_warnings(answer["warnings"]),
    )


def render_sum(answer: JsonObject, *, tools: int) -> RenderableType:
    """How much of all there is a URL shows, and how it is shown there."""
    return Group(
        ui.sentence(
            Text(ui.count_of(tools, "tool"), style="bold"),
            f" of {answer['registered_tools']:,}, {describe_saving(answer)}",
        ),
        ui.sentence("at ", ui.bold(answer["url"])),
        *([FIND_MODE_NOTE] if answer["mode"] == "find" else []),
    )


def describe_saving(answer: JsonObject) -> str:
    """`420 of 9,000 tokens, 95% less`: a scope compared with all there is."""
    seen, registered = answer["tokens"], answer["registered_tokens"]
    less = f", {1 - seen / registered:.0%} less" if 0 < seen < registered else ""
    return f"{seen:,} of {registered:,} tokens{less}"


_WORDS: Final = {PROMPT: "prompt", RESOURCE: "resource"}
Decision = Mapping[str, Any]


def render_tools(answer: JsonObject) -> RenderableType:
    """The tools of a URL, what each costs a model, and the rule that lets each through."""
    tools: Sequence[JsonObject] = answer["tools"]
    table = ui.grid("TOOL", ">TOKENS", "ALLOWED BY*")
    for tool in tools:
        table.add_row(ui.bold(tool["name"]), ui.cell(f"{tool['tokens']:,}"), ui.cell(tool["rule"], ui.DIM))
    return ui.stack_parts(
        table if tools else None,
        render_sum(answer, tools=len(tools)),
        ui.render_warnings(answer.get("warnings") or ()),
    )


def render_explanation(answer: JsonObject) -> RenderableType:
    """Every tool, in or out, grouped by the layer and rule that decided."""
    tools: Sequence[Decision] = answer["tools"]
    left_out = [one for one in answer["servers"] if not one["allowed"]]
    return ui.stack_parts(
        _render_refusal(answer["refusal"]),
        FIND_MODE_NOTE if answer.get("mode") == "find" else None,
        _render_rollouts(answer.get("profiles") or ()),
        _render_visible([one for one in tools if one["allowed"]]),
        _render_hidden([one for one in tools if not one["allowed"]], left_out),
        _render_quarantined(tools),
        _render_approvals(tools),
        _render_shadowed(tools),
        _render_quotas(answer.get("budgets") or ()),
        _unverified(answer.get("unverified") or ()),
        ui.render_warnings(answer["warnings"]),
    )


def _unverified(servers: Sequence[str]) -> RenderableType | None:
    if not servers:
        return None
    return ui.sentence("as an earlier run knew them, and not verified since: ", ui.join_names(servers))


def _render_rollouts(profiles: Sequence[JsonObject]) -> RenderableType | None:
    """The versions of profiles in a rollout that decided."""
    rolling = [one for one in profiles if one["side"]]
    lines = (
        ui.sentence(
            "profile ",
            ui.bold(one["profile_id"]),
            f" version {one['version']} ({one['side']}, {one['share']} % of {one['by']}s)",
        )
        for one in rolling
    )
    return Group(*lines) if rolling else None


def _render_quarantined(tools: Sequence[Decision]) -> RenderableType | None:
    held = sorted({one["server_id"] for one in tools if one["reason"] == "quarantined"})
    return point_to_diff(held) if held else None


def _render_approvals(tools: Sequence[Decision]) -> RenderableType | None:
    """Tools whose calls wait for a person."""
    asking = [one for one in tools if one.get("approval")]
    if not asking:
        return None
    title = Text(
        f"each call of {ui.count_of(len(asking), 'tool')} waits for a person", style=f"bold {ui.WARN}"
    )
    table = ui.grid("SERVER", "TOOLS*", "ASKED FOR BY*")
    for (server_id, rule), group in _group_decisions(asking, ("server_id", "approval")):
        table.add_row(ui.bold(server_id), ui.join_names(map(_shown_name, group)), ui.cell(rule, ui.DIM))
    return Group(title, table)


def _render_shadowed(tools: Sequence[Decision]) -> RenderableType | None:
    """What is visible only because the policy of the task is not enforced."""
    lax = [{**one["shadow"], **_keep_names(one)} for one in tools if one.get("shadow")]
    if not lax:
        return None
    verb = "is" if len(lax) == 1 else "are"
    title = Text(
        f"{_count_kinds(lax)} of these {verb} visible only because the task is not enforced",
        style=f"bold {ui.WARN}",
    )
    column = _column_of(lax)
    table = ui.grid("SERVER", f"{column}*", "WOULD BE HIDDEN BY*")
    for (server_id, *why), group in _group_decisions(lax, ("server_id", "layer", "reason", "rule")):
        table.add_row(ui.bold(server_id), ui.join_names(map(_shown_name, group)), _render_reason(*why))
    return Group(title, table)


def _render_quotas(budgets: Sequence[JsonObject]) -> RenderableType | None:
    """What all calls together may use over time."""
    if not budgets:
        return None
    table = ui.grid("OF*", "AT MOST")
    for one in budgets:
        at_most = f"{one['limit']:,} {name_budget(one['budget'])}"
        table.add_row(ui.sentence(ui.bold(one["layer"]), " ", ui.cell(one["holder_id"])), ui.cell(at_most))
    return Group(Text("calls take from these budgets: `toolgate budgets`", style="bold"), table)


def _keep_names(decision: Decision) -> Decision:
    return {key: decision.get(key) for key in ("server_id", "tool", "native_name")}


def _shown_name(decision: Decision) -> str:
    """The name of a tool here; where that is an alias, with what its server calls it."""
    native = decision.get("native_name")
    return f"{decision['tool']} (`{native}`)" if native else str(decision["tool"])


def _render_refusal(refusal: JsonObject | None) -> RenderableType | None:
    if refusal is None:
        return None
    return Group(
        ui.sentence(Text("refused: ", style=ui.BAD), ui.cell(refusal["message"])),
        ui.sentence(Text("    try: ", style="bold"), ui.cell(refusal["hint"])),
    )


def _render_visible(decisions: Sequence[Decision]) -> RenderableType:
    title = Text(f"{_count_kinds(decisions)} visible", style=f"bold {ui.OK if decisions else ui.WARN}")
    if not decisions:
        return title
    column = _column_of(decisions)
    table = ui.grid("SERVER", f"{column}*", "ALLOWED BY*")
    for (server_id, layer, rule), group in _group_decisions(decisions, ("server_id", "layer", "rule")):
        because = ui.sentence(ui.bold(layer), ": ", ui.cell(rule, ui.DIM))
        table.add_row(ui.bold(server_id), ui.join_names(map(_shown_name, group)), because)
    return Group(title, table)


def _render_hidden(tools: Sequence[Decision], servers: Sequence[Decision]) -> RenderableType | None:
    """A server left out whole is one line, however many tools it is known to have."""
    if not tools and not servers:
        return None
    left_out = {one["server_id"] for one in servers}
    column = _column_of(tools)
    table = ui.grid("SERVER", f"{column}*", "HIDDEN BY*")
    single = [one for one in tools if one["server_id"] not in left_out]
    for (server_id, *why), group in _group_decisions(single, ("server_id", "layer", "reason", "rule")):
        table.add_row(ui.bold(server_id), ui.join_names(map(_shown_name, group)), _render_reason(*why))
    for one in servers:
        known = sum(tool["server_id"] == one["server_id"] for tool in tools)
        shown = ui.cell(f"all {known} of them" if known else "all of them", ui.DIM)
        table.add_row(
            ui.bold(one["server_id"]), shown, _render_reason(one["layer"], one["reason"], one["rule"])
        )
    return Group(Text(_hidden_count(tools, servers), style=f"bold {ui.WARN}"), table)


def _hidden_count(tools: Sequence[Decision], servers: Sequence[Decision]) -> str:
    parts = [
        _count_kinds(tools) if tools else "",
        ui.count_of(len(servers), "whole server") if servers else "",
    ]
    return f"{', '.join(filter(None, parts))} hidden"


def _column_of(decisions: Sequence[Decision]) -> str:
    return "NAMES" if any(kind_of(one["tool"]) for one in decisions) else "TOOLS"


def _count_kinds(decisions: Sequence[Decision]) -> str:
    """`3 tools`, and with prompts and resources, if there are any."""
    kinds = Counter(kind_of(one["tool"]) for one in decisions)
    parts = [ui.count_of(kinds[""], "tool")] if kinds[""] or not decisions else []
    parts += [ui.count_of(kinds[kind], word) for kind, word in _WORDS.items() if kinds[kind]]
    return ", ".join(parts)


def _render_reason(layer: str, reason: str, rule: str) -> Text:
    head = ui.sentence(ui.bold(layer), ": ", ui.cell(reason))
    return Text("\n").join([head, ui.cell(rule, ui.DIM)]) if rule else head


def _group_decisions(
    decisions: Iterable[Decision], keys: Sequence[str]
) -> list[tuple[tuple[Any, ...], list[Decision]]]:
    """Decisions with the same `keys`, in the order in which the first of each came."""
    groups: dict[tuple[Any, ...], list[Decision]] = {}
    for one in decisions:
        groups.setdefault(tuple(one.get(key) for key in keys), []).append(one)
    return list(groups.items())


_LATE: Final = "; the last minute comes in with the next"


def render_token_tasks(answer: JsonObject) -> RenderableType:
    """A line for each task, the costliest first."""
    return _render_token_table(answer, "TASK", [(one["task_id"] or "(none)", one) for one in answer["tasks"]])


def render_token_days(answer: JsonObject) -> RenderableType:
    """A line for each day."""
    return _render_token_table(answer, "DAY (UTC)", [(one["day"], one) for one in answer["days"]])


def _render_token_table(answer: JsonObject, what: str, rows: list[tuple[str, JsonObject]]) -> RenderableType:
    if not rows:
        return ui.sentence(
            f"nothing was listed or called from {answer['since']} to {answer['until']}",
            Text(_LATE, style=ui.DIM),
        )
    table = ui.grid(
        *(f"{what}*", ">LISTS", ">DEFINITIONS", ">SAVED", ">CALLS", ">RESULTS"),
        rows=(
            (
                ui.bold(name),
                f"{one['lists']:,}",
                f"{one['definition_tokens']:,}",
                ui.cell(f"{one['saved_tokens']:,}", ui.OK if one["saved_tokens"] > 0 else ""),
                f"{one['calls']:,}",
                f"{one['result_tokens']:,}",
            )
            for name, one in rows
        ),
    )
    return ui.stack_parts(table, _render_token_sum(answer))


def _render_token_sum(answer: JsonObject) -> Text:
    """`6 lists cost 420 tokens of 9,000: 95% less`, and from when to when."""
    total = answer["total"]
    cost, full = total["definition_tokens"], total["full_tokens"]
    less = f", {1 - cost / full:.0%} less" if 0 < cost < full else ""
    return ui.sentence(
        Text(ui.count_of(total["lists"], "list"), style="bold"),
        f" cost {cost:,} of {full:,} tokens{less}; results {total['result_tokens']:,}",
        Text(f"\n{answer['since']} to {answer['until']}, by estimate{_LATE}", style=ui.DIM),
    )
