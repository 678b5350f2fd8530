"""The contract of quotas: what keys and tasks used, counted next to the records, without revisions.

Any number of nodes lease from the same quotas, through any number of control plane replicas on one database.
Together they are never granted more than the limit: a grant is counted before a node gets it.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from toolgate.model.quotas import LeaseGrant, LeaseRequest

KEEP_MS: Final = 2 * 24 * 3600 * 1000
"""How long the count of a past window is kept. The longest window is a day, and clocks of nodes may differ by
hours."""


class QuotaSource(Protocol):
    """Quotas as a node uses them."""

    async def draw(self, requests: Sequence[LeaseRequest], /) -> Sequence[LeaseGrant]:
        """Return a grant for each request, in their order. It is counted before it is returned.

        A request also reports what the node spent of earlier grants, and returns what it will not spend.
        """
