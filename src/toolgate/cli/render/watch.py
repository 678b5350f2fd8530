"""Changes of the registry as they come."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, OK, cell, sentence
from toolgate.model.revisions import spoken

Answer = Mapping[str, Any]


def render_event(event: Answer) -> RenderableType:
    """One transaction: what was written and what was removed."""
    parts = [*_parts("+", OK, event.get("upserts", ())), *_parts("-", BAD, event.get("deletes", ()))]
    return sentence(cell(event.get("revision"), "bold"), "  ", Text(", ").join(parts))


def _parts(sign: str, style: str, records: Sequence[Answer]) -> list[Text]:
    return [
        sentence(Text(sign, style=style), f" {spoken(one['kind'])} ", cell(one["id"], "bold"))
        for one in records
    ]
