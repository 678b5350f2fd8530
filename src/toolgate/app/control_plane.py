"""The archives of packages, the modules of workloads and the catalog, as `up` and `control` keep them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolgate.app.background import in_background
from toolgate.app.components import wall_ms
from toolgate.catalog.quality import SOURCES, CatalogQuality
from toolgate.errors import ToolgateError
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.search.index import Searching
from toolgate.govern.catalog_projection import CatalogKeeper
from toolgate.model.packages import PackageRef
from toolgate.packages.artifacts import Artifacts
from toolgate.packages.modules import Modules
from toolgate.packages.objects import objects_at
from toolgate.packages.uploads import Uploads
from toolgate.registry.store.contract import Store
from toolgate.settings import Settings

if TYPE_CHECKING:
    from toolgate.gateway.search.semantic import Meaning

SWEEP_EVERY_S: Final = 600

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archives:
    """What is published, and what is on its way in."""

    artifacts: Artifacts
    modules: Modules
    uploads: Uploads

    def fetch(self, package_id: str, ref: PackageRef) -> AsyncGenerator[bytes, None]:
        """How this process gets the files of a package it starts."""
        return self.artifacts.read(package_id, ref.version)


@asynccontextmanager
async def open_archives(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Archives]:
    """Where the settings say. What was begun and left is cleared away, now and then. Raises StartRefused."""
    objects = objects_at(settings.artifacts or str(settings.data_dir / "artifacts"), environ)
    archives = Archives(
        artifacts=Artifacts(objects, clock_ms=wall_ms),
        modules=Modules(objects),
        uploads=Uploads(objects, settings.data_dir / "uploads", clock_ms=wall_ms),
    )
    async with in_background(_keep_sweeping(archives.uploads)):
        yield archives


async def _keep_sweeping(uploads: Uploads) -> None:
    while True:
        try:
            await uploads.sweep()
        except (ToolgateError, OSError) as exc:
            _log.warning("uploads that were left were not removed: %s", exc)
        await asyncio.sleep(SWEEP_EVERY_S)


def keeper_of(
    settings: Settings, store: Store, gateway: Gateway, archives: Archives, meaning: "Meaning | None"
) -> CatalogKeeper:
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
    return CatalogKeeper(
        store,
        gateway,
        searching=Searching(meaning),
        clock_ms=wall_ms,
        artifacts=archives.artifacts,
        quality=quality,
    )
