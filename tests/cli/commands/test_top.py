"""`toolgate top`: numbers from two readings, frames that fit, and the command against a gateway."""

import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.processes import PROGRAM
from tests.cli.screen import shown
from tests.eventually import eventually
from toolgate.cli.commands.top import (
    MetricsSnapshot,
    interpolate,
    make_frame,
    parse_reading,
    render_frame,
    totals_between,
    totals_from_audit,
)
from toolgate.telemetry import Metrics

NODE = {"node_id": "one", "revision": 1204, "age_s": 3.2, "is_lost": False, "is_degraded": True}


def make_metrics(calls: int, *, server_id: str = "git", state: str = "connected") -> Metrics:
    """A gateway after so many calls: every tenth fails, each takes 3 ms."""
    metrics = Metrics()
    for number in range(calls):
        metrics.tool(server_id, "log").add(3, 10, "mcp_timeout" if number % 10 == 9 else "")
    metrics.tool("", "").refuse("unknown_tool")
    metrics.denials[server_id, "deny_all"] += calls
    metrics.gauge("toolgate_calls_in_flight", "", lambda: {server_id: 2.0}, labels=("server_id",))
    metrics.gauge("toolgate_calls_queued", "", lambda: {server_id: 1.0}, labels=("server_id",))
    states = {(server_id, state): 1.0}
    metrics.gauge("toolgate_server_state", "", lambda: states, labels=("server_id", "state"))
    metrics.gauge("toolgate_children", "", lambda: 3.0)
    metrics.gauge("toolgate_node_calls_queued", "", lambda: 4.0)
    metrics.gauge("toolgate_loop_lag_ms", "", lambda: 120.0)
    return metrics


def read(*metrics: Metrics, at_s: float = 0.0) -> MetricsSnapshot:
    return parse_reading([one.render().decode() for one in metrics], at_s)


def test_a_frame_has_the_rates_of_its_interval_and_fits_80_columns() -> None:
    before, after = read(make_metrics(20), at_s=10.0), read(make_metrics(60), at_s=12.0)
    frame = make_frame(
        after,
        totals_between(after.since(before)),
        url="http://127.0.0.1:8080",
        clock="12:00:00",
        nodes=[NODE],
    )

    assert shown(render_frame(frame, 24)) == [
        "toolgate top  http://127.0.0.1:8080  12:00:00",
        "calls 20.0/s   errors 2.0/s   p50 3.5 ms   p95 4.8 ms   p99 5.0 ms",
        "active 2   queued 1   node queue 4   children 3   sessions -   streams -",
        "approvals pending -   guests -   runs queued -   loop lag 120 ms",
        "",
        "SERVER  STATE      CALLS/S  ERR/S     P95  ACTIVE  QUEUED",
        "git     connected     20.0    2.0  4.8 ms       2       1",
        "",
        "errors  mcp_timeout 4",
        "denied  deny_all 40",
        "node  one  degraded  revision 1,204  3 s ago",
    ]


def test_servers_past_the_height_are_counted_and_long_names_give_way() -> None:
    metrics = Metrics()
    states = {(f"server-{number:02}-{'x' * 50}", "connected"): 1.0 for number in range(40)}
    states["broken", "down"] = 1.0
    metrics.gauge("toolgate_server_state", "", lambda: states, labels=("server_id", "state"))
    metrics.gauge(
        "toolgate_calls_in_flight", "", lambda: {one: 0.0 for one, _ in states}, labels=("server_id",)
    )
    before, after = read(metrics), read(metrics, at_s=2.0)
    frame = make_frame(after, totals_between(after.since(before)), url="http://gate", clock="")
    lines = shown(render_frame(frame, 24))

    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[6].split()[:2] == ["broken", "down"]
    assert lines[-1] == "and 25 servers more"


def test_processes_add_up_and_a_server_is_shown_at_its_worst() -> None:
    nodes = make_metrics(10), make_metrics(10, state="down")
    before, after = read(*nodes), read(make_metrics(30), make_metrics(10, state="down"), at_s=1.0)
    frame = make_frame(after, totals_between(after.since(before)), url="", clock="")

    [line] = frame["servers"]
    assert (line["state"], line["calls_per_s"], line["in_flight"]) == ("down", 20.0, 4.0)
    assert frame["gauges"]["toolgate_children"] == 6.0
    assert frame["gauges"]["toolgate_loop_lag_ms"] == 120.0


def test_a_restarted_process_counts_from_zero() -> None:
    before, after = read(make_metrics(50)), read(make_metrics(5), at_s=1.0)

    assert totals_between(after.since(before)).calls["git"] == 5


def test_a_control_shows_what_its_nodes_reported() -> None:
    activity = {
        "since_ms": 0,
        "until_ms": 60_000,
        "buckets": [{"denials": 6}],
        "servers": [{"server_id": "git", "calls": 600, "errors": 60, "p95_ms": 7.5}],
        "denials": [{"code": "unknown_tool", "count": 4}, {"code": "unknown_tool", "count": 2}],
    }
    metrics = Metrics()
    metrics.gauge("toolgate_server_state", "", lambda: {("git", "idle"): 1.0}, labels=("server_id", "state"))
    reading = read(metrics)
    frame = make_frame(reading, totals_from_audit(activity), url="", clock="")

    [line] = frame["servers"]
    assert shown(render_frame(frame))[6] == "git     idle      10.0    1.0  7.5 ms       -       -"
    assert reading.total("toolgate_calls_in_flight") is None
    assert (line["calls_per_s"], line["errors_per_s"]) == (10.0, 1.0)
    assert (line["p95_ms"], line["in_flight"]) == (7.5, None)
    assert (frame["calls_per_s"], frame["codes"]) == (10.1, {"unknown_tool": 6})


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        pytest.param([], 0.95, None, id="nothing known"),
        pytest.param([(1.0, 0.0), (float("inf"), 0.0)], 0.95, None, id="no calls"),
        pytest.param([(1.0, 0.0), (2.0, 10.0), (float("inf"), 10.0)], 0.5, 1.5, id="evenly within a bucket"),
        pytest.param([(1.0, 5.0), (2.0, 10.0), (float("inf"), 10.0)], 0.5, 1.0, id="at a bound"),
        pytest.param([(1.0, 0.0), (float("inf"), 10.0)], 0.95, 1.0, id="past the last bound"),
    ],
)
def test_percentiles_are_those_of_prometheus(
    buckets: list[tuple[float, float]], share: float, expected: float | None
) -> None:
    assert interpolate(buckets, share) == expected


def test_once_prints_a_frame_and_ends(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /metrics", make_metrics(3).render())
    ran = run("top", "--once", "--interval", "0.2s")

    assert (ran.code, ran.lines[6].split()[:2]) == (0, ["git", "connected"])
    assert [one.path for one in gateway.asked] == ["/metrics", "/metrics", "/admin/api/nodes"]


def test_nodes_are_read_where_they_are_named_and_nowhere_else(gateway: FakeGateway, run: Run) -> None:
    """A node says itself where it is: a key does not go there on its word."""
    gateway.respond("GET /metrics", make_metrics(3).render())
    gateway.respond("GET /admin/api/nodes", {"nodes": [{**NODE, "url": "http://elsewhere.example"}]})
    ran = run("top", "--json", "--interval", "0.2s", "--node", gateway.url, "--node", gateway.url)

    assert ran.json["gauges"]["toolgate_children"] == 9
    assert ran.json["nodes"][0]["node_id"] == "one"


def test_a_key_that_may_not_see_metrics_is_an_error(gateway: FakeGateway, run: Run) -> None:
    gateway.refuse("GET /metrics", "forbidden", "this needs the role `viewer`", status=403)
    ran = run("top", "--once")

    assert ran.code != 0
    assert "viewer" in ran.err


def test_ctrl_c_ends_it_without_a_word(gateway: FakeGateway) -> None:
    gateway.respond("GET /metrics", make_metrics(3).render())
    command = [sys.executable, "-c", PROGRAM, "top", "--interval", "0.2s", "--url", gateway.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        eventually(lambda: len(gateway.asked) > 3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, b"")
