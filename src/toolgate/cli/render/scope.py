"""Scopes: the tools of a URL, why others are hidden, and the tokens of definitions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.changes import point_to_review
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.render.records import name_budget
from toolgate.model.names import PROMPT, RESOURCE, kind_of

FIND_MODE_NOTE: Final = Text("mode find: clients see three tools, which find and call these")


def render_price(response: JsonObject) -> RenderableType:
    """The tools by tokens, most first; or why no tool is visible."""
    prices: Mapping[str, int] = response["prices"]
    table = ui.grid("TOOL", ">TOKENS", ">SHARE")
    for name, tokens in sorted(prices.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(
            ui.bold(name), f"{tokens:,}", ui.cell(f"{tokens / max(response['tokens'], 1):.0%}", ui.DIM)
        )
    refusal = response["refusal"]
    return ui.stack_parts(
        ui.sentence(Text("refused: ", style=ui.BAD), ui.cell(refusal["message"])) if refusal else None,
        table if prices else None,
        _render_sum(response, tools=len(prices)),
        ui.render_warnings(response["warnings"]),
    )


def _render_sum(response: JsonObject, *, tools: int) -> RenderableType:
    """The share of all tools that a URL shows, and its mode."""
    return Group(
        ui.sentence(
            Text(ui.count_of(tools, "tool"), style="bold"),
            f" of {response['registered_tools']:,}, {describe_saving(response)}",
        ),
        ui.sentence("at ", ui.bold(response["url"])),
        *([FIND_MODE_NOTE] if response["mode"] == "find" else []),
    )


def describe_saving(response: JsonObject) -> str:
    """`420 of 9,000 tokens, 95% less`: a scope compared with all registered tools."""
    return _compare_tokens(response["tokens"], response["registered_tokens"])


def _compare_tokens(seen: int, full: int) -> str:
    less = f", {1 - seen / full:.0%} less" if 0 < seen < full else ""
    return f"{seen:,} of {full:,} tokens{less}"


_WORDS: Final = {PROMPT: "prompt", RESOURCE: "resource"}
Decision = Mapping[str, Any]


def render_tools(response: JsonObject) -> RenderableType:
    """The tools of a URL, the tokens of each, and the rule that allows it."""
    tools: Sequence[JsonObject] = response["tools"]
    rows = ((ui.bold(tool["name"]), f"{tool['tokens']:,}", ui.cell(tool["rule"], ui.DIM)) for tool in tools)
    return ui.stack_parts(
        ui.grid("TOOL", ">TOKENS", "ALLOWED BY*", rows=rows) if tools else None,
        _render_sum(response, tools=len(tools)),
        ui.render_warnings(response.get("warnings") or ()),
    )


def render_explanation(response: JsonObject) -> RenderableType:
    """Every tool, in or out, grouped by the layer and rule that decided."""
    tools: Sequence[Decision] = response["tools"]
    refusal, unverified = response["refusal"], response.get("unverified")
    held = sorted({one["server_id"] for one in tools if one["reason"] == "quarantined"})
    earlier = "listed by an earlier run, and not verified since: "
    return ui.stack_parts(
        None
        if refusal is None
        else Group(
            ui.sentence(("refused: ", ui.BAD), ui.cell(refusal["message"])),
            ui.sentence(("    try: ", "bold"), ui.cell(refusal["hint"])),
        ),
        FIND_MODE_NOTE if response.get("mode") == "find" else None,
        _render_rollouts(response.get("profiles") or ()),
        _render_visible([one for one in tools if one["allowed"]]),
        _render_hidden(
            [one for one in tools if not one["allowed"]],
            [one for one in response["servers"] if not one["allowed"]],
        ),
        point_to_review(held) if held else None,
        _render_approvals([one for one in tools if one.get("approval")]),
        _render_shadowed(tools),
        _render_quotas(response.get("budgets") or ()),
        ui.sentence(earlier, ui.join_names(unverified)) if unverified else None,
        ui.render_warnings(response["warnings"]),
    )


def _render_rollouts(profiles: Sequence[JsonObject]) -> RenderableType | None:
    """The versions of profiles in a rollout that apply."""
    lines = [
        ui.sentence(
            "profile ",
            ui.bold(one["profile_id"]),
            f" version {one['version']} ({one['side']}, {one['share']} % of {one['by']}s)",
        )
        for one in profiles
        if one["side"]
    ]
    return Group(*lines) if lines else None


def _render_approvals(asking: Sequence[Decision]) -> RenderableType | None:
    if not asking:
        return None
    title = f"each call of {ui.count_of(len(asking), 'tool')} waits for approval"
    table = ui.grid("SERVER", "TOOLS*", "REQUIRED BY*")
    for server_id, names, (rule,) in _group_decisions(asking, "approval"):
        table.add_row(server_id, names, ui.cell(rule, ui.DIM))
    return Group(Text(title, style=f"bold {ui.WARN}"), table)


def _render_shadowed(tools: Sequence[Decision]) -> RenderableType | None:
    """Tools that are visible only because the task is not enforced."""
    names = ("server_id", "tool", "native_name")
    lax = [{**one["shadow"], **{key: one.get(key) for key in names}} for one in tools if one.get("shadow")]
    if not lax:
        return None
    verb = "is" if len(lax) == 1 else "are"
    title = f"{_count_kinds(lax)} of these {verb} visible only because the task is not enforced"
    table = ui.grid("SERVER", f"{_name_column(lax)}*", "WOULD BE HIDDEN BY*")
    for server_id, shown, why in _group_decisions(lax, "layer", "reason", "rule"):
        table.add_row(server_id, shown, ui.render_reason(*why))
    return Group(Text(title, style=f"bold {ui.WARN}"), table)


def _render_quotas(budgets: Sequence[JsonObject]) -> RenderableType | None:
    table = ui.grid("HOLDER*", "LIMIT")
    for one in budgets:
        holder = ui.sentence(ui.bold(one["layer"]), " ", ui.cell(one["holder_id"]))
        table.add_row(holder, f"{one['limit']:,} {name_budget(one['budget'])}")
    title = Text("calls count against these quotas: see `toolgate quotas`", style="bold")
    return Group(title, table) if budgets else None


def _render_visible(decisions: Sequence[Decision]) -> RenderableType:
    title = Text(f"{_count_kinds(decisions)} visible", style=f"bold {ui.OK if decisions else ui.WARN}")
    table = ui.grid("SERVER", f"{_name_column(decisions)}*", "ALLOWED BY*")
    for server_id, names, (layer, rule) in _group_decisions(decisions, "layer", "rule"):
        table.add_row(server_id, names, ui.sentence(ui.bold(layer), ": ", ui.cell(rule, ui.DIM)))
    return Group(title, table) if decisions else title


def _render_hidden(tools: Sequence[Decision], servers: Sequence[Decision]) -> RenderableType | None:
    """A server that is hidden as a whole is one line, however many tools it has."""
    if not tools and not servers:
        return None
    left_out = {one["server_id"] for one in servers}
    table = ui.grid("SERVER", f"{_name_column(tools)}*", "HIDDEN BY*")
    single = [one for one in tools if one["server_id"] not in left_out]
    for server_id, names, why in _group_decisions(single, "layer", "reason", "rule"):
        table.add_row(server_id, names, ui.render_reason(*why))
    for one in servers:
        known = sum(tool["server_id"] == one["server_id"] for tool in tools)
        shown = ui.cell(f"all {known} of them" if known else "all of them", ui.DIM)
        reason = ui.render_reason(one["layer"], one["reason"], one["rule"])
        table.add_row(ui.bold(one["server_id"]), shown, reason)
    counts = [_count_kinds(tools)] if tools else []
    counts += [ui.count_of(len(servers), "whole server")] if servers else []
    return Group(Text(f"{', '.join(counts)} hidden", style=f"bold {ui.WARN}"), table)


def _name_column(decisions: Sequence[Decision]) -> str:
    return "NAMES" if any(kind_of(one["tool"]) for one in decisions) else "TOOLS"


def _count_kinds(decisions: Sequence[Decision]) -> str:
    """`3 tools`, with prompts and resources if there are any."""
    kinds = Counter(kind_of(one["tool"]) for one in decisions)
    parts = [ui.count_of(kinds[""], "tool")] if kinds[""] or not decisions else []
    parts += [ui.count_of(kinds[kind], word) for kind, word in _WORDS.items() if kinds[kind]]
    return ", ".join(parts)


def _group_decisions(
    decisions: Iterable[Decision], *keys: str
) -> Iterator[tuple[Text, Text, tuple[Any, ...]]]:
    """The server, tools and values of decisions with the same server and `keys`, in the order in which the
    first of each came. An alias is shown with what its server calls the tool.
    """
    groups: dict[tuple[Any, ...], list[str]] = {}
    for one in decisions:
        native = one.get("native_name")
        name = f"{one['tool']} (`{native}`)" if native else str(one["tool"])
        groups.setdefault((one["server_id"], *map(one.get, keys)), []).append(name)
    for (server_id, *values), names in groups.items():
        yield ui.bold(server_id), ui.join_names(names), tuple(values)


_LATE: Final = "; the last minute is not included"


def render_token_use(response: JsonObject, *, by_day: bool) -> RenderableType:
    """What lists and results cost, by task or by day."""
    what, key, member = ("DAY (UTC)", "day", "days") if by_day else ("TASK", "task_id", "tasks")
    rows = [(one[key] or "(none)", one) for one in response[member]]
    if not rows:
        return ui.sentence(
            f"nothing was listed or called from {response['since']} to {response['until']}",
            Text(_LATE, style=ui.DIM),
        )
    table = ui.grid(f"{what}*", ">LISTS", ">DEFINITIONS", ">SAVED", ">CALLS", ">RESULTS")
    for name, one in rows:
        saved = ui.cell(f"{one['saved_tokens']:,}", ui.OK if one["saved_tokens"] > 0 else "")
        listed, calls = (f"{one['lists']:,}", f"{one['definition_tokens']:,}"), f"{one['calls']:,}"
        table.add_row(ui.bold(name), *listed, saved, calls, f"{one['result_tokens']:,}")
    total = response["total"]
    cost = _compare_tokens(total["definition_tokens"], total["full_tokens"])
    tail = ui.sentence(
        Text(ui.count_of(total["lists"], "list"), style="bold"),
        f" cost {cost}; results {total['result_tokens']:,}",
        Text(f"\n{response['since']} to {response['until']}, estimated{_LATE}", style=ui.DIM),
    )
    return ui.stack_parts(table, tail)
