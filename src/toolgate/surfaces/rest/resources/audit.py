"""Audit events: pages, one event with the events around it, the live tail, and export as a file.

Events of every type have one flat shape. Only callers who may see everything get here. In an exported file, a
cell that a spreadsheet would take for a formula is not one any more, and JSON lines show no character that a
terminal or an editor would act upon. It is streamed, so that size costs no memory.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from typing import Any, Final, NamedTuple, get_args

import msgspec

from toolgate.audit.events import Outcome, ScopeOffered
from toolgate.audit.index.tables import MAX_KEY_CHARS, EventFilter, EventPosition, EventType, IndexedEvent
from toolgate.errors import InvalidRequest, SessionLimit
from toolgate.govern.audit import PAGE, EventTail, export_pages, read_event
from toolgate.govern.control import Control
from toolgate.model.json_text import encode_json
from toolgate.surfaces.rest.framework import response, streams
from toolgate.surfaces.rest.framework.request import (
    Parameter,
    RestCall,
    describe_paging,
    join_quoted,
    parse_page,
)
from toolgate.surfaces.rest.framework.response import EVENTS, NextCursor, ResponseShape, RestResponse
from toolgate.surfaces.rest.framework.routing import get


class ExclusionShown(ResponseShape, frozen=True, kw_only=True):
    """A server, or something it has, that a scope excludes."""

    server_id: str
    tool: str | None
    """Null: the whole server."""
    reason: str
    layer: str
    rule: str


class FilterShown(ResponseShape, frozen=True, kw_only=True):
    """An allowlist, or a denylist, that a layer applies to all servers of a scope."""

    layer: str
    rule: str
    patterns: list[str]
    """The first of them."""
    is_deny: bool


class AuditShown(ResponseShape, frozen=True, kw_only=True):
    """One event. What its type does not have, and what is empty, is null."""

    event_id: str
    seq: int
    """Its number in the log of the process that wrote it."""
    node: str
    """The node that wrote it; empty: the process that governs."""
    type: EventType
    at_ms: int
    door: str | None
    principal: str | None
    tool: str | None
    """Its name without its server's. For an unknown tool, what the caller wrote: never trust it."""
    outcome: Outcome | None
    server_id: str | None
    task_id: str | None
    session: str | None
    """Of calls that a run made: the id of the run."""
    request_id: str | None
    code: str | None
    layer: str | None
    rule: str | None
    """The layer and rule that admitted or denied it."""
    revision: int | None
    definition: str | None
    """Digest of the definition the caller was shown."""
    duration_us: int | None
    argument_bytes: int | None
    result_bytes: int | None
    start: int | None
    """The `seq` of the line that said, before the call was sent, that it was about to be."""
    arguments: dict[str, Any] | None
    """What the rules of redaction leave of them."""
    result_tokens: int | None
    """What its result costs a model, by estimate."""
    shadow: str | None
    """The rule that would have denied it, were the policy of its task enforced."""
    trace_id: str | None
    """Of the OpenTelemetry trace it is part of."""
    operation: str | None
    kind: str | None
    record_id: str | None
    peer: str | None
    approved: str | None
    """Digest of the definition that was approved."""
    found: str | None
    """Digest of the definition in its place."""
    invocation_id: str | None
    attempt: int | None
    state: str | None
    """How a run ended, or which step an approval took."""
    ended_by: str | None
    module: str | None
    duration_ms: int | None
    tool_calls: int | None
    rounds: int | None
    """Of a chat that ended: rounds of tools. Of an MCP session: requests of servers to its client."""
    limits: dict[str, int] | None
    """Of a session or a chat that ended: how often each limit was hit."""
    approval_id: str | None
    decided_by: str | None
    reason: str | None
    """Why an approval was given or not; what a process was started for: `start`, or `trial`."""
    command: str | None
    """Of a process: the program and its arguments, with references to secrets as they are in the record."""
    package: str | None
    """SHA-256 of the package that a process comes from."""
    scope: str | None
    """SHA-256 over everything a caller was offered, with its definitions."""
    mode: str | None
    """Of an offered scope: `list`, or `find` where its tools are found and not listed."""
    servers: int | None
    tools: int | None
    prompts: int | None
    resources: int | None
    tokens: int | None
    """What the list of an offered scope costs a model."""
    excluded: int | None
    """How many servers and names an offered scope excludes."""
    effective_servers: list[str] | None
    """The first of the servers of an offered scope, also of those whose tools are not known yet."""
    filters: list[FilterShown] | None
    """The first of the tool filters that key, task and request apply."""
    offered: list[str] | None
    """The first of the offered tools."""
    reasons: dict[str, int] | None
    """How many are excluded for each reason."""
    exclusions: list[ExclusionShown] | None
    """The first of the excluded."""
    profile: str | None
    """The versions of profiles that decided, like `code-review@4`, separated by spaces."""


class AuditResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of events, the newest first."""

    events: list[AuditShown]
    next_cursor: NextCursor


class AuditStoryResponse(ResponseShape, frozen=True, kw_only=True):
    """One event, and what happened around it."""

    event: AuditShown
    around: list[AuditShown]
    """The others of the same session, run, request or approval, in order: the nearest hundred before it and
    the nearest hundred after it."""


COLUMNS: Final = AuditShown.__struct_fields__
"""In order."""
_NOTHING: Final[dict[str, Any]] = dict.fromkeys(COLUMNS)


def show_event(kept: IndexedEvent) -> AuditShown:
    """One event."""
    event = kept.event
    members = {name: value for name in event.__struct_fields__ if (value := getattr(event, name)) != ""}
    named = {"event_id": kept.event_id, "seq": kept.seq, "node": kept.node, "type": kept.type}
    if "arguments" in members:
        named["arguments"] = _show_arguments(members["arguments"])
    if isinstance(event, ScopeOffered):
        named |= {
            "effective_servers": list(event.effective_servers),
            "filters": [FilterShown.of(one) for one in event.filters],
            "offered": list(event.offered),
            "exclusions": [ExclusionShown.of(one, tool=one.tool or None) for one in event.exclusions],
        }
    return AuditShown(**_NOTHING | members | named)


def _show_arguments(raw: msgspec.Raw) -> dict[str, Any] | None:
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):  # a number that no program has, or too deep
        return {"…": bytes(raw).decode(errors="replace")}


_COLUMNS: Final = {"task": "task_id", "server": "server_id", "request": "request_id"}
"""Parameter to the column of another name that it is compared with."""
_CHOICES: Final = {"type": get_args(EventType), "outcome": get_args(Outcome)}
_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,18})")


_EXACT_FILTERS: Final = (
    Parameter("type", f"Only events of this type: {join_quoted(get_args(EventType))}."),
    Parameter("outcome", f"Only calls that ended so: {join_quoted(get_args(Outcome))}."),
    Parameter("door", "Only calls through this door: `mcp`, `chat`, `responses`, `hostcall`, `rest`."),
    Parameter("principal", "Only events of this principal."),
    Parameter("task", "Only events of this task."),
    Parameter("server", "Only events of this server."),
    Parameter("tool", "Only events of this tool, without its server's name. Unknown tools: as called."),
    Parameter("code", "Only events with this error code. Empty: those without one, as with all of these."),
    Parameter("session", "Only events of this session or run."),
    Parameter("request", "Only events of this request."),
    Parameter("node", "Only events of this node. Empty: those of the process that governs."),
    Parameter("profile", "Only calls and scopes that this version of a profile decided: `desk@2`."),
)
FILTERS: Final = (
    *_EXACT_FILTERS,
    Parameter("since", "Only events from this time on, in unix milliseconds.", "number"),
    Parameter("until", "Only events before this time, in unix milliseconds.", "number"),
)


def parse_filter(call: RestCall[None]) -> EventFilter:
    """Which events a query asks for, or InvalidRequest with what is allowed."""
    since_ms, until_ms = call.number("since"), call.number("until")
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise InvalidRequest("`since` is after `until`")
    return EventFilter(equals=parse_exact_filters(call), since_ms=since_ms, until_ms=until_ms)


def parse_exact_filters(call: RestCall[None]) -> Mapping[str, str]:
    """What of events a query names, by column, or InvalidRequest with what is allowed."""
    named = [one.name for one in _EXACT_FILTERS if one.name in call.query]
    equals = {_COLUMNS.get(name, name): call.query[name] for name in named}
    for name, among in _CHOICES.items():
        call.choice(name, among)
    if any(len(value) > MAX_KEY_CHARS for value in equals.values()):
        raise InvalidRequest(f"nothing is looked up by more than {MAX_KEY_CHARS} characters")
    return equals


@get("/admin/api/audit", "viewer", "List what happened", query=(*FILTERS, *describe_paging(PAGE)))
async def list_events(control: Control, call: RestCall[None]) -> AuditResponse:
    """The newest events first: calls, denials, offered scopes, changes, refused credentials, runs,
    approvals, processes.

    Each filter narrows. Of nodes, what they have told so far is shown, in its place by time.
    """
    page = parse_page(call, default=PAGE)
    place = _PLACE.fullmatch(page.after)
    if page.after and place is None:
        raise InvalidRequest("invalid cursor", hint="begin without one")
    before = None if place is None else EventPosition(int(place[1]), int(place[2]))
    found = await control.audit_index.page(parse_filter(call), before=before, limit=page.limit + 1)
    shown, more = page.first(found, lambda event: "{}.{}".format(*event.place))
    return AuditResponse(events=[show_event(one) for one in shown], next_cursor=more)


@get(
    "/admin/api/audit/events",
    "viewer",
    "Follow what happens",
    EVENTS,
    query=FILTERS,
    headers=(streams.LAST_EVENT_ID,),
    errors=(SessionLimit,),
)
async def follow_events(control: Control, call: RestCall[None]) -> RestResponse:
    """Events as they come in, with the filters of the list.

    First comes `start`; then `event` for each, whose id is its place in the order of arrival: who goes on
    from the last id it got misses nothing. `error` is the last event of a stream that cannot go on.
    """
    asked, index = parse_filter(call), control.audit_index
    last = streams.parse_last_event_id(call)
    after = await index.newest() if last is None else last
    tail = nullcontext(EventTail(control, asked, after=after))
    first = streams.encode_named_event("start", {}, after)

    def encode(new: Sequence[IndexedEvent]) -> bytes:
        return b"".join(streams.encode_named_event("event", show_event(one), one.position) for one in new)

    return await streams.stream_response(control, call, tail, first=first, encode=encode)


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
    note: Callable[[str], bytes]
    """The last line, where there may be more events than one export has."""


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


def _note_line(text: str) -> bytes:
    return f"{encode_json({'stopped': text})}\n".encode()


FORMATS: Final[Mapping[str, ExportFormat]] = {
    "csv": ExportFormat("audit.csv", CSV, _csv([COLUMNS]), encode_csv, lambda text: _csv([[text]])),
    "jsonl": ExportFormat("audit.jsonl", JSON_LINES, b"", encode_lines, _note_line),
}


@get(
    "/admin/api/audit/export",
    "viewer",
    "Export what happened",
    JSON_LINES,
    query=(Parameter("format", "`csv` or `jsonl`, the default."), *FILTERS),
    also=(CSV,),
)
async def export_events(control: Control, call: RestCall[None]) -> RestResponse:
    """The events of these filters as a file, the newest first, 100,000 at most.

    Where it stops at that, the last line says so: set `until` to the last `at_ms` for those before them.
    """
    chosen = FORMATS[call.choice("format", tuple(FORMATS)) or "jsonl"]
    events = _encode_events(control, parse_filter(call), chosen)
    disposition = f'attachment; filename="{chosen.name}"'
    headers = {"content-type": chosen.media_type, "content-disposition": disposition}
    return RestResponse(response.ResponseStream(await anext(events), events), headers=headers)


async def _encode_events(control: Control, only: EventFilter, chosen: ExportFormat) -> response.Events:
    """The first piece holds the first page: what cannot be exported is refused like any other request."""
    head, count, most = chosen.head, 0, control.limits.max_export
    async with aclosing(export_pages(control, only)) as pages:
        async for page in pages:
            yield head + chosen.rows([show_event(one) for one in page])
            head, count = b"", count + len(page)
    if count >= most:
        note = f"stopped after {most} events: for those before them, set `until` to the last `at_ms`"
        yield chosen.note(note)


@get("/admin/api/audit/{event_id}", "viewer", "Read one event and its story")
async def show_story(control: Control, call: RestCall[None]) -> AuditStoryResponse:
    """One event whole, and around it the others of its session, run, request or approval, in order."""
    event, around = await read_event(control, call.ids["event_id"])
    return AuditStoryResponse(event=show_event(event), around=list(map(show_event, around)))
