"""Audit events: pages, one event with related events, the live stream, and export as a file.

Events of every type have one flat shape. A viewer reads all of them, also those beyond its ceiling. In a CSV
export, no cell is a formula to a spreadsheet. JSON lines contain no character that a terminal or an editor
would interpret. An export is streamed, so its size costs no memory.
"""

import asyncio
import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

import msgspec

from toolgate.audit.events import Outcome, ScopeOffered
from toolgate.audit.index import tables
from toolgate.errors import InvalidRequest, NotFound
from toolgate.govern.control import Control
from toolgate.model.json_text import encode_json
from toolgate.surfaces.rest.framework import response, streams
from toolgate.surfaces.rest.framework.request import Parameter, RestCall, describe_paging, join_quoted
from toolgate.surfaces.rest.framework.response import NextCursor, ResponseShape, RestResponse
from toolgate.surfaces.rest.framework.routing import get

PAGE: Final = 100  # some screens of the console


class ExclusionShown(ResponseShape, frozen=True, kw_only=True):
    """A server, tool, prompt or resource that a scope excludes."""

    server_id: str
    tool: str | None
    """Null: the whole server."""
    reason: str
    layer: str
    rule: str


class FilterShown(ResponseShape, frozen=True, kw_only=True):
    """An allowlist or denylist that a layer applies to all servers of a scope."""

    layer: str
    rule: str
    patterns: list[str]
    """The first patterns."""
    is_deny: bool


class AuditShown(ResponseShape, frozen=True, kw_only=True):
    """One event. Fields that its type does not have, and empty fields, are null."""

    event_id: str
    seq: int
    """The sequence number in the log of the process that wrote it."""
    node: str
    """The node that wrote it. Empty: the control plane."""
    type: tables.EventType
    at_ms: int
    door: str | None
    principal: str | None
    tool: str | None
    """The name without the server. For an unknown tool, the name that the caller sent: do not trust it."""
    outcome: Outcome | None
    server_id: str | None
    task_id: str | None
    session: str | None
    """For calls that an invocation made: the id of the invocation."""
    request_id: str | None
    code: str | None
    layer: str | None
    rule: str | None
    """The layer and rule that allowed or denied it."""
    revision: int | None
    definition: str | None
    """Digest of the definition that the caller was shown."""
    duration_us: int | None
    argument_bytes: int | None
    result_bytes: int | None
    start: int | None
    """The `seq` of the record that was written before the call was sent."""
    arguments: dict[str, Any] | None
    """The arguments after redaction."""
    result_tokens: int | None
    """Estimated tokens of the result."""
    shadow: str | None
    """The rule that would have denied it if the task's policy were enforced."""
    trace_id: str | None
    """The OpenTelemetry trace that it belongs to."""
    operation: str | None
    kind: str | None
    record_id: str | None
    peer: str | None
    approved: str | None
    """Digest of the approved definition."""
    found: str | None
    """Digest of the changed definition."""
    invocation_id: str | None
    attempt: int | None
    state: str | None
    """How an invocation ended, or the step of an approval."""
    ended_by: str | None
    module: str | None
    duration_ms: int | None
    tool_calls: int | None
    rounds: int | None
    """For an ended chat: rounds with tool calls. For an ended MCP session: requests from servers to its
    client."""
    limits: dict[str, int] | None
    """For an ended session or chat: how often each limit was hit."""
    approval_id: str | None
    decided_by: str | None
    reason: str | None
    """The reason of an approval or a denial. For a process: why it was started, `start` or `trial`."""
    command: str | None
    """For a process: the program and its arguments, with unresolved references to secrets."""
    package: str | None
    """SHA-256 of the package that a process was started from."""
    scope: str | None
    """SHA-256 of everything that the caller was offered, including definitions."""
    mode: str | None
    """For an offered scope: `list`, or `find` if clients search its tools instead of listing them."""
    servers: int | None
    tools: int | None
    prompts: int | None
    resources: int | None
    tokens: int | None
    """Estimated tokens of the tool list of an offered scope."""
    excluded: int | None
    """The number of servers and names that an offered scope excludes."""
    effective_servers: list[str] | None
    """The first servers of an offered scope, including servers that have not listed their tools."""
    filters: list[FilterShown] | None
    """The first tool filters of key, task and request."""
    offered: list[str] | None
    """The first offered tools."""
    reasons: dict[str, int] | None
    """The number of exclusions for each reason."""
    exclusions: list[ExclusionShown] | None
    """The first exclusions."""
    profile: str | None
    """The profile versions that applied, like `code-review@4`, separated by spaces."""


class AuditResponse(ResponseShape, frozen=True, kw_only=True):
    """A page of events, the newest first."""

    events: list[AuditShown]
    next_cursor: NextCursor


class AuditStoryResponse(ResponseShape, frozen=True, kw_only=True):
    """An event and its related events."""

    event: AuditShown
    around: list[AuditShown]
    """Other events of the same session, invocation, request or approval, in order: up to 100 before it and
    100 after it."""


COLUMNS: Final = AuditShown.__struct_fields__
"""In the order of the fields."""
_NOTHING: Final[dict[str, Any]] = dict.fromkeys(COLUMNS)


def show_event(kept: tables.IndexedEvent) -> AuditShown:
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
    except (msgspec.DecodeError, RecursionError):  # an unreadable number, or nested too deeply
        return {"…": bytes(raw).decode(errors="replace")}


_COLUMNS: Final = {"task": "task_id", "server": "server_id", "request": "request_id"}
"""Query parameter to the column that it filters, if the names differ."""
_OUTCOMES: Final = (*get_args(Outcome), *tables.OUTCOME_GROUPS)
_CHOICES: Final = {"type": get_args(tables.EventType), "outcome": _OUTCOMES}
_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,18})")


_EXACT_FILTERS: Final = (
    Parameter("type", f"Only events of this type: {join_quoted(get_args(tables.EventType))}."),
    Parameter(
        "outcome",
        f"Only calls with this outcome: {join_quoted(get_args(Outcome))}. Or of a group: `admitted`; "
        "`failed`: `error` or `tool_error`; `pending`: denied until approved; `rejected`: otherwise denied.",
    ),
    Parameter("door", "Only calls through this endpoint: `mcp`, `chat`, `responses`, `hostcall`, `rest`."),
    Parameter("principal", "Only events of this principal."),
    Parameter("task", "Only events of this task."),
    Parameter("server", "Only events of this server."),
    Parameter("tool", "Only events of this tool, named without its server. Unknown tools: as called."),
    Parameter("code", "Only events with this error code. Empty: only events without an error code."),
    Parameter("session", "Only events of this session or invocation."),
    Parameter("request", "Only events of this request."),
    Parameter("node", "Only events of this node. Empty: only events of the control plane."),
    Parameter("profile", "Only calls and scopes to which this profile version applied: `desk@2`."),
)
FILTERS: Final = (
    *_EXACT_FILTERS,
    Parameter("since", "Only events from this time on, in unix milliseconds.", "number"),
    Parameter("until", "Only events before this time, in unix milliseconds.", "number"),
)


def parse_filter(call: RestCall[None]) -> tables.EventFilter:
    """The filter in the query parameters. Raises InvalidRequest."""
    since_ms, until_ms = call.number("since"), call.number("until")
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise InvalidRequest("`since` must not be after `until`")
    return tables.EventFilter(equals=parse_exact_filters(call), since_ms=since_ms, until_ms=until_ms)


def parse_exact_filters(call: RestCall[None]) -> Mapping[str, str]:
    """The exact filters in the query parameters, by column. Raises InvalidRequest."""
    named = [one.name for one in _EXACT_FILTERS if one.name in call.query]
    equals = {_COLUMNS.get(name, name): call.query[name] for name in named}
    for name, among in _CHOICES.items():
        call.choice(name, among)
    if any(len(value) > tables.MAX_KEY_CHARS for value in equals.values()):
        raise InvalidRequest(f"a filter value is longer than {tables.MAX_KEY_CHARS} characters")
    return equals


@get("/admin/api/audit", "viewer", "List audit events", query=(*FILTERS, *describe_paging(PAGE)))
async def list_events(control: Control, call: RestCall[None]) -> AuditResponse:
    """Calls, denials, offered scopes, changes, rejected credentials, invocations, approvals and processes,
    the newest first.

    Several filters must all match. Events of a node appear after the node sent them, sorted by their time.
    """
    page = call.page(default=PAGE)
    place = _PLACE.fullmatch(page.after)
    if page.after and place is None:
        raise InvalidRequest("invalid cursor", hint="list again without a cursor")
    before = None if place is None else tables.EventPosition(int(place[1]), int(place[2]))
    found = await control.audit_index.page(parse_filter(call), before=before, limit=page.limit + 1)
    shown, more = page.first(found, lambda event: "{}.{}".format(*event.place))
    return AuditResponse(events=[show_event(one) for one in shown], next_cursor=more)


@dataclass(slots=True)
class EventTail:
    """Events in the order in which they are indexed. A cancelled wait loses no event."""

    control: Control
    only: tables.EventFilter
    after: int

    def __aiter__(self) -> "EventTail":
        return self

    async def __anext__(self) -> Sequence[tables.IndexedEvent]:
        index, limits = self.control.audit_index, self.control.limits
        while True:
            news = index.news
            found = await index.following(self.only, after=self.after, limit=limits.export_page)
            self.after = found.position
            if found.events:
                return found.events
            # Events of this process wake it; it polls for those of other replicas.
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.tail_poll_s):
                    await news.wait()


@get("/admin/api/audit/events", "viewer", "Stream audit events", query=FILTERS, **streams.STREAM)
async def follow_events(control: Control, call: RestCall[None]) -> RestResponse:
    """A stream of new audit events, with the filters of the list.

    The first event is `start`. Each audit event is an `event`, whose id is its position in the order of
    arrival. To miss nothing, reconnect with the last id. If the stream ends with `error`, reconnect.
    """
    asked, index = parse_filter(call), control.audit_index
    last = streams.parse_last_event_id(call)
    after = await index.newest() if last is None else last
    tail = nullcontext(EventTail(control, asked, after=after))
    first = streams.encode_named_event("start", {}, after)

    def encode(new: Sequence[tables.IndexedEvent]) -> bytes:
        return b"".join(streams.encode_named_event("event", show_event(one), one.position) for one in new)

    return await streams.stream_response(control, call, tail, first=first, encode=encode)


CSV: Final = "text/csv; charset=utf-8"
JSON_LINES: Final = "application/jsonl"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Characters that a cell must not begin with: a spreadsheet would compute it as a formula."""


class ExportFormat(NamedTuple):
    """A format of exported events."""

    media_type: str
    head: bytes
    rows: Callable[[Sequence[AuditShown]], bytes]
    note: Callable[[str], bytes]
    """The last line if there may be more events than one export contains."""


def encode_csv(events: Sequence[AuditShown]) -> bytes:
    """Encode rows without any cell that a spreadsheet computes."""
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
    """Encode one object a line, without characters that a terminal or an editor interprets."""
    whole = map(msgspec.to_builtins, events)
    return _lines({name: value for name, value in one.items() if value is not None} for one in whole)


def _lines(objects: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(f"{encode_json(one)}\n" for one in objects).encode()


FORMATS: Final[Mapping[str, ExportFormat]] = {
    "csv": ExportFormat(CSV, _csv([COLUMNS]), encode_csv, lambda text: _csv([[text]])),
    "jsonl": ExportFormat(JSON_LINES, b"", encode_lines, lambda text: _lines([{"stopped": text}])),
}


@get(
    "/admin/api/audit/export",
    "viewer",
    "Export audit events",
    JSON_LINES,
    query=(Parameter("format", "`csv` or `jsonl`. Default: `jsonl`."), *FILTERS),
    also=(CSV,),
)
async def export_events(control: Control, call: RestCall[None]) -> RestResponse:
    """The matching events as a file, the newest first, up to 100,000.

    If it stops at the limit, the last line says so: to get older events, set `until` to the last `at_ms`.
    """
    name = call.choice("format", tuple(FORMATS)) or "jsonl"
    chosen, disposition = FORMATS[name], f'attachment; filename="audit.{name}"'
    events = _encode_events(control, parse_filter(call), chosen)
    headers = {"content-type": chosen.media_type, "content-disposition": disposition}
    return RestResponse(response.ResponseStream(await anext(events), events), headers=headers)


async def _encode_events(control: Control, only: tables.EventFilter, chosen: ExportFormat) -> response.Events:
    """Yield the file in pieces, a page each, so that an invalid request fails with the first one as usual."""
    limits, head, before = control.limits, chosen.head, None
    left = limits.max_export
    while left > 0:
        limit = min(limits.export_page, left)
        page = await control.audit_index.page(only, before=before, limit=limit)
        yield head + chosen.rows([show_event(one) for one in page])
        if len(page) < limit:
            return
        head, before, left = b"", page[-1].place, left - limit
    most = limits.max_export
    yield chosen.note(f"stopped after {most} events: to get older events, set `until` to the last `at_ms`")


@get("/admin/api/audit/{event_id}", "viewer", "Read an audit event")
async def show_story(control: Control, call: RestCall[None]) -> AuditStoryResponse:
    """One event with all fields, and related events of its session, invocation, request or approval, in
    order."""
    index, event_id = control.audit_index, call.ids["event_id"]
    place = tables.parse_event_id(event_id)
    event = None if place is None else await index.find(*place)
    if event is None:
        raise NotFound(f"no event `{event_id[:40]}`", hint="the index drops events after `audit.days`")
    around = await index.around(event)
    return AuditStoryResponse(event=show_event(event), around=list(map(show_event, around)))
