"""The metrics, read off a gateway as Prometheus would."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from pages.markdown import code, page, table
from toolgate.app.up import open_up
from toolgate.settings import Settings
from toolgate.telemetry import Metrics

_INTRO: Final = """
Prometheus text at `GET /metrics`, for the role `viewer` and above. Labels hold registered names only: what
callers make up is counted under empty labels. A histogram has the usual `_bucket`, `_sum` and `_count`.
"""


def metrics_page() -> str:
    """metrics.md"""
    rows = [
        (code(_name(one)), one.type, ", ".join(map(code, _labels(one))) or "none", one.documentation)
        for one in sorted(asyncio.run(_read()), key=_name)
    ]
    return page("Metrics", _INTRO, table(("metric", "kind", "labels", "what"), rows))


async def _read() -> list[Metric]:
    """All metrics of a gateway without servers, each with a sample."""
    with tempfile.TemporaryDirectory() as data:
        async with open_up(Settings(data_dir=Path(data)), {}) as app:
            metrics = app.gateway.metrics
            _fill_in(metrics)
            return list(text_string_to_metric_families(metrics.render().decode()))


def _fill_in(metrics: Metrics) -> None:
    """A metric shows its labels only once it has counted something."""
    metrics.tool("a", "b").add(1.0, 1, "internal")
    for counts in (metrics.injections, metrics.denials, metrics.connects):
        counts["a", "b"] += 1
    metrics.list_latency("a").add(1.0)
    metrics.effective_servers["a"] = 1


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else str(metric.name)


def _labels(metric: Metric) -> list[str]:
    return [label for label in metric.samples[0].labels if label != "le"]
