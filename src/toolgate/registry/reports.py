"""The contract for what nodes report: kept beside the records, without revisions, the newest word wins.

Every replica of control on one database sees the same reports. One suite in `tests/contract/` runs against
each implementation.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from toolgate.model.reports import Definitions, NodeReport


class Reports(Protocol):
    """The newest report of each node, and the newest definitions of each server."""

    async def save_report(self, report: NodeReport) -> None:
        """Replace what `report.node_id` said before."""

    async def save_definitions(self, *definitions: Definitions) -> None:
        """Replace what was known of these servers, as one transaction."""

    async def list_reports(self) -> Sequence[NodeReport]:
        """The newest report of each node, sorted by node id."""

    async def list_definitions(self, server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
        """The newest definitions of each of these servers, sorted by server id. None: of all."""

    async def definition_times(self) -> Mapping[str, int]:
        """Server id to the `at_ms` of its newest definitions: cheap, however large they are."""

    async def forget(self, *, before_ms: int) -> None:
        """Drop the reports received before `before_ms`, and definitions of servers without a record."""

    async def changed(self, seen: int) -> int:
        """Wait until something was saved, here or by another replica, since the count `seen`; the new count.

        Counts start at 0 and rise; one change may be told of twice, none is missed.
        """
