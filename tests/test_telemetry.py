"""Metrics as Prometheus reads them, and log records that stay one line."""

import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolgate.telemetry import Distribution, Metrics, setup_logging


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels."""
    return {
        sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_a_call_shows_under_the_names_of_the_design() -> None:
    metrics = Metrics()
    stats = metrics.tool("git", "status")
    stats.add(3, 100, "")
    stats.add(4, 0, "mcp_timeout")
    metrics.injections["git", "ok"] += 2
    metrics.denials["git", "deny_all"] += 1
    metrics.connects["git", "ok"] += 1
    metrics.list_latency("git").add(7)
    metrics.effective_servers["review"] = 3
    metrics.gauge("toolgate_children", "Child processes.", lambda: 4.0)

    found = samples(metrics)

    assert found["mcp_tool_call_total,server_id=git,tool=status"] == 2
    assert found["mcp_tool_call_error_total,code=mcp_timeout,server_id=git,tool=status"] == 1
    assert found["mcp_tool_call_latency_ms_bucket,le=5,server_id=git,tool=status"] == 2
    assert found["mcp_tool_call_latency_ms_sum,server_id=git,tool=status"] == 7
    assert found["mcp_tool_call_output_bytes_count,server_id=git,tool=status"] == 1
    assert found["mcp_injection_total,server_id=git,status=ok"] == 2
    assert found["mcp_denied_reason_total,reason=deny_all,server_id=git"] == 1
    assert found["mcp_server_connect_total,server_id=git,status=ok"] == 1
    assert found["mcp_list_tools_latency_ms_count,server_id=git"] == 1
    assert found["mcp_effective_servers,task_id=review"] == 3
    assert found["toolgate_children"] == 4


def test_gauges_are_read_where_they_may_be_and_the_text_is_made_from_that() -> None:
    metrics, size = Metrics(), [1.0]
    metrics.gauge("toolgate_children", "Child processes.", lambda: size[0])
    make_text = metrics.capture()
    size[0] = 2.0

    assert b"toolgate_children 1.0" in make_text()


def test_a_distribution_counts_a_value_in_its_own_bucket() -> None:
    spread = Distribution((1, 10))
    for value in (0.5, 1, 2, 10, 11):
        spread.add(value)

    assert spread.buckets() == [("1", 2.0), ("10", 4.0), ("+Inf", 5.0)]
    assert spread.total == 24.5


def test_sec_8_a_log_record_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        setup_logging("info")
        logging.getLogger("toolgate.test").info("called %s", "a\r\nb\x1b[31m")
    finally:
        root.handlers[:] = before
        root.setLevel(level)

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(r"called a\r\nb\x1b[31m")
