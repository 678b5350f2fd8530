"""Events as a file: CSV for spreadsheets, JSON lines for programs. Streamed, so that size costs no memory.

A cell that a spreadsheet would take for a formula is not one any more, and JSON lines show no character that
a terminal or an editor would act upon.
"""

import csv
import io
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.audit.index.tables import IndexedEvent
from toolgate.errors import NotFound
from toolgate.govern.audit import MAX_EXPORT, export_pages
from toolgate.govern.control import Control
from toolgate.model.json_text import encode_json
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import Events, ResponseStream, RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.resources.audit import COLUMNS, FILTERS, AuditShown, parse_filter, show_event

CSV: Final = "text/csv; charset=utf-8"
JSON_LINES: Final = "application/jsonl"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a cell must not begin with: a spreadsheet would compute it."""


class ExportFormat(NamedTuple):
    """How events are written down."""

    name: str
    media_type: str
    head: bytes
    rows: Callable[[Sequence[AuditShown]], bytes]
    foot: bytes
    """Says that there may be more than are exported at a time."""


def encode_csv(events: Sequence[AuditShown]) -> bytes:
    """Rows, of which no spreadsheet computes a cell."""
    return _csv([_escape_cell(getattr(event, name)) for name in COLUMNS] for event in events)


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _escape_cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return encode_json(msgspec.to_builtins(value))
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def encode_lines(events: Sequence[AuditShown]) -> bytes:
    """One object a line, without what a terminal or an editor would act upon."""
    return "".join(f"{encode_json(_drop_nulls(event))}\n" for event in events).encode()


def _drop_nulls(event: AuditShown) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(event).items() if value is not None}


_STOPPED: Final = f"stopped after {MAX_EXPORT} events: for those before them, set `until` to the last `at_ms`"
FORMATS: Final[Mapping[str, ExportFormat]] = {
    "csv": ExportFormat("audit.csv", CSV, _csv([COLUMNS]), encode_csv, _csv([[_STOPPED]])),
    "jsonl": ExportFormat(
        "audit.jsonl", JSON_LINES, b"", encode_lines, f"{encode_json({'stopped': _STOPPED})}\n".encode()
    ),
}


@get(
    "/admin/api/audit/export",
    "viewer",
    "Export what happened",
    JSON_LINES,
    query=(Parameter("format", "`csv` or `jsonl`, the default."), *FILTERS),
    also=(CSV,),
    errors=(NotFound,),
)
async def export_events(control: Control, call: RestCall[None]) -> RestResponse:
    """The events of these filters as a file, the newest first, 100,000 at most.

    Where it stops at that, the last line says so: set `until` to the last `at_ms` for those before them.
    """
    chosen = FORMATS[call.choice("format", tuple(FORMATS)) or "jsonl"]
    events = _encode_pages(export_pages(control, parse_filter(call), most=MAX_EXPORT), chosen)
    disposition = f'attachment; filename="{chosen.name}"'
    return RestResponse(
        ResponseStream(await anext(events), events),
        headers={"content-type": chosen.media_type, "content-disposition": disposition},
    )


async def _encode_pages(pages: AsyncGenerator[Sequence[IndexedEvent], None], chosen: ExportFormat) -> Events:
    """The first piece holds the first page: what cannot be exported is refused like any other request."""
    head, count = chosen.head, 0
    async with aclosing(pages):
        async for page in pages:
            yield head + chosen.rows([show_event(one) for one in page])
            head, count = b"", count + len(page)
    if count >= MAX_EXPORT:
        yield chosen.foot


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (export_events,)
