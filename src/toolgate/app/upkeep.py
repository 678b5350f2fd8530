"""What whoever keeps the registry sees to now and then, whether anybody asks or not."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from toolgate.app.background import in_background
from toolgate.app.components import wall_ms
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import ToolgateError
from toolgate.govern.decisions import record_of
from toolgate.registry.store.contract import Store
from toolgate.telemetry import Metrics

FORGET_EVERY_S: Final = 3600
FORGET_AFTER_MS: Final = 24 * 3600 * 1000
"""A node that has been silent for so long is taken for gone."""
LEASES_EVERY_S: Final = 5
"""How late an invocation is known to be lost where no node asks for work."""
APPROVALS_EVERY_S: Final = 5
"""How late the audit tells that nobody has decided in time. Nothing passes meanwhile."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_upkeep(store: Store, metrics: Metrics, audit: AuditLog) -> AsyncIterator[None]:
    """Drop what is too old to be kept, see to invocations whose nodes are lost and to approvals whose time is
    over, and count those that wait.
    """
    waiting = pending = 0
    metrics.gauge(
        "toolgate_approvals_pending", "Calls that wait for a person to agree.", lambda: float(pending)
    )
    metrics.gauge(
        "toolgate_invocations_queued", "Runs of tasks that wait for a node.", lambda: float(waiting)
    )

    async def forget_reports() -> None:
        await store.reports.forget(before_ms=wall_ms() - FORGET_AFTER_MS)

    async def forget_invocations() -> None:
        await store.invocations.forget(now_ms=wall_ms())

    async def end_leases() -> None:
        nonlocal waiting
        await store.invocations.claim("", limit=0)
        waiting = await store.invocations.waiting()

    async def end_approvals() -> None:
        nonlocal pending
        for one in await store.approvals.expire():
            audit.record(record_of(one, "expired", at_ms=wall_ms()))
        pending = await store.approvals.pending()

    async with in_background(
        _repeat(store.approvals.forget, every_s=FORGET_EVERY_S),
        _repeat(store.spending.forget, every_s=FORGET_EVERY_S),
        _repeat(store.ended_sessions.forget, every_s=FORGET_EVERY_S),
        _repeat(end_approvals, every_s=APPROVALS_EVERY_S),
        _repeat(forget_reports, every_s=FORGET_EVERY_S),
        _repeat(forget_invocations, every_s=FORGET_EVERY_S),
        _repeat(end_leases, every_s=LEASES_EVERY_S),
    ):
        yield


async def _repeat(work: Callable[[], Awaitable[None]], *, every_s: float) -> None:
    is_failing = False
    while True:
        try:
            await work()
            is_failing = False
        except ToolgateError as exc:
            if not is_failing:
                _log.warning("the upkeep of the registry failed, and is tried again: %s", exc)
            is_failing = True
        await asyncio.sleep(every_s)
