"""The archives of packages, the modules of workloads and the catalog, as `up` and `control` keep them.

Whom this process tells of calls that wait for a person.

What whoever keeps the registry sees to now and then, whether anybody asks or not.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolgate.app.components import build_egress, read_key_file, run_in_background, wall_clock_ms
from toolgate.audit.log.writer import AuditLog
from toolgate.catalog.rows import SOURCES, CatalogQuality
from toolgate.errors import StartRefused, ToolgateError
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.search.index import HybridIndex
from toolgate.govern.approvals import ApprovalWebhook, BodySigner, build_approval_event
from toolgate.govern.catalog_projection import CatalogProjection
from toolgate.model.packages import PackageRef
from toolgate.packages.artifacts import ArtifactStore
from toolgate.packages.modules import ModuleStore
from toolgate.packages.objects import open_object_store
from toolgate.packages.uploads import UploadStore
from toolgate.registry.store.contract import Store
from toolgate.settings import Settings
from toolgate.telemetry import Metrics
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, parse_secure_target

if TYPE_CHECKING:
    from toolgate.gateway.search.semantic import SemanticSearch

SWEEP_EVERY_S: Final = 600

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStores:
    """What is published, and what is on its way in."""

    artifacts: ArtifactStore
    modules: ModuleStore
    uploads: UploadStore

    def fetch(self, package_id: str, ref: PackageRef) -> AsyncGenerator[bytes, None]:
        """How this process gets the files of a package it starts."""
        return self.artifacts.read(package_id, ref.version)


@asynccontextmanager
async def open_archives(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[ArchiveStores]:
    """Where the settings say. What was begun and left is cleared away, now and then. Raises StartRefused."""
    objects = open_object_store(settings.artifacts or str(settings.data_dir / "artifacts"), environ)
    archives = ArchiveStores(
        artifacts=ArtifactStore(objects, clock_ms=wall_clock_ms),
        modules=ModuleStore(objects),
        uploads=UploadStore(objects, settings.data_dir / "uploads", clock_ms=wall_clock_ms),
    )
    async with run_in_background(_keep_sweeping(archives.uploads)):
        yield archives


async def _keep_sweeping(uploads: UploadStore) -> None:
    while True:
        try:
            await uploads.sweep()
        except (ToolgateError, OSError) as exc:
            _log.warning("uploads that were left were not removed: %s", exc)
        await asyncio.sleep(SWEEP_EVERY_S)


def build_catalog_keeper(
    settings: Settings,
    store: Store,
    gateway: Gateway,
    archives: ArchiveStores,
    meaning: "SemanticSearch | None",
) -> CatalogProjection:
    """What keeps the catalog, once the registry is applied; its quality is measured."""
    quality = CatalogQuality(settings.summary_fallback)
    gateway.metrics.gauge(
        "toolgate_catalog_rows",
        "Rows of the catalog by source: `manifest` and `discovered` have full definitions.",
        lambda: {source: float(getattr(quality.total, source)) for source in SOURCES},
        labels=("source",),
    )
    gateway.metrics.gauge(
        "toolgate_catalog_fallback_ended",
        "1 while rows from summaries are hidden, because `summary_fallback` is reached.",
        lambda: float(quality.has_ended),
    )
    return CatalogProjection(
        store,
        gateway,
        searching=HybridIndex(meaning),
        clock_ms=wall_clock_ms,
        artifacts=archives.artifacts,
        quality=quality,
    )


@asynccontextmanager
async def open_webhook(
    settings: Settings, store: Store, gateway: Gateway
) -> AsyncIterator[ApprovalWebhook | None]:
    """The receiver is told while the block runs; None where there is none. Raises StartRefused."""
    config = settings.approval_webhook
    if config is None:
        yield None
        return
    egress = build_egress(settings)
    try:
        egress.check_literal(parse_secure_target(config.url))
    except EgressRefused as exc:
        raise StartRefused(f"setting `approval_webhook.url`: {exc}") from exc
    if settings.is_everywhere and not settings.public_url:
        _log.warning(
            "`approval_webhook` is told no URL to decide at: set `public_url`, where this gateway is reached"
        )
    secret = read_key_file(config.secret_file, "approval_webhook.secret_file")
    assert secret is not None  # the setting names a file
    webhook = ApprovalWebhook(
        config.url,
        BodySigner(secret, wall_clock_ms),
        approvals=store.approvals,
        audit=gateway.audit,
        fetcher=Fetcher(egress),
        own_url=lambda: gateway.console_url,
    )
    async with run_in_background(webhook.run()):
        yield webhook


FORGET_EVERY_S: Final = 3600
FORGET_AFTER_MS: Final = 24 * 3600 * 1000
"""A node that has been silent for so long is taken for gone."""
LEASES_EVERY_S: Final = 5
"""How late an invocation is known to be lost where no node asks for work."""
APPROVALS_EVERY_S: Final = 5
"""How late the audit tells that nobody has decided in time. Nothing passes meanwhile."""

_upkeep_log = logging.getLogger(__name__)


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
        await store.reports.forget(before_ms=wall_clock_ms() - FORGET_AFTER_MS)

    async def forget_invocations() -> None:
        await store.invocations.forget(now_ms=wall_clock_ms())

    async def end_leases() -> None:
        nonlocal waiting
        await store.invocations.claim("", limit=0)
        waiting = await store.invocations.waiting()

    async def end_approvals() -> None:
        nonlocal pending
        for one in await store.approvals.expire():
            audit.record(build_approval_event(one, "expired", at_ms=wall_clock_ms()))
        pending = await store.approvals.pending()

    async with run_in_background(
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
                _upkeep_log.warning("the upkeep of the registry failed, and is tried again: %s", exc)
            is_failing = True
        await asyncio.sleep(every_s)
