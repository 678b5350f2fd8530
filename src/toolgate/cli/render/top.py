"""One frame of `toolgate top`: totals, servers, denials, nodes. A function of its numbers and the size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, JsonObject, bold, cell, count_of, grid
from toolgate.cli.render.servers import render_node_state

STATE_STYLES: Final = {
    "connected": OK,
    "starting": WARN,
    "idle": DIM,
    "disabled": DIM,
    "degraded": WARN,
    "down": BAD,
}
MOST_REASONS: Final = 4
MOST_NODES: Final = 3
_NAME: Final = 30
_SLOW_LOOP_MS: Final = 100
"""What the gateway promises to stay under."""
_MANY, _FEW_MS, _LONG_MS = 100, 10, 10_000
"""From here on, fewer digits say enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopServer:
    """One server in the last interval. None: this is not known here."""

    server_id: str
    state: str
    calls_per_s: float = 0.0
    errors_per_s: float = 0.0
    p95_ms: float | None = None
    in_flight: float | None = None
    queued: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopFrame:
    """All that is shown at one time."""

    url: str
    clock: str
    servers: Sequence[TopServer]
    """The busiest first."""
    calls_per_s: float
    errors_per_s: float
    percentiles_ms: Sequence[float | None]
    """p50, p95 and p99 of all calls."""
    gauges: Mapping[str, float | None]
    """Of the whole process, by their names in the metrics."""
    codes: Mapping[str, float]
    """Calls that failed in the last interval, by code."""
    denials: Mapping[str, float]
    """What was left out of scopes, by reason."""
    nodes: Sequence[JsonObject] = field(default_factory=tuple)
    trouble: str = ""
    """Why what is shown is not of now."""


def render_frame(frame: TopFrame, height: int | None = None) -> RenderableType:
    """The frame, as many servers as there is room for. `height` None: all of them."""
    head = _head(frame)
    foot = [*_render_most("errors", frame.codes), *_render_most("denied", frame.denials), *_nodes(frame)]
    room = None if height is None else max(1, height - len(head) - len(foot) - 4)
    return Group(*head, Text(""), _servers(frame, room), *([Text("")] if foot else []), *foot)


def _head(frame: TopFrame) -> list[Text]:
    p50, p95, p99 = (_ms(one) for one in frame.percentiles_ms)
    errors = Text(f"{_rate(frame.errors_per_s)}/s", style=BAD if frame.errors_per_s else "")
    lines = [
        Text.assemble(("toolgate top  ", "bold"), cell(frame.url), (f"  {frame.clock}", DIM)),
        Text.assemble(
            ("calls ", DIM), f"{_rate(frame.calls_per_s)}/s", ("   errors ", DIM), errors,
            ("   p50 ", DIM), p50, ("   p95 ", DIM), p95, ("   p99 ", DIM), p99,
        ),
    ]  # fmt: skip
    lines += _gauge_lines(frame.gauges)
    if frame.trouble:
        lines.append(Text.assemble(("old numbers: ", WARN), cell(frame.trouble)))
    return lines


def _gauge_lines(gauges: Mapping[str, float | None]) -> list[Text]:
    shown = {name.removeprefix("toolgate_"): value for name, value in gauges.items()}
    lag = shown.get("loop_lag_ms")
    rows = (
        (("active", "calls_in_flight"), ("queued", "calls_queued"), ("node queue", "node_calls_queued"),
         ("children", "children"), ("sessions", "sessions"), ("streams", "streams")),
        (("approvals pending", "approvals_pending"), ("guests", "guests"),
         ("runs queued", "invocations_queued")),
    )  # fmt: skip
    lines = []
    for row in rows:
        parts: list[Text | tuple[str, str]] = []
        for label, name in row:
            parts += [(f"{label} ", DIM), Text(f"{_whole(shown.get(name))}   ")]
        lines.append(Text.assemble(*parts))
    lines[-1].append_text(
        Text.assemble(("loop lag ", DIM), (_ms(lag), BAD if (lag or 0) > _SLOW_LOOP_MS else ""))
    )
    return lines


def _servers(frame: TopFrame, room: int | None) -> RenderableType:
    table = grid("SERVER", "STATE", "CALLS/S", "ERR/S", "P95", "ACTIVE", "QUEUED")
    # Where it is narrow, names give way.
    table.columns[0].no_wrap, table.columns[0].overflow = False, "ellipsis"
    for column in table.columns[2:]:
        column.justify = "right"
    shown = frame.servers if room is None else frame.servers[:room]
    for one in shown:
        table.add_row(
            bold(one.server_id),
            cell(one.state, STATE_STYLES.get(one.state, "")),
            _rate(one.calls_per_s),
            Text(_rate(one.errors_per_s), style=BAD if one.errors_per_s else ""),
            _ms(one.p95_ms),
            _whole(one.in_flight),
            Text(_whole(one.queued), style=WARN if one.queued else ""),
        )
    rest = len(frame.servers) - len(shown)
    if not rest:
        return table if frame.servers else Text("no server is registered", style=DIM)
    return Group(table, Text(f"and {count_of(rest, 'server')} more", style=DIM))


def _render_most(what: str, counts: Mapping[str, float]) -> list[Text]:
    """The most frequent on one line; nothing without any."""
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MOST_REASONS]
    text = ", ".join(f"{reason} {number:,.0f}" for reason, number in most)
    line = Text.assemble((f"{what}  ", DIM), cell(text), overflow="ellipsis", no_wrap=True)
    return [line] if most else []


def _nodes(frame: TopFrame) -> list[Text]:
    lines = [
        Text.assemble(
            ("node  ", DIM), bold(_short(node["node_id"])), "  ", render_node_state(node),
            f"  revision {node['revision']:,}  ", (f"{node['age_s']:.0f} s ago", DIM),
        )
        for node in frame.nodes[:MOST_NODES]
    ]  # fmt: skip
    rest = len(frame.nodes) - len(lines)
    return [*lines, Text(f"and {count_of(rest, 'node')} more", style=DIM)] if rest else lines


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


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
