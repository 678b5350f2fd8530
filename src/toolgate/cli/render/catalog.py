"""The catalog for people: categories, packages, and tools with what they do."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui

JsonObject = Mapping[str, Any]

_UNKNOWN = "its tools are not known yet"
_INDEXING = "the gateway started a moment ago and still indexes tools: search again to find more"


def render_categories(categories: Sequence[JsonObject]) -> RenderableType:
    """One line a category."""
    if not categories:
        return Text("there is nothing in the catalog that this key can reach")
    table = ui.grid("CATEGORY", "PACKAGES", "TOOLS")
    for column in table.columns[1:]:
        column.justify = "right"
    for one in categories:
        table.add_row(ui.bold(one["name"]), ui.cell(one["packageCount"]), ui.cell(one["toolCount"]))
    return ui.stack_parts(table, Text("see one with `toolgate catalog show CATEGORY`", style=ui.DIM))


def render_category(category: JsonObject, packages: Sequence[JsonObject]) -> RenderableType:
    """One line a package, and below it what it is for."""
    table = ui.grid("PACKAGE", "VERSION", "TOOLS", "WHAT IT IS*")
    table.columns[2].justify = "right"
    for one in packages:
        table.add_row(
            ui.bold(one["id"]), ui.cell(one["version"]), ui.cell(one["toolCount"] or "?"), _described(one)
        )
    heading = ui.sentence(ui.bold(category["name"]), f": {ui.count_of(len(packages), 'package')}")
    return ui.stack_parts(heading, table, Text("see one with `toolgate catalog show PACKAGE`", style=ui.DIM))


def render_catalog_tools(package_id: str, tools: Sequence[JsonObject]) -> RenderableType:
    """Each tool under its full name, with its arguments."""
    known = [one for one in tools if one["name"] != "*"]
    heading = ui.sentence(ui.bold(package_id), f": {ui.count_of(len(known), 'tool')}")
    return ui.stack_parts(heading, *map(_tool, tools))


def render_found(answer: JsonObject) -> RenderableType:
    """What was found, the best first."""
    tools: Sequence[JsonObject] = answer["tools"]
    # An older gateway does not say it.
    note = [] if answer.get("indexed", True) else [Text(_INDEXING, style=ui.WARN)]
    if not tools:
        nothing = "nothing was found that this key can reach: try other words, or `toolgate catalog`"
        return ui.stack_parts(Text(nothing), *note)
    shown = f"{len(tools)} of {answer['total']:,} found"
    return ui.stack_parts(*map(_tool, tools), Text(shown, style=ui.DIM), *note)


def render_backfill(done: JsonObject) -> RenderableType:
    """How much there was to do."""
    text = f"{ui.count_of(done['total'], 'package')} looked at, {done['changed']:,} made anew"
    if not done["failed"]:
        return Text(text)
    table = ui.unheaded_grid(2)
    for package_id, reason in done["failed"].items():
        table.add_row(ui.bold(package_id), ui.cell(reason, ui.BAD))
    return ui.stack_parts(Text(text), table)


def render_quality(answer: JsonObject, *, every: bool) -> RenderableType:
    """The share of full definitions, what becomes of the fallback, and the packages that depend on it."""
    total: JsonObject = answer["total"]
    head = ui.sentence(
        Text(f"{answer['full_percent']:g} %", style="bold"),
        f" of {ui.count_of(total['rows'], 'row')} have full definitions, "
        f"{total['with_schema']:,} a schema, {total['with_description']:,} a description",
    )
    table = ui.grid("PACKAGE", *(name.upper() for name in _SOURCES), "SCHEMAS", "DESCRIBED", "")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for one in answer["packages"]:
        table.add_row(ui.bold(one["id"]), *_counts(one), ui.cell(_hidden(one), ui.WARN))
    table.add_row(Text("all", style=ui.DIM), *_counts(total), "")
    listed = "" if every or answer["packages"] else "no package depends on the summary fallback"
    return ui.stack_parts(head, Text(_fallback(answer)), Text(listed) if listed else None, table)


_SOURCES = ("manifest", "discovered", "summary", "legacy")


def _counts(one: JsonObject) -> list[Text]:
    return [ui.cell(f"{one[name]:,}") for name in (*_SOURCES, "with_schema", "with_description")]


def _hidden(package: JsonObject) -> str:
    return f"{package['hidden']:,} hidden" if package["hidden"] else ""


def _fallback(answer: JsonObject) -> str:
    """What the setting does at this share, and what it would do."""
    ends_at, dependent = answer["summary_fallback"], ui.count_of(answer["dependent"], "package")
    if ends_at is None:
        return f"the summary fallback stays; without it {dependent} would lose rows"
    if answer["fallback_ended"]:
        return f"the summary fallback is off from {ends_at:g} %: rows of {dependent} are hidden"
    return f"the summary fallback ends at {ends_at:g} %: {dependent} would lose rows"


def _described(package: JsonObject) -> Text:
    said = [package["name"] if package["name"] != package["id"] else "", package["description"]]
    text = Text(": ").join([ui.cell(one) for one in said if one])
    return Text("  ").join([part for part in (text, ui.join_names(package["tags"], ui.DIM)) if part.plain])


def _tool(tool: JsonObject) -> RenderableType:
    """The name to copy, what it costs, and what it does."""
    marks = [f"{tool['tokens']:,} tokens" if tool["tokens"] else "", "read-only" if tool["readOnly"] else ""]
    head = Text("  ").join([ui.bold(tool["fullName"]), *(ui.cell(one, ui.DIM) for one in marks if one)])
    table = ui.unheaded_grid(2)
    table.add_row("", ui.cell(tool["description"] or (_UNKNOWN if tool["name"] == "*" else "")))
    if arguments := _arguments(tool["inputSchema"]):
        table.add_row("", ui.sentence(Text("arguments: ", style=ui.DIM), ui.join_names(arguments)))
    return Group(head, table)


def _arguments(schema: JsonObject) -> list[str]:
    """Those it takes; what it can do without ends with a question mark."""
    properties, required = schema.get("properties"), schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set()
    found = properties if isinstance(properties, Mapping) else {}
    return [name if name in needed else f"{name}?" for name in found]
