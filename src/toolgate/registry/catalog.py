"""The contract for the catalog's rows: kept beside the records, without revisions, and made anew from them.

Every replica of control on one database sees the same rows. One suite in `tests/contract/` runs against each
implementation.
"""

from collections.abc import Sequence
from typing import Protocol

from toolgate.model.packages import CatalogRow


class Catalog(Protocol):
    """The rows of each package, replaced as a whole."""

    async def replace(self, package_id: str, rows: Sequence[CatalogRow], *, made_from: str) -> bool:
        """Make `rows` all there is of a package; whether that changed anything.

        `made_from` says what they were made of, so that whoever fills the catalog knows what is done
        already. Rows that stay the same keep their `updated_at_ms`.
        """

    async def remove(self, package_id: str) -> bool:
        """Forget a package; whether there was something to forget."""

    async def rows(self, package_id: str | None = None) -> Sequence[CatalogRow]:
        """All rows (of a package), sorted by package and tool."""

    async def made_from(self) -> dict[str, str]:
        """Package id to what its rows were made of."""

    async def changed(self, seen: int) -> int:
        """Wait until rows changed, here or by another replica, since the count `seen`; the new count.

        Counts start at 0 and rise; one change may be told of twice, none is missed.
        """
