"""The metrics, read from a gateway and a node as Prometheus would read them."""

import asyncio
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pages.markdown import code, page, table
from toolgate.app.node import open_node
from toolgate.app.up import open_up
from toolgate.settings import Settings
from toolgate.telemetry.exposition import MetricFamily

_INTRO: Final = """
`GET /metrics` serves the Prometheus text format. It needs the role `viewer` or above. Labels contain only
registered names: unknown names that callers send are counted under empty labels. Only nodes have the metrics
named `toolgate_sync_…`. Each histogram has the usual series `_bucket`, `_sum` and `_count`.
"""


def metrics_page() -> str:
    """metrics.md"""
    # The node finds no control plane, and would log a warning.
    logging.getLogger("toolgate").addHandler(logging.NullHandler())
    rows = [
        (code(one.name), one.kind, ", ".join(map(code, one.labels)) or "none", one.help_text)
        for one in sorted(asyncio.run(_read()), key=lambda one: one.name)
    ]
    return page("Metrics", _INTRO, table(("metric", "kind", "labels", "what"), rows))


async def _read() -> Iterable[MetricFamily]:
    """All metrics of processes without servers, each once."""
    found: dict[str, MetricFamily] = {}
    with tempfile.TemporaryDirectory() as data:
        settings = Settings(data_dir=Path(data), control=("127.0.0.1:1",))
        for open_app in (open_up, open_node):
            async with open_app(settings, {}) as app:
                found |= {one.name: one for one in app.gateway.metrics.families()}
    return found.values()
