"""What came of single writes, of reloads, and of looking for rules that match nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import (
    BAD,
    OK,
    cell,
    count,
    grid,
    indent,
    sentence,
    stack,
    warnings,
)
from toolgate.model.revisions import Kind, spoken

Answer = Mapping[str, Any]


def render_applied(kind: Kind, record_id: str, answer: Answer) -> RenderableType:
    """A write that was acknowledged, at its revision."""
    return _done(kind, record_id, f" (revision {answer['revision']})", answer)


def render_deleted(kind: Kind, record_id: str, answer: Answer) -> RenderableType:
    """A removal that was acknowledged, and what refers to nothing from now on."""
    return _done(kind, record_id, " is gone", answer)


def render_rolled_back(kind: Kind, record_id: str, to: int, answer: Answer) -> RenderableType:
    """A record that is again what it was; what it was may be nothing."""
    return _done(kind, record_id, f" is as it was at {to:,} (revision {answer['revision']})", answer)


def render_lint(findings: Sequence[Answer], unjudged: Sequence[Answer] = ()) -> RenderableType:
    """Rules that do not do what their author meant, and those that could not be judged."""
    if not findings and not unjudged:
        return Text("✓ every rule matches something", style=OK)
    return stack(
        _finding_table("FINDING", findings) if findings else None,
        Text(f"{count(len(unjudged), 'rule')} could not be judged", style=BAD) if unjudged else None,
        _finding_table("WHY", unjudged) if unjudged else None,
    )


def _finding_table(heading: str, findings: Sequence[Answer]) -> RenderableType:
    table = grid("WHERE", "RULE", heading, flexible={heading})
    for one in findings:
        table.add_row(cell(one["where"], "bold"), cell(one["rule"]), cell(one["message"]))
    return table


def render_reload(answer: Answer, *, is_dry_run: bool) -> RenderableType:
    """What a directory of records changed, or would."""
    applied: Sequence[str] = answer["applied"]
    problems: Sequence[str] = answer["problems"]
    head = Text(f"{count(len(applied), 'change')}{' planned' if is_dry_run else ''}", style="bold")
    wrong = [sentence(Text("problem: ", style=BAD), cell(one)) for one in problems]
    return stack(
        Group(head, *(indent(cell(one)) for one in applied)),
        warnings(answer["warnings"]),
        Group(*wrong) if wrong else None,
    )


def _done(kind: Kind, record_id: str, what: str, answer: Answer) -> RenderableType:
    head = sentence(Text("✓ ", style=OK), f"{spoken(kind)} ", cell(record_id, "bold"), what)
    return Group(head, *filter(None, [warnings(answer["warnings"])]))
