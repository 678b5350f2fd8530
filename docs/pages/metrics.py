"""The metrics, read off a gateway and a node as Prometheus would."""

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
Prometheus text at `GET /metrics`, for the role `viewer` and above. Labels hold registered names only: what
callers make up is counted under empty labels. Those named `toolgate_sync_…`
are a node's. A histogram has the usual `_bucket`, `_sum` and `_count`.
"""


def metrics_page() -> str:
    """metrics.md"""
    # The node looks for a control that is not there, and would say so.
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
