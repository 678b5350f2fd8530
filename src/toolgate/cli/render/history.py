"""What records were before."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, cell, grid, names
from toolgate.cli.render.moments import moment
from toolgate.cli.render.plans import render_fields

Answer = Mapping[str, Any]


def render_history(entries: Sequence[Answer]) -> RenderableType:
    """A line a change: which fields it touched. `diff` shows their values."""
    if not entries:
        return Text("the change log no longer reaches back to any change of it")
    table = grid("REVISION", "WHEN (UTC)", "BY", "FIELDS", flexible={"FIELDS"})
    table.columns[0].justify = "right"
    for one in entries:
        table.add_row(
            cell(one["revision"], "bold"), cell(moment(one["at_ms"])), cell(one["actor"]), _touched(one)
        )
    return table


def render_field_diff(fields: Sequence[Answer]) -> RenderableType:
    """Fields before and after."""
    return render_fields(fields) if fields else Text("no difference")


def _touched(entry: Answer) -> Text:
    if entry["operation"] == "delete":
        return cell("deleted", BAD)
    return names(one["field"] for one in entry["fields"]) if entry["fields"] else cell("none", DIM)
