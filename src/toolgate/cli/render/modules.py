"""Modules of workloads, and workloads in tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import (
    DIM,
    OK,
    cell,
    count,
    facts,
    grid,
    indent,
    names,
    sentence,
    stack,
    warnings,
)
from toolgate.cli.render.moments import MINUTE, moment

Answer = Mapping[str, Any]


def render_modules(modules: Sequence[Answer]) -> RenderableType:
    """One line a module."""
    if not modules:
        return Text("no modules yet: upload one with `toolgate modules upload FILE`")
    table = grid("MODULE", "UPLOADED", "BYTES", "TASKS", flexible={"TASKS"})
    for one in modules:
        table.add_row(
            cell(one["sha256"][:16], "bold"), cell(_date(one)), cell(f"{one['size']:,}"), _users(one)
        )
    return table


def render_module(module: Answer) -> RenderableType:
    """One module in full."""
    about = facts(2)
    about.add_row(cell("uploaded", DIM), cell(_date(module)))
    about.add_row(cell("bytes", DIM), cell(f"{module['size']:,}"))
    about.add_row(cell("tasks", DIM), _users(module))
    return stack(cell(module["sha256"], "bold"), about)


def render_uploaded(answer: Answer) -> RenderableType:
    """A module that is kept."""
    state = "" if answer["is_new"] else ", which was there already"
    imports = answer["imports"]
    return Group(
        sentence(Text("✓ ", style=OK), f"module of {answer['size']:,} bytes{state}"),
        indent(cell(answer["sha256"], "bold")),
        indent(sentence(f"calls {count(len(imports), 'function')} of its host: ", names(imports)))
        if imports
        else indent(Text("calls nothing of its host", style=DIM)),
        *filter(None, [warnings(answer["warnings"])]),
    )


def render_removed(answer: Answer) -> RenderableType:
    """A module that is gone."""
    return sentence(Text("✓ ", style=OK), "removed module ", cell(answer["sha256"], "bold"))


def render_workload(workload: Answer) -> RenderableType:
    """What a task runs, with what, and how far."""
    about = facts(2)
    for arg in workload.get("args") or ():
        about.add_row(cell("argument", DIM), cell(arg))
    for name, value in (workload.get("env") or {}).items():
        about.add_row(cell("variable", DIM), cell(f"{name}={value}"))
    for name, value in (workload.get("limits") or {}).items():
        about.add_row(cell(name, DIM), cell(f"{value:,}"))
    about.add_row(cell("retries", DIM), cell(workload.get("retries", 0)))
    # The hash is as wide as it is: beside the other labels it would not fit into 80 columns.
    return Group(sentence(Text("RUNS  ", style="bold"), cell(workload["module"])), about)


def _date(module: Answer) -> str:
    return moment(module["at_ms"], MINUTE)


def _users(module: Answer) -> Text:
    return names(module["tasks"]) if module["tasks"] else cell("none", DIM)
