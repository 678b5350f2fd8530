"""What lists and results cost models, told to the audit now and then, and shown in the metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from toolgate.app.background import in_background
from toolgate.app.components import wall_ms
from toolgate.gateway.gateway import Gateway

TELL_EVERY_S: Final = 60.0
"""As much as a crash may lose of it. What calls cost is on record with each of them, too."""
_SHOWN: Final = {
    "toolgate_definition_tokens_total": ("definitions", "Tokens of the definitions in lists, by estimate."),
    "toolgate_definition_tokens_saved_total": (
        "saved",
        "Tokens that lists cost less than all registered tools would have.",
    ),
    "toolgate_result_tokens_total": ("results", "Tokens of the results of calls, by estimate."),
}
"""Metric to what it shows of a task."""


@asynccontextmanager
async def open_token_telling(gateway: Gateway) -> AsyncIterator[None]:
    """Tell what is counted while the block runs, and the rest when it ends."""
    counts = gateway.tokens

    def tell() -> None:
        counts.tell(at_ms=wall_ms(), registered=gateway.snapshot.tasks)

    async def tell_on() -> None:
        while True:
            await asyncio.sleep(TELL_EVERY_S)
            tell()

    for metric, (number, help_text) in _SHOWN.items():
        gateway.metrics.gauge(metric, help_text, counts.by_task(number), labels=("task_id",))
    try:
        async with in_background(tell_on()):
            yield
    finally:
        tell()
