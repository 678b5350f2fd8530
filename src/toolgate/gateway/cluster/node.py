"""Sends a node's reports to the control plane.

A report has the node's whole state, and the newest one counts. So a report that fails is dropped: the next
one has everything.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter, is_
from typing import Final

from toolgate.catalog.listings import digest_lists
from toolgate.errors import ToolgateError
from toolgate.gateway.cluster import DriftedTool, Servers
from toolgate.model.reports import Definitions, NodeReport, ServerReport
from toolgate.model.tools import ServerTools
from toolgate.policy.rules import is_unlisted
from toolgate.redaction.shapes import redact_text
from toolgate.registry.replication.sync import ControlConnection, SyncStatus

REPORT_INTERVAL_S: Final = 10.0  # a third of `LOST_AFTER_MS`: one lost report does not lose the node
DEBOUNCE_S: Final = 1.0  # changes within this time go into one report
DEFINITIONS_INTERVAL_S: Final = 0.1
"""The pause between reports while the control plane waits for definitions, which may fill many reports."""
MAX_DEFINITION_BYTES: Final = 8 * 1024 * 1024
"""Size of definitions in one report, by the limit of a gRPC message. A report leaves out larger ones."""
MAX_ERROR_CHARS: Final = 1_000  # of an error or a hint; a choice: some lines of a server's output

_log: Final = logging.getLogger(__name__)
_read_lists: Final = attrgetter("tools", "quarantined", "prompts", "resources", "templates")


@dataclass(slots=True)
class NodeReporter:
    """Sends the reports of one node. Run `run` in its own task."""

    control: ControlConnection
    servers: Servers
    itself: NodeReport
    """The fields that never change."""
    status: Callable[[], SyncStatus]
    drifted: Callable[[], Iterable[DriftedTool]]
    """See `DriftDetector.unrecorded`."""
    max_bytes: int = MAX_DEFINITION_BYTES
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    reported: dict[str, tuple[ServerTools, str]] = field(default_factory=dict)
    """Server id → what it offers, and the digest of its lists."""
    requested: Sequence[str] = ()
    """Servers whose definitions the control plane requested."""
    sent: dict[str, str] = field(default_factory=dict)
    """Server id → digest of the definitions that were sent last."""
    is_failing: bool = False

    def on_change(self) -> None:
        self.changed.set()

    async def run(self) -> None:
        """Report every change, and every REPORT_INTERVAL_S, until cancelled."""
        while True:
            self.changed.clear()
            report = self.build_report()
            definitions = self._take_definitions(self.requested)
            try:
                self.requested = await self.control.report(report, definitions)
                self.is_failing = False
            except ToolgateError as exc:
                self.requested = ()
                if not self.is_failing:
                    _log.warning("the control plane rejects this node's reports: %s; %s", exc, exc.hint)
                self.is_failing = True
            # Only definitions that were not sent before are urgent: otherwise nodes that disagree about a
            # server would send theirs forever.
            if any(self._is_unsent(server_id) for server_id in self.requested):
                await asyncio.sleep(DEFINITIONS_INTERVAL_S)
                continue
            await asyncio.sleep(DEBOUNCE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_INTERVAL_S - DEBOUNCE_S):
                    await self.changed.wait()

    def _is_unsent(self, server_id: str) -> bool:
        return server_id in self.reported and self.reported[server_id][1] != self.sent.get(server_id, "")

    def build_report(self) -> NodeReport:
        status, healths = self.status(), self.servers.health()
        self.reported = {
            server_id: (offer, self._digest(server_id, offer))
            for server_id, offer in sorted(self.servers.tools().items())
        }
        changed: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for one in self.drifted():
            changed[one.server_id][one.tool] = one.found
        return replace(
            self.itself,
            epoch=status.epoch,
            revision=status.revision,
            is_degraded=status.is_degraded,
            servers=tuple(
                ServerReport(
                    server_id=server_id,
                    state=health.state,
                    list_state=offer.state,
                    since_ms=health.since_ms,
                    last_error=redact_text(health.last_error)[:MAX_ERROR_CHARS],
                    hint=redact_text(health.hint)[:MAX_ERROR_CHARS],
                    restarts=health.restarts,
                    tools=len(offer.tools),
                    quarantined=len(offer.quarantined),
                    calls=health.calls,
                    verified_ms=health.verified_ms,
                    is_stale=offer.is_stale,
                    definitions=digest,
                    changed=changed.get(server_id, {}),
                )
                for server_id, (offer, digest) in self.reported.items()
                if (health := healths.get(server_id)) is not None
            ),
        )

    def _digest(self, server_id: str, offer: ServerTools) -> str:
        """The digest of a server's lists, computed once for each list. Empty if the server is unlisted."""
        if server_id in self.reported:
            before, digest = self.reported[server_id]
            if all(map(is_, _read_lists(before), _read_lists(offer))):
                return digest
        return "" if is_unlisted(offer) else digest_lists(offer)

    def _take_definitions(self, requested: Sequence[str]) -> Sequence[Definitions]:
        taken = []
        room = self.max_bytes
        for server_id in requested:
            offer, digest = self.reported.get(server_id, (None, ""))
            if offer is None or not digest:
                continue
            definitions = Definitions(
                server_id=server_id,
                digest=digest,
                tools=tuple(one.raw for one in offer.tools.values()),
                prompts=tuple(one.raw for one in offer.prompts.values()),
                resources=tuple(one.raw for one in offer.resources.values()),
                templates=tuple(one.raw for one in offer.templates.values()),
                quarantined=offer.quarantined,
            )
            lists = (definitions.tools, definitions.prompts, definitions.resources, definitions.templates)
            size = sum(len(raw) for raws in lists for raw in raws)
            if self.max_bytes >= size > room:
                continue
            if size <= room:
                room -= size
                taken.append(definitions)
            elif self._is_unsent(server_id):
                _log.warning(
                    "the definitions of server `%s` are too large to report: %d bytes", server_id, size
                )
            self.sent[server_id] = digest
        return taken
