"""Calls over time, by server, tool, caller and reason of denial."""

from typing import Any, Final

from toolgate.audit.index.statements import DAY_MS
from toolgate.audit.index.tables import EventFilter
from toolgate.errors import InvalidRequest, NotFound
from toolgate.govern.audit import MAX_BUCKETS, ActivityQuery, read_activity
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.request import Parameter, RestCall
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.resources.audit import ActivityAnswer, parse_exact_filters, show_activity

BUCKETS: Final = 60
_MAX_MS: Final = 10**15


@get(
    "/admin/api/activity",
    "viewer",
    "Count the calls",
    ActivityAnswer,
    query=(
        Parameter("since", "From this time on, in unix milliseconds.", form="number"),
        Parameter("until", "Up to this time, in unix milliseconds. Without it, now.", form="number"),
        Parameter("buckets", f"In how many spans: 1 to {MAX_BUCKETS}, {BUCKETS} by default.", form="number"),
        Parameter("server", "Only calls of this server."),
        Parameter("task", "Only calls of this task."),
    ),
    errors=(NotFound,),
)
async def read_activity_counts(control: Control, call: RestCall[None]) -> RestResponse:
    """How many calls there were, how they went, what was slow and what was denied.

    Without `since`, of the last day. Counts are of the events that are kept.
    """
    until_ms = call.number("until")
    until_ms = control.clock_ms() if until_ms is None else until_ms
    since_ms = call.number("since")
    since_ms = max(0, until_ms - DAY_MS) if since_ms is None else since_ms
    buckets = call.count("buckets", default=BUCKETS, most=MAX_BUCKETS)
    if not since_ms < until_ms <= _MAX_MS:
        raise InvalidRequest("`since` must be before `until`", hint="both are times in unix milliseconds")
    span = ActivityQuery(
        asked=EventFilter(equals=parse_exact_filters(call)),
        since_ms=since_ms,
        until_ms=until_ms,
        buckets=buckets,
    )
    return RestResponse(show_activity(await read_activity(control, span)))


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (read_activity_counts,)
