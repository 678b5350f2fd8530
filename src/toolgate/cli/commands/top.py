"""`toolgate top`: calls, latency and errors of servers, live in a terminal.

Metrics are read twice; the difference gives rates, and percentiles by the buckets of histograms. Counters
that restart count from zero. A frame is a function of its numbers and of the size of the terminal.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from toolgate.cli.command import CommandError, UsageError, command, open_console
from toolgate.cli.options import GatewayConnection, duration_option, parse_duration
from toolgate.cli.render.layout import BAD, DIM, WARN, JsonObject, bold, cell, count_of, grid
from toolgate.cli.render.servers import STATE_STYLES, render_node_state
from toolgate.cli.rest import RestClient, open_client
from toolgate.telemetry.exposition import parse_samples

Labels = frozenset[tuple[str, str]]
Buckets = Sequence[tuple[float, float]]
"""Upper bounds, each with how many values are up to it; rising, and the last is infinity."""
CALLS: Final = "mcp_tool_call_total"
ERRORS: Final = "mcp_tool_call_error_total"
LATENCY: Final = "mcp_tool_call_latency_ms_bucket"
DENIALS: Final = "mcp_denied_reason"
_HIGHEST_COUNTS: Final = frozenset(
    {"toolgate_loop_lag_ms", "toolgate_registry_revision", "toolgate_approvals_pending"}
)
"""Gauges of which the highest value of several processes counts, not the sum."""


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All samples of one process, or of several added up, at one time."""

    at_s: float
    samples: Mapping[str, Mapping[Labels, float]]

    def total(self, name: str) -> float | None:
        """The sum of a gauge over its labels; None if the process does not have it."""
        found = self.samples.get(name)
        return None if found is None else sum(found.values())

    def by(self, name: str, label: str) -> Mapping[str, float]:
        found: dict[str, float] = defaultdict(float)
        for labels, value in self.samples.get(name, {}).items():
            found[dict(labels).get(label, "")] += value
        return found

    def since(self, before: "MetricsSnapshot") -> "MetricsSnapshot":
        """The increase of the counters, and the seconds between. A counter that fell restarted at zero."""
        risen: dict[str, dict[Labels, float]] = defaultdict(dict)
        for name in (CALLS, ERRORS, LATENCY, DENIALS):
            known = before.samples.get(name, {})
            for labels, value in self.samples.get(name, {}).items():
                earlier = known.get(labels, 0.0)
                risen[name][labels] = value - earlier if value >= earlier else value
        return MetricsSnapshot(max(self.at_s - before.at_s, 1e-3), risen)


def parse_reading(texts: Iterable[str], at_s: float) -> MetricsSnapshot:
    """The metrics of one or more processes, added up. Raises ValueError."""
    samples: dict[str, dict[Labels, float]] = defaultdict(dict)
    for text in texts:
        for name, labels, value in parse_samples(text):
            known, key = samples[name], frozenset(labels.items())
            before = known.get(key, 0.0)
            known[key] = max(before, value) if name in _HIGHEST_COUNTS else before + value
    return MetricsSnapshot(at_s, dict(samples))


def interpolate(buckets: Buckets, share: float) -> float | None:
    """The quantile `share`, as Prometheus estimates it: values are spread evenly within each bucket.

    None for no values.
    """
    total = buckets[-1][1] if buckets else 0.0
    if not total:
        return None
    rank, lower, below = share * total, 0.0, 0.0
    for bound, upto in buckets[:-1]:
        if upto >= rank:
            within = (rank - below) / (upto - below) if upto > below else 1.0
            return lower + (bound - lower) * within
        lower, below = bound, upto
    return lower


IN_FLIGHT: Final = "toolgate_calls_in_flight"
QUEUED: Final = "toolgate_calls_queued"
LAG: Final = "toolgate_loop_lag_ms"
_GAUGES: Final[Sequence[Mapping[str, str]]] = (
    {
        "active": IN_FLIGHT,
        "queued": QUEUED,
        "node queue": "toolgate_node_calls_queued",
        "children": "toolgate_children",
        "sessions": "toolgate_sessions",
        "streams": "toolgate_streams",
    },
    {
        "approvals pending": "toolgate_approvals_pending",
        "guests": "toolgate_guests",
        "runs queued": "toolgate_invocations_queued",
        "loop lag": LAG,
    },
)
"""Lines of the frame: label → gauge."""
SHARES: Final = (0.5, 0.95, 0.99)
_WORST_FIRST: Final = ("down", "degraded", "starting", "connected", "idle", "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTotals:
    """The calls of a span of time."""

    seconds: float
    calls: Mapping[str, float]
    errors: Mapping[str, float]
    """Both by server; calls of unknown tools have no name."""
    p95_ms: Mapping[str, float | None]
    percentiles_ms: Sequence[float | None]
    codes: Mapping[str, float]
    """Calls that failed, by code."""
    denials: Mapping[str, float]
    """Hidden tools, by reason."""


def totals_between(risen: MetricsSnapshot) -> CallTotals:
    latencies: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    every: dict[float, float] = defaultdict(float)
    for labels, rise in risen.samples.get(LATENCY, {}).items():
        one = dict(labels)
        latencies[one["server_id"]][float(one["le"])] += rise
        every[float(one["le"])] += rise
    p95_ms = {name: interpolate(sorted(buckets.items()), 0.95) for name, buckets in latencies.items()}
    return CallTotals(
        seconds=risen.at_s,
        calls=risen.by(CALLS, "server_id"),
        errors=risen.by(ERRORS, "server_id"),
        p95_ms=p95_ms,
        percentiles_ms=[interpolate(sorted(every.items()), share) for share in SHARES],
        codes={code: many for code, many in risen.by(ERRORS, "code").items() if many},
        denials={reason: many for reason, many in risen.by(DENIALS, "reason").items() if many},
    )


def totals_from_audit(activity: JsonObject) -> CallTotals:
    """The activity that nodes reported to their control plane: `GET /admin/api/activity`."""
    servers = activity["servers"]
    codes: Counter[str] = Counter()
    for one in activity["denials"]:
        codes[one["code"]] += one["count"]
    denied = sum(bucket["denials"] for bucket in activity["buckets"])
    return CallTotals(
        seconds=(activity["until_ms"] - activity["since_ms"]) / 1e3,
        calls={"": denied, **{one["server_id"]: one["calls"] for one in servers}},
        errors={"": denied, **{one["server_id"]: one["errors"] for one in servers}},
        p95_ms={one["server_id"]: one["p95_ms"] for one in servers},
        percentiles_ms=(None, None, None),
        codes=codes,
        denials={},
    )


def make_frame(
    reading: MetricsSnapshot,
    happened: CallTotals,
    *,
    url: str,
    clock: str,
    nodes: Sequence[JsonObject] = (),
) -> dict[str, Any]:
    """The newest numbers, busiest servers first. `trouble`: why the numbers are old."""
    seconds = happened.seconds
    in_flight, queued = reading.by(IN_FLIGHT, "server_id"), reading.by(QUEUED, "server_id")
    servers: list[dict[str, Any]] = [
        {
            "server_id": server_id,
            "state": state,
            "calls_per_s": happened.calls.get(server_id, 0.0) / seconds,
            "errors_per_s": happened.errors.get(server_id, 0.0) / seconds,
            "p95_ms": happened.p95_ms.get(server_id),
            "in_flight": in_flight.get(server_id),
            "queued": queued.get(server_id),
        }
        for server_id, state in _find_states(reading).items()
    ]
    servers.sort(key=lambda one: (-one["calls_per_s"], _badness(one["state"]), one["server_id"]))
    return {
        "url": url,
        "clock": clock,
        "servers": servers,
        "calls_per_s": sum(happened.calls.values()) / seconds,
        "errors_per_s": sum(happened.errors.values()) / seconds,
        "percentiles_ms": happened.percentiles_ms,
        "gauges": {name: reading.total(name) for row in _GAUGES for name in row.values()},
        "codes": happened.codes,
        "denials": happened.denials,
        "nodes": nodes,
        "trouble": "",
    }


def _find_states(reading: MetricsSnapshot) -> Mapping[str, str]:
    """The state of each server; on several nodes, the worst one."""
    found: dict[str, set[str]] = defaultdict(set)
    for labels, value in reading.samples.get("toolgate_server_state", {}).items():
        one = dict(labels)
        if value:
            found[one["server_id"]].add(one["state"])
    return {server_id: min(states, key=_badness) for server_id, states in found.items()}


def _badness(state: str) -> int:
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else len(_WORST_FIRST)


_STATE_STYLES: Final = {**STATE_STYLES, "idle": DIM}
MOST_REASONS: Final = 4  # one line of 80 columns
MOST_NODES: Final = 3  # leaves most of 24 rows to servers
_NAME: Final = 30  # columns: state, revision and age fit next to it in 80
_SLOW_LOOP_MS: Final = 100
"""The limit that the gateway promises."""
_MANY, _FEW_MS, _LONG_MS = 100, 10, 10_000
"""Values from which fewer digits are shown."""


def render_frame(frame: JsonObject, height: int | None = None) -> RenderableType:
    """The frame, as many servers as there is room for. `height` None: all of them."""
    head = _render_head(frame)
    most = [*_render_most("errors", frame["codes"]), *_render_most("denied", frame["denials"])]
    foot = [*most, *_render_nodes(frame["nodes"])]
    room = None if height is None else max(1, height - len(head) - len(foot) - 4)
    servers = _render_servers(frame["servers"], room)
    return Group(*head, Text(""), servers, *([Text("")] if foot else []), *foot)


def _render_head(frame: JsonObject) -> list[Text]:
    p50, p95, p99 = map(_ms, frame["percentiles_ms"])
    errors = Text(f"{_rate(frame['errors_per_s'])}/s", style=BAD if frame["errors_per_s"] else "")
    lines = [
        Text.assemble(("toolgate top  ", "bold"), cell(frame["url"]), (f"  {frame['clock']}", DIM)),
        Text.assemble(
            ("calls ", DIM), f"{_rate(frame['calls_per_s'])}/s", ("   errors ", DIM), errors,
            ("   p50 ", DIM), p50, ("   p95 ", DIM), p95, ("   p99 ", DIM), p99,
        ),
        *_render_gauges(frame["gauges"]),
    ]  # fmt: skip
    if frame["trouble"]:
        lines.append(Text.assemble(("old numbers: ", WARN), cell(frame["trouble"])))
    return lines


def _render_gauges(gauges: Mapping[str, float | None]) -> Iterator[Text]:
    for row in _GAUGES:
        parts = []
        for label, name in row.items():
            value, is_lag = gauges[name], name == LAG
            style = BAD if is_lag and (value or 0) > _SLOW_LOOP_MS else ""
            parts.append(Text.assemble((f"{label} ", DIM), (_ms(value) if is_lag else _whole(value), style)))
        yield Text("   ").join(parts)


def _render_servers(servers: Sequence[JsonObject], room: int | None) -> RenderableType:
    table = grid("SERVER", "STATE", "CALLS/S", "ERR/S", "P95", "ACTIVE", "QUEUED")
    # In a narrow terminal names are cut, so that a frame keeps its height.
    table.is_stacked_if_narrow = False
    table.columns[0].no_wrap, table.columns[0].overflow = False, "ellipsis"
    for column in table.columns[2:]:
        column.justify = "right"
    for one in servers[:room]:
        table.add_row(
            bold(one["server_id"]),
            cell(one["state"], _STATE_STYLES.get(one["state"], "")),
            _rate(one["calls_per_s"]),
            cell(_rate(one["errors_per_s"]), BAD if one["errors_per_s"] else ""),
            *(_ms(one["p95_ms"]), _whole(one["in_flight"])),
            cell(_whole(one["queued"]), WARN if one["queued"] else ""),
        )
    rest = len(servers) - table.row_count
    if not rest:
        return table if servers else Text("no server is registered", style=DIM)
    return Group(table, Text(f"and {count_of(rest, 'server')} more", style=DIM))


def _render_most(what: str, counts: Mapping[str, float]) -> list[Text]:
    """The most frequent entries on one line; empty without any."""
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MOST_REASONS]
    text = ", ".join(f"{reason} {number:,.0f}" for reason, number in most)
    line = Text.assemble((f"{what}  ", DIM), cell(text), overflow="ellipsis", no_wrap=True)
    return [line] if most else []


def _render_nodes(nodes: Sequence[JsonObject]) -> list[Text]:
    lines = []
    for node in nodes[:MOST_NODES]:
        name = str(node["node_id"])
        short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        age = (f"{node['age_s']:.0f} s ago", DIM)
        revision = f"  revision {node['revision']:,}  "
        lines.append(
            Text.assemble(("node  ", DIM), bold(short), "  ", render_node_state(node), revision, age)
        )
    rest = len(nodes) - len(lines)
    return [*lines, Text(f"and {count_of(rest, 'node')} more", style=DIM)] if rest else lines


def _rate(per_s: float) -> str:
    if per_s >= _MANY or not per_s:
        return f"{per_s:,.0f}"
    return f"{per_s:.1f}" if per_s >= 1 else f"{per_s:.2f}"


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= _LONG_MS:
        return f"{value / 1e3:,.1f} s"
    return f"{value:,.0f} ms" if value >= _FEW_MS else f"{value:.1f} ms"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


_MIN_INTERVAL_S: Final = 0.2  # faster than people read, and a request for each
_MAX_INTERVAL_S: Final = 3_600
"""Rates over longer spans are a question for Prometheus."""
AUDITED_S: Final = 60
"""Seconds shown for calls from the audit log, which nodes send with some delay."""

app = typer.Typer(add_completion=False)


@command(app, "top")
def top_command(
    connection: GatewayConnection,
    *,
    interval: Annotated[str, duration_option(help="Time between two updates: `10s`, `1m`.")] = "2s",
    once: Annotated[bool, "Print one frame as plain text, for pipes and scripts."] = False,
    nodes: Annotated[
        list[str] | None, "--node URL", "Address of a node to add, with the same key. Repeatable."
    ] = None,
) -> None:
    """Show calls, latency and errors of servers, live.

    A control plane makes no calls: it shows what its nodes reported for the last minute. Add the nodes with
    --node to see what they do now. Ctrl-C ends the command.

    \b
    toolgate top --interval 10s
    toolgate top --once
    toolgate top --url https://control.example --node https://node-1.example
    """
    interval_s = parse_duration(interval)
    if not _MIN_INTERVAL_S <= interval_s <= _MAX_INTERVAL_S:
        raise UsageError(f"`{interval}` is not an interval for updates", hint="give `1s` to `1h`")
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        client = stack.enter_context(connection.open())
        keys = [(url, connection.load_key_for(url)) for url in nodes or ()]
        sources = [client, *(stack.enter_context(open_client(url, key)) for url, key in keys)]
        frames = watch_frames(client, sources, interval_s)
        if once or connection.as_json:
            frame = next(frames)
            connection.show(frame, render_frame(frame))
            return
        console = open_console()
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for frame in frames:
                live.update(render_frame(frame, console.height), refresh=True)


def watch_frames(
    client: RestClient, sources: Sequence[RestClient], interval_s: float
) -> Iterator[JsonObject]:
    """A frame per interval. After the first, an unreachable gateway is shown in the frame."""
    before = _read(sources)
    frame: JsonObject = {}
    while True:
        time.sleep(interval_s)
        try:
            after = _read(sources)
            frame = _make_frame(client, before, after)
            before = after
        except CommandError as failure:
            if not frame:
                raise
            frame = {**frame, "trouble": str(failure)}
        yield frame


def _read(sources: Sequence[RestClient]) -> MetricsSnapshot:
    texts = [b"".join(source.chunks("/metrics", {})).decode() for source in sources]
    return parse_reading(texts, time.monotonic())


def _make_frame(client: RestClient, before: MetricsSnapshot, after: MetricsSnapshot) -> JsonObject:
    if after.total(IN_FLIGHT) is not None:
        happened = totals_between(after.since(before))
    else:  # only control planes were read
        since_ms = int((time.time() - AUDITED_S) * 1e3)
        happened = totals_from_audit(client.get("/admin/api/activity", {"since": since_ms, "buckets": 1}))
    listed = client.find("/admin/api/nodes")  # nodes do not list nodes
    nodes, clock = listed["nodes"] if listed else (), time.strftime("%H:%M:%S")
    return make_frame(after, happened, url=client.url, clock=clock, nodes=nodes)
