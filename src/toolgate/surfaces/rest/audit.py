"""What happened: pages of events, one event's story, and the live tail. For those who may see everything."""

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, get_args

from toolgate.audit.events import Outcome
from toolgate.audit.queries import MAX_KEY_CHARS, EventType, Filter, KeptEvent, Place
from toolgate.errors import InvalidRequest, NotFound, SessionLimit
from toolgate.govern.audit import PAGE, Tail, index_of, read_story
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.paging import MAX_PAGE, parse_page
from toolgate.surfaces.rest.framework.request import listed, parse_choice
from toolgate.surfaces.rest.framework.response import EVENTS, Answer
from toolgate.surfaces.rest.framework.routing import Call, Endpoint, Parameter
from toolgate.surfaces.rest.framework.streams import LAST_ID, encode_event, parse_last_id, stream_answer
from toolgate.surfaces.rest.resources.audit import AuditAnswer, AuditStoryAnswer, show_event

_COLUMNS: Final = {
    "type": "type",
    "outcome": "outcome",
    "door": "door",
    "principal": "principal",
    "task": "task_id",
    "server": "server_id",
    "tool": "tool",
    "code": "code",
    "session": "session",
    "request": "request_id",
    "node": "node",
    "profile": "profile",
}
"""Parameter to what it is compared with."""
_CHOICES: Final = {"type": get_args(EventType), "outcome": get_args(Outcome)}
_PLACE = re.compile(r"([0-9]{1,15})\.([0-9]{1,18})")


FILTERS: Final = (
    Parameter("type", f"Only events of this type: {listed(get_args(EventType))}."),
    Parameter("outcome", f"Only calls that ended so: {listed(get_args(Outcome))}."),
    Parameter("door", "Only calls through this door: `mcp`, `chat`, `responses`, `hostcall`, `rest`."),
    Parameter("principal", "Only events of this principal."),
    Parameter("task", "Only events of this task."),
    Parameter("server", "Only events of this server."),
    Parameter(
        "tool",
        "Only events of this tool, without its server's name. Unknown ones: as they were called.",
    ),
    Parameter("code", "Only events with this error code. Empty: those without one, as with all of these."),
    Parameter("session", "Only events of this session or run."),
    Parameter("request", "Only events of this request."),
    Parameter("node", "Only events of this node. Empty: those of the process that governs."),
    Parameter("profile", "Only calls and scopes that this version of a profile decided: `desk@2`."),
    Parameter("since", "Only events from this time on, in unix milliseconds.", form="number"),
    Parameter("until", "Only events before this time, in unix milliseconds.", form="number"),
)
_PAGING: Final = (
    Parameter("limit", f"How many at most: 1 to {MAX_PAGE}, {PAGE} unless said otherwise.", form="number"),
    Parameter("cursor", "The `next_cursor` of the page before."),
)


def parse_filter(call: Call[None]) -> Filter:
    """Which events a query asks for, or InvalidRequest with what is allowed."""
    since_ms, until_ms = call.number("since"), call.number("until")
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise InvalidRequest("`since` is after `until`")
    return Filter(equals=parse_equals(call), since_ms=since_ms, until_ms=until_ms)


def parse_equals(call: Call[None]) -> Mapping[str, str]:
    """What of events a query names, by column, or InvalidRequest with what is allowed."""
    equals = {column: call.query[name] for name, column in _COLUMNS.items() if name in call.query}
    for name, among in _CHOICES.items():
        parse_choice(call.query, name, among)
    if any(len(value) > MAX_KEY_CHARS for value in equals.values()):
        raise InvalidRequest(f"nothing is looked up by more than {MAX_KEY_CHARS} characters")
    return equals


async def list_events(control: Control, call: Call[None]) -> Answer:
    """The newest events first: calls, denials, offered scopes, changes, refused credentials, runs,
    approvals, processes.

    Each filter narrows. Of nodes, what they have told so far is shown, in its place by time.
    """
    page = parse_page({"limit": str(PAGE), **call.query})
    before = _parse_place(page.after) if page.after else None
    found = await index_of(control).page(parse_filter(call), before=before, limit=page.limit + 1)
    shown, more = page.first(found, _name_place)
    return Answer(AuditAnswer(events=[show_event(one) for one in shown], next_cursor=more))


def _name_place(event: KeptEvent) -> str:
    return "{}.{}".format(*event.place)


def _parse_place(name: str) -> Place:
    found = _PLACE.fullmatch(name)
    if found is None:
        raise InvalidRequest("the cursor is not one of this gateway's", hint="begin without one")
    return Place(int(found[1]), int(found[2]))


async def show_story(control: Control, call: Call[None]) -> Answer:
    """One event whole, and around it the others of its session, run, request or approval, in order."""
    story = await read_story(control, call.ids["event_id"])
    return Answer(AuditStoryAnswer(event=show_event(story.event), around=list(map(show_event, story.around))))


async def follow_events(control: Control, call: Call[None]) -> Answer:
    """Events as they come in, with the filters of the list.

    First comes `start`; then `event` for each, whose id is its place in the order of arrival: who goes on
    from the last id it got misses nothing. `error` is the last event of a stream that cannot go on.
    """
    asked, index = parse_filter(call), index_of(control)
    last = parse_last_id(call)
    after = await index.newest() if last is None else last
    tail = nullcontext(Tail(index, asked, after=after))
    first = encode_event("start", {}, after)
    return await stream_answer(control, call, tail, first=first, tell=_tell)


def _tell(new: Sequence[KeptEvent]) -> bytes:
    return b"".join(encode_event("event", show_event(kept), kept.position) for kept in new)


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/admin/api/audit",
        role="viewer",
        summary="List what happened",
        handler=list_events,
        query=(*FILTERS, *_PAGING),
        answer=AuditAnswer,
        errors=(NotFound,),
    ),
    Endpoint(
        method="GET",
        path="/admin/api/audit/events",
        role="viewer",
        summary="Follow what happens",
        handler=follow_events,
        query=FILTERS,
        headers=(LAST_ID,),
        answer=EVENTS,
        errors=(NotFound, SessionLimit),
    ),
    Endpoint(
        method="GET",
        path="/admin/api/audit/{event_id}",
        role="viewer",
        summary="Read one event and its story",
        handler=show_story,
        answer=AuditStoryAnswer,
        errors=(NotFound,),
    ),
)
