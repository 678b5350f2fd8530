"""Counts calls: over time, by server and tool, by reason of denial, by caller."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Text, case, cast, func, select

from toolgate.audit.index.statements import build_conditions, percentile_ms
from toolgate.audit.index.tables import EVENTS, OUTCOME_GROUPS, EventFilter

MAX_NAMED: Final = 20  # tools, reasons and callers that a result names
MAX_NAMED_SERVERS: Final = 1_000  # as many as the largest page of the REST API
_FAILED: Final = func.sum(case((OUTCOME_GROUPS["failed"], 1), else_=0))
_COUNT: Final = func.count()
_decode_numbers = msgspec.json.Decoder(list[int]).decode


@dataclass(frozen=True, slots=True)
class ActivityBucket:
    """The calls of one time span."""

    at_ms: int
    """The start of the time span."""
    calls: int
    """Admitted calls, whatever their outcome."""
    errors: int
    """Admitted calls with the outcome `error` or `tool_error`."""
    denials: int
    """Denied calls, without the pending ones."""
    pending: int
    """Calls that were denied until someone approves them."""


@dataclass(frozen=True, slots=True)
class ServerActivity:
    """The calls of one server."""

    server_id: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float
    """Both percentiles are accurate within 5 %."""
    last_ms: int
    """The time of its last call."""


@dataclass(frozen=True, slots=True)
class ToolActivity:
    """The calls of one tool."""

    server_id: str
    tool: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class DenialCount:
    """The number of denials with one reason."""

    code: str
    layer: str
    rule: str
    count: int


@dataclass(frozen=True, slots=True)
class CallerActivity:
    """The calls of one principal."""

    principal: str
    calls: int


class VersionCalls(msgspec.Struct, frozen=True, order=True):
    """The calls decided by one version of a profile."""

    version: int
    calls: int
    """Admitted calls, whatever their outcome."""
    errors: int
    """Admitted calls with the outcome `error` or `tool_error`."""
    denied: int
    """Denied calls."""
    p50_ms: float | None
    """Median latency, within 5 %. Null: no calls."""
    p95_ms: float | None
    """95th percentile of the latency, within 5 %. Null: no calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Calls over time, by server, tool and caller."""

    since_ms: int
    until_ms: int
    bucket_ms: int
    buckets: Sequence[ActivityBucket]
    servers: Sequence[ServerActivity]
    """The 1,000 servers with the most calls, sorted by id."""
    tools: Sequence[ToolActivity]
    """The 20 slowest tools, by `p95_ms`."""
    denials: Sequence[DenialCount]
    """The 20 most frequent denials."""
    callers: Sequence[CallerActivity]
    """The 20 callers with the most calls."""


@dataclass(slots=True)
class _Tally:
    """The calls of one tool or server."""

    speeds: Counter[int] = field(default_factory=Counter)
    """Duration class to the number of calls; see `classify_speed`."""
    errors: int = 0
    last_ms: int = 0

    @property
    def calls(self) -> int:
        return self.speeds.total()

    @property
    def percentiles(self) -> tuple[float, float]:
        return percentile_ms(self.speeds, 0.5), percentile_ms(self.speeds, 0.95)


def read_activity(
    connection: Connection, event_filter: EventFilter, since_ms: int, until_ms: int, buckets: int
) -> Activity:
    """The calls from `since_ms` (inclusive) to `until_ms` (exclusive)."""
    calls = [*_calls_between(since_ms, until_ms), *build_conditions(event_filter)]
    bucket_ms = -(-(until_ms - since_ms) // buckets)
    tools = _read_tools(connection, calls)
    slowest = nsmallest(
        MAX_NAMED, tools.items(), key=lambda one: (-percentile_ms(one[1].speeds, 0.95), one[0])
    )
    denials = _read_frequent(connection, ("code", "layer", "rule"), *calls, OUTCOME_GROUPS["rejected"])
    callers = _read_frequent(connection, ("principal",), *calls, OUTCOME_GROUPS["admitted"])
    return Activity(
        since_ms=since_ms,
        until_ms=until_ms,
        bucket_ms=bucket_ms,
        buckets=_read_buckets(connection, calls, range(since_ms, until_ms, bucket_ms)),
        servers=_sum_servers(tools),
        tools=[ToolActivity(*name, tally.calls, tally.errors, *tally.percentiles) for name, tally in slowest],
        denials=[DenialCount(*row) for row in denials],
        callers=[CallerActivity(*row) for row in callers],
    )


def _calls_between(since_ms: int, until_ms: int) -> Sequence[ColumnElement[bool]]:
    return (EVENTS.c.type == "call", EVENTS.c.at_ms >= since_ms, EVENTS.c.at_ms < until_ms)


def _read_buckets(
    connection: Connection, calls: Sequence[ColumnElement[bool]], starts: range
) -> Sequence[ActivityBucket]:
    number = (EVENTS.c.at_ms - starts.start) // starts.step
    sums = [func.sum(case((group, 1), else_=0)).label(name) for name, group in OUTCOME_GROUPS.items()]
    rows = connection.execute(select(number.label("number"), *sums).where(*calls).group_by("number"))
    counts = {row.number: row for row in rows}
    return [
        ActivityBucket(at_ms, found.admitted, found.failed, found.rejected, found.pending)
        if (found := counts.get(one))
        else ActivityBucket(at_ms, 0, 0, 0, 0)
        for one, at_ms in enumerate(starts)
    ]


def _read_tools(
    connection: Connection, calls: Sequence[ColumnElement[bool]]
) -> Mapping[tuple[str, str], _Tally]:
    """One row per tool, whose classes the database joins into a text: rows cost more than counting."""
    key = (EVENTS.c.server_id, EVENTS.c.tool, EVENTS.c.speed)
    newest_ms = func.max(EVENTS.c.at_ms)
    counts = select(*key, _COUNT.label("many"), _FAILED.label("errors"), newest_ms.label("last_ms"))
    ended = counts.where(*calls, EVENTS.c.speed.is_not(None), EVENTS.c.server_id.is_not(None))
    classes = ended.group_by(*key).subquery().c
    one = cast(classes.speed, Text) + "," + cast(classes.many, Text)
    tool_key = (classes.server_id, classes.tool)
    sums = (func.sum(classes.errors), func.max(classes.last_ms), func.aggregate_strings(one, ","))
    query = select(*tool_key, *sums).group_by(*tool_key)
    return {
        (server_id, tool or ""): _Tally(Counter(dict(batched_pairs)), int(errors), last_ms)
        for server_id, tool, errors, last_ms, speeds in connection.execute(query).all()
        for numbers in [iter(_decode_numbers(f"[{speeds}]"))]
        for batched_pairs in [zip(numbers, numbers, strict=True)]
    }


def _sum_servers(tools: Mapping[tuple[str, str], _Tally]) -> Sequence[ServerActivity]:
    servers: dict[str, _Tally] = defaultdict(_Tally)
    for (server_id, _), tally in tools.items():
        server = servers[server_id]
        server.speeds.update(tally.speeds)
        server.errors += tally.errors
        server.last_ms = max(server.last_ms, tally.last_ms)
    most = sorted(servers, key=lambda server_id: (-servers[server_id].calls, server_id))[:MAX_NAMED_SERVERS]
    return [
        ServerActivity(server_id, tally.calls, tally.errors, *tally.percentiles, tally.last_ms)
        for server_id in sorted(most)
        for tally in [servers[server_id]]
    ]


def read_versions(
    connection: Connection, profile_id: str, since_ms: int, until_ms: int
) -> Sequence[VersionCalls]:
    """The calls of this time by the version of the profile, sorted."""
    key = (EVENTS.c.profile, EVENTS.c.speed)
    denied = func.sum(case((EVENTS.c.outcome == "denied", 1), else_=0))
    is_named = EVENTS.c.profile.contains(f"{profile_id}@", autoescape=True)
    query = select(*key, _COUNT, _FAILED, denied).where(*_calls_between(since_ms, until_ms), is_named)
    found: dict[int, _Tally] = defaultdict(_Tally)
    denials: Counter[int] = Counter()
    for profiles, speed, many, errors, refused in connection.execute(query.group_by(*key)):
        version = _parse_version(profiles, profile_id)
        if version is None:
            continue  # another profile, whose name ends like the requested one
        tally = found[version]
        tally.errors += int(errors)
        denials[version] += int(refused)
        if speed is not None:
            tally.speeds[speed] += many
    return [
        VersionCalls(version, tally.calls, tally.errors, denials[version], *percentiles)
        for version, tally in sorted(found.items())
        for percentiles in [tally.percentiles if tally.speeds else (None, None)]
    ]


def _parse_version(profiles: str, profile_id: str) -> int | None:
    """The version of a profile in the `profile` of an event, which names all that applied."""
    named = (one.partition("@") for one in profiles.split(" "))
    return next((int(text) for name, _, text in named if name == profile_id and text.isdecimal()), None)


def _read_frequent(
    connection: Connection, names: Sequence[str], *where: ColumnElement[bool]
) -> Sequence[Any]:
    """The most frequent texts in these columns, with their count; for equal counts, by name."""
    key = [func.coalesce(EVENTS.c[name], "").label(name) for name in names]
    query = select(*key, _COUNT.label("many")).where(*where).group_by(*key)
    rows = connection.execute(query.order_by(_COUNT.desc()).limit(10 * MAX_NAMED)).all()
    return sorted(rows, key=lambda row: (-row.many, tuple(row)))[:MAX_NAMED]
