"""Metrics as Prometheus reads them, and log records that stay one line."""

import logging
import math
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from toolgate.telemetry import Histogram, Metrics, setup_logging
from toolgate.telemetry.exposition import MetricFamily, parse_samples, render_families
from toolgate.telemetry.metrics import MAX_TOOLS_COUNTED


def samples(metrics: Metrics) -> dict[str, float]:
    """Every sample by its name and labels."""
    return {
        sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


@pytest.mark.requirement("000-44", "000-45")
def test_a_call_shows_under_the_names_of_the_design() -> None:
    metrics = Metrics()
    stats = metrics.tool("git", "status")
    stats.add(3, 100, "")
    stats.add(4, 0, "mcp_timeout")
    metrics.injections["git", "success"] += 2
    metrics.denials["git", "deny_all"] += 1
    metrics.connects["git", "success"] += 1
    metrics.list_latency_ms["git"].add(7)
    metrics.effective_servers["review"] = 3
    metrics.gauge("toolgate_children", "Child processes.", lambda: 4.0)

    found = samples(metrics)

    assert found["mcp_tool_call_total,server_id=git,tool=status"] == 2
    assert found["mcp_tool_call_error_total,code=mcp_timeout,server_id=git,tool=status"] == 1
    assert found["mcp_tool_call_latency_ms_bucket,le=5,server_id=git,tool=status"] == 2
    assert found["mcp_tool_call_latency_ms_sum,server_id=git,tool=status"] == 7
    assert found["mcp_tool_call_output_bytes_count,server_id=git,tool=status"] == 1
    assert found["mcp_injection_total,server_id=git,status=success"] == 2
    assert found["mcp_denied_reason,reason=deny_all,server_id=git"] == 1
    assert found["mcp_server_connect_total,server_id=git,status=success"] == 1
    assert found["mcp_list_tools_latency_ms_count,server_id=git"] == 1
    assert found["mcp_effective_servers,task_id=review"] == 3
    assert found["toolgate_children"] == 4


@pytest.mark.parametrize("text", ['say "hi"', "back\\slash", "two\nlines", "größe 道", "", 'all\\"\n'])
def test_whatever_a_label_or_a_help_text_says_prometheus_reads_it_as_it_is(text: str) -> None:
    number = math.pi * 10**9
    family = MetricFamily(
        "size_total", "counter", text, ("tool", "code"), {(text, "x"): number, ("y", text): math.inf}
    )

    written = render_families([family]).decode()

    assert list(parse_samples(written)) == [
        ("size_total", {"tool": text, "code": "x"}, number),
        ("size_total", {"tool": "y", "code": text}, math.inf),
    ]
    (read,) = text_string_to_metric_families(written)
    assert (read.type, read.documentation) == ("counter", text)
    assert [(one.name, one.labels, one.value) for one in read.samples] == list(parse_samples(written))


@pytest.mark.parametrize(
    "line", ["name", "1name 2", 'name{a="b} 1', "name{a=b} 1", "name one", "name{} 1 2 3"]
)
def test_a_line_that_is_not_a_sample_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"invalid sample|could not convert"):
        list(parse_samples(f"# TYPE name gauge\nname 1\n{line}\n"))


def test_gauges_are_read_where_they_may_be_and_the_text_is_made_from_that() -> None:
    metrics, size = Metrics(), [1.0]
    metrics.gauge("toolgate_children", "Child processes.", lambda: size[0])
    make_text = metrics.capture()
    size[0] = 2.0

    assert b"toolgate_children 1.0" in make_text()


def test_a_distribution_counts_a_value_in_its_own_bucket() -> None:
    spread = Histogram((1, 10))
    for value in (0.5, 1, 2, 10, 11):
        spread.add(value)

    assert spread.cumulate() == ([("1", 2.0), ("10", 4.0), ("+Inf", 5.0)], 24.5)


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


def test_what_is_registered_no_more_is_forgotten() -> None:
    """SEC-7"""
    metrics = Metrics()
    for server_id in ("", "git", "gone"):
        metrics.tool(server_id, "status").add(1, 1, "")
        for counts in (metrics.injections, metrics.denials, metrics.connects, metrics.shadow_denials):
            counts[server_id, "x"] += 1
        metrics.list_latency_ms[server_id].add(1)
    for task_id in ("", "review", "gone"):
        metrics.effective_servers[task_id] = 1
    for upstream_id in ("gpt", "gone"):
        metrics.chats[upstream_id, "answered"] += 1
        metrics.model_latency_ms[upstream_id].add(1)

    metrics.keep({"git"}, {"review"}, {"gpt"}, rollouts=())

    text = metrics.render().decode()
    assert "gone" not in text
    assert text.count('server_id="git"') == text.count('server_id=""')
    assert {'task_id=""', 'task_id="review"', 'upstream="gpt"'} <= set(re.findall(r'\w+="\w*"', text))


def test_a_server_whose_tools_never_stay_the_same_has_no_more_series_than_it_may_have_tools() -> None:
    """SEC-7"""
    metrics = Metrics()
    for number in range(MAX_TOOLS_COUNTED + 50):
        metrics.tool("odd", f"tool-{number}").add(1, 1, "")
    metrics.tool("odd", "tool-0").add(1, 1, "")

    assert len(metrics.calls) == MAX_TOOLS_COUNTED + 1
    assert metrics.calls["odd", ""].calls == 50
    assert metrics.calls["odd", "tool-0"].calls == 2


def test_a_call_that_is_turned_away_counts_and_takes_no_time() -> None:
    metrics = Metrics()
    metrics.tool("git", "push").refuse("mcp_approval_denied")

    found = samples(metrics)

    assert found["mcp_tool_call_total,server_id=git,tool=push"] == 1
    assert found["mcp_tool_call_error_total,code=mcp_approval_denied,server_id=git,tool=push"] == 1
    assert found["mcp_tool_call_latency_ms_count,server_id=git,tool=push"] == 0


def test_a_gauge_may_have_a_value_for_each_of_a_label_and_be_a_counter() -> None:
    metrics = Metrics()
    metrics.gauge("toolgate_tokens_total", "Tokens.", lambda: {"review": 3.0}, labels=("task_id",))

    assert "# TYPE toolgate_tokens_total counter" in metrics.render().decode()
    assert samples(metrics)["toolgate_tokens_total,task_id=review"] == 3
