"""The contract of what is used over time: counted beside the records, without revisions.

Any number of nodes draw on the same budgets, through any number of replicas of control on one database, and
are never granted more than the limit together. One suite in `tests/contract/` runs against each
implementation.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from toolgate.model.quotas import HolderUsage, LeaseGrant, LeaseRequest

KEEP_MS: Final = 2 * 24 * 3600 * 1000
"""How long the count of a window is kept that nobody draws on any more."""


class QuotaSource(Protocol):
    """Budgets as a node sees them."""

    async def draw(self, draws: Sequence[LeaseRequest]) -> Sequence[LeaseGrant]:
        """What each draw is given, in their order. What is granted is counted before anybody hears of it."""


class QuotaLedger(QuotaSource, Protocol):
    """All that is counted."""

    async def usage(self) -> Sequence[HolderUsage]:
        """What is used in windows that are not over, sorted by holder and budget."""

    async def forget(self) -> None:
        """Drop what was counted long ago."""
