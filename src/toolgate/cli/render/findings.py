"""What `doctor` found, worst first."""

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.diagnosis import Finding, Level, worst
from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, count, facts, stack

_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "problem": ("✗", BAD),
    "warning": ("!", WARN),
    "ok": ("✓", OK),
}


def render_findings(findings: Sequence[Finding]) -> RenderableType:
    """A line a finding, its remedy under it, and the whole in one sentence."""
    table = facts(3)
    for one in sorted(findings, key=lambda finding: list(_MARKS).index(finding.level)):
        mark, style = _MARKS[one.level]
        text = cell(one.message)
        if one.remedy:
            text = Text("\n").join([text, Text.assemble(("→ ", style), cell(one.remedy, DIM))])
        table.add_row(Text(mark, style=style), cell(one.where, "bold"), text)
    return stack(table, _verdict(findings))


def _verdict(findings: Sequence[Finding]) -> Text:
    if worst(findings) == "ok":
        return Text("all is well", style=OK)
    problems = sum(one.level == "problem" for one in findings)
    notes = sum(one.level == "warning" for one in findings)
    parts = [count(number, word) for number, word in ((problems, "problem"), (notes, "warning")) if number]
    return Text(", ".join(parts), style=BAD if problems else WARN)
