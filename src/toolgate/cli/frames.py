"""Frames of `toolgate top` from what gateways say: pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate.cli.readings import (
    CALLS,
    DENIALS,
    ERRORS,
    MetricsInterval,
    MetricsReading,
    interpolate,
    merge_buckets,
)
from toolgate.cli.render.top import TopFrame, TopServer

IN_FLIGHT: Final = "toolgate_calls_in_flight"
QUEUED: Final = "toolgate_calls_queued"
SHOWN_GAUGES: Final = (
    IN_FLIGHT,
    QUEUED,
    "toolgate_node_calls_queued",
    "toolgate_children",
    "toolgate_sessions",
    "toolgate_streams",
    "toolgate_approvals_pending",
    "toolgate_guests",
    "toolgate_invocations_queued",
    "toolgate_loop_lag_ms",
)
SHARES: Final = (0.5, 0.95, 0.99)
_WORST_FIRST: Final = ("down", "degraded", "starting", "connected", "idle", "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTotals:
    """The calls of a span of time."""

    seconds: float
    calls: Mapping[str, float]
    errors: Mapping[str, float]
    """Both by server; calls of what is unknown under no name."""
    p95_ms: Mapping[str, float | None]
    percentiles_ms: Sequence[float | None]
    codes: Mapping[str, float]
    """Calls that failed, by code."""
    denials: Mapping[str, float]
    """What was left out of scopes, by reason."""


def makes_calls(reading: MetricsReading) -> bool:
    """Whether any of the processes makes calls, or all are controls."""
    return reading.total(IN_FLIGHT) is not None


def totals_between(interval: MetricsInterval) -> CallTotals:
    """By the metrics of processes that make calls."""
    latencies = interval.latencies()
    every = merge_buckets(latencies.values())
    return CallTotals(
        seconds=interval.seconds,
        calls=interval.grown(CALLS, "server_id"),
        errors=interval.grown(ERRORS, "server_id"),
        p95_ms={server_id: interpolate(buckets, 0.95) for server_id, buckets in latencies.items()},
        percentiles_ms=[interpolate(every, share) for share in SHARES],
        codes=_drop_zeros(interval.grown(ERRORS, "code")),
        denials=_drop_zeros(interval.grown(DENIALS, "reason")),
    )


def totals_from_audit(activity: Mapping[str, Any]) -> CallTotals:
    """By what a control was told by its nodes: `GET /admin/api/activity`."""
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
    reading: MetricsReading,
    happened: CallTotals,
    *,
    url: str,
    clock: str,
    nodes: Sequence[Mapping[str, Any]] = (),
) -> TopFrame:
    """The newest numbers, the busiest servers first."""
    seconds = happened.seconds
    in_flight, queued = reading.by(IN_FLIGHT, "server_id"), reading.by(QUEUED, "server_id")
    lines = [
        TopServer(
            server_id=server_id,
            state=state,
            calls_per_s=happened.calls.get(server_id, 0.0) / seconds,
            errors_per_s=happened.errors.get(server_id, 0.0) / seconds,
            p95_ms=happened.p95_ms.get(server_id),
            in_flight=in_flight.get(server_id),
            queued=queued.get(server_id),
        )
        for server_id, state in _states(reading).items()
    ]
    return TopFrame(
        url=url,
        clock=clock,
        servers=sorted(lines, key=_rank),
        calls_per_s=sum(happened.calls.values()) / seconds,
        errors_per_s=sum(happened.errors.values()) / seconds,
        percentiles_ms=happened.percentiles_ms,
        gauges={name: reading.total(name) for name in SHOWN_GAUGES},
        codes=happened.codes,
        denials=happened.denials,
        nodes=nodes,
    )


def _states(reading: MetricsReading) -> Mapping[str, str]:
    """Each server's; on several nodes, the worst."""
    found: dict[str, set[str]] = defaultdict(set)
    for labels, value in reading.samples.get("toolgate_server_state", {}).items():
        one = dict(labels)
        if value:
            found[one["server_id"]].add(one["state"])
    return {server_id: min(states, key=_badness) for server_id, states in found.items()}


def _badness(state: str) -> int:
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else len(_WORST_FIRST)


def _rank(line: TopServer) -> tuple[float, int, str]:
    return -line.calls_per_s, _badness(line.state), line.server_id


def _drop_zeros(counts: Mapping[str, float]) -> Mapping[str, float]:
    return {name: number for name, number in counts.items() if number}
