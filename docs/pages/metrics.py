"""The metrics, read off a gateway and a node as Prometheus would."""

import asyncio
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from pages.markdown import code, page, table
from toolgate.app.node import open_node
from toolgate.app.up import open_up
from toolgate.settings import Settings
from toolgate.telemetry import Metrics

_INTRO: Final = """
Prometheus text at `GET /metrics`, for the role `viewer` and above. Labels hold registered names only: what
callers make up is counted under empty labels. Those named `toolgate_sync_…`
are a node's. A histogram has the usual `_bucket`, `_sum` and `_count`.
"""


def metrics_page() -> str:
    """metrics.md"""
    # The node looks for a control that is not there, and would say so.
    logging.getLogger("toolgate").addHandler(logging.NullHandler())
    rows = [
        (code(_name(one)), one.type, ", ".join(map(code, _labels(one))) or "none", one.documentation)
        for one in sorted(asyncio.run(_read()), key=_name)
    ]
    return page("Metrics", _INTRO, table(("metric", "kind", "labels", "what"), rows))


async def _read() -> Iterable[Metric]:
    """All metrics of processes without servers, each once and with a sample."""
    found: dict[str, Metric] = {}
    with tempfile.TemporaryDirectory() as data:
        settings = Settings(data_dir=Path(data), control=("127.0.0.1:1",))
        for open_app in (open_up, open_node):
            async with open_app(settings, {}) as app:
                metrics = app.gateway.metrics
                _fill_in(metrics)
                found |= {one.name: one for one in text_string_to_metric_families(metrics.render().decode())}
    return found.values()


def _fill_in(metrics: Metrics) -> None:
    """A metric shows its labels only once it has counted something."""
    metrics.tool("a", "b").add(1.0, 1, "internal")
    for counts in (
        metrics.injections,
        metrics.denials,
        metrics.connects,
        metrics.chats,
        metrics.invocations,
    ):
        counts["a", "b"] += 1
    metrics.list_latency("a").add(1.0)
    metrics.model_latency("a").add(1.0)
    metrics.effective_servers["a"] = 1


def _name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else str(metric.name)


def _labels(metric: Metric) -> list[str]:
    return [label for label in metric.samples[0].labels if label != "le"]
