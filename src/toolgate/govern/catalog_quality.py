"""The quality of the catalog as a caller sees it, and the packages that depend on the summary fallback."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolgate.catalog.quality import Quality, add_up, assess
from toolgate.gateway.roles import reaches
from toolgate.govern.catalog import keeper_of, visible
from toolgate.govern.catalog_projection import CatalogKeeper
from toolgate.govern.control import Control
from toolgate.model.packages import CatalogRow
from toolgate.model.principals import Principal
from toolgate.policy.lint import Finding


class PackageQuality(NamedTuple):
    """What is known of one package, or of a server without one."""

    package_id: str
    name: str
    """For people."""
    quality: Quality


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityView:
    """The quality of the whole catalog, or of what an agent sees of it."""

    packages: Sequence[PackageQuality]
    """Sorted by id."""
    ends_at: float | None = None
    """The percentage of full rows from which the fallback is off. None: it stays. For an agent, None."""
    has_ended: bool = False

    @property
    def total(self) -> Quality:
        return add_up(one.quality for one in self.packages)

    @property
    def dependent(self) -> Sequence[PackageQuality]:
        """Packages that lose rows when the fallback ends, or have lost them."""
        return [one for one in self.packages if one.quality.fallback]


async def view_quality(control: Control, principal: Principal) -> QualityView:
    """All rows for roles that read the registry. For an agent the rows it sees: hidden ones do not exist."""
    keeper = keeper_of(control)
    if not reaches(principal.role, "viewer"):
        shown = (await visible(control, principal)).packages
        return QualityView(packages=[_named(one, rows, assess(rows)) for one, rows in shown.items()])
    return QualityView(
        packages=_every_package(keeper),
        ends_at=keeper.quality.ends_at,
        has_ended=keeper.quality.has_ended,
    )


def find_fallback_rows(keeper: CatalogKeeper) -> list[Finding]:
    """One finding for each package that loses rows when the fallback ends. None where it never does."""
    measured = keeper.quality
    if measured.ends_at is None:
        return []
    share = f"{measured.total.full_percent:g} % of the catalog is complete"
    what = "are hidden" if measured.has_ended else f"will be hidden at {measured.ends_at:g} %"
    return [
        Finding(
            code="summary_only",
            kind="server",
            id=one.package_id,
            rule="summary_fallback",
            subject=f"{one.quality.fallback} of {one.quality.rows} rows",
            message=f"no full definition is known for them, and they {what} ({share}): "
            "publish a manifest with `tools`, or let the server list its tools",
        )
        for one in _every_package(keeper)
        if one.quality.fallback
    ]


def _every_package(keeper: CatalogKeeper) -> list[PackageQuality]:
    found = sorted(keeper.quality.packages.items())
    return [_named(package_id, keeper.rows[package_id], quality) for package_id, quality in found]


def _named(package_id: str, rows: Sequence[CatalogRow], quality: Quality) -> PackageQuality:
    return PackageQuality(package_id, rows[0].package_name if rows else package_id, quality)
