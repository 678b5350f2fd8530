"""What a node tells control: how it stands, how its servers fare, and which definitions they offer.

A report is state and the newest one counts, so one that fails is not kept: the next one says it all.

How long a node may serve without word from control. Past it, it refuses; with the next word, it serves.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import is_
from typing import Final, NamedTuple, Protocol

from toolgate.catalog.listings import ServerLists, digest_lists, read_lists
from toolgate.errors import NotReady, PolicyStale, ToolgateError
from toolgate.gateway.cluster.drift import DriftedTool
from toolgate.gateway.cluster.servers import Servers
from toolgate.model.reports import Definitions, NodeReport, ServerReport
from toolgate.model.tools import ServerTools
from toolgate.policy.rules import is_unlisted
from toolgate.redaction.text import redact_text
from toolgate.registry.replication.sync import ControlConnection, SyncStatus
from toolgate.upstream.pool.health import ServerHealth

REPORT_INTERVAL_S: Final = 10.0
DEBOUNCE_S: Final = 1.0
"""What changes together is reported together."""
DEFINITIONS_INTERVAL_S: Final = 0.1
"""Between reports with definitions that control waits for: of many servers they fill many reports."""
MAX_DEFINITION_BYTES: Final = 8 * 1024 * 1024
"""Definitions in one report. A server that has more alone is reported without."""
MAX_ERROR_CHARS: Final = 1_000

_log: Final = logging.getLogger(__name__)


class _ReportedLists(NamedTuple):
    offer: ServerTools
    lists: ServerLists
    digest: str


class NodeReporter:
    """Reports for one node. `run` it in a task of its own."""

    def __init__(
        self,
        link: ControlConnection,
        servers: Servers,
        *,
        itself: NodeReport,
        status: Callable[[], SyncStatus],
        drifted: Callable[[], Iterable[DriftedTool]] = tuple,
    ) -> None:
        """`itself` is what never changes: who the node is. `drifted`: see `Drift.unrecorded`."""
        self._link = link
        self._servers = servers
        self._itself = itself
        self._status = status
        self._drifted = drifted
        self._changed = asyncio.Event()
        self._known: dict[str, _ReportedLists] = {}
        self._wanted: Sequence[str] = ()
        self._sent: dict[str, str] = {}
        """Server id to the digest of what was sent of it last."""
        self._is_failing = False

    def on_change(self) -> None:
        """Something is worth reporting soon."""
        self._changed.set()

    async def run(self) -> None:
        """Report on every change, and now and then, until cancelled."""
        while True:
            await self._report()
            await self._next_time()

    async def _next_time(self) -> None:
        # What was sent before can wait: nodes that disagree about a server would have it sent without end.
        if any(self._is_news(server_id) for server_id in self._wanted):
            await asyncio.sleep(DEFINITIONS_INTERVAL_S)
            return
        await asyncio.sleep(DEBOUNCE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_INTERVAL_S - DEBOUNCE_S):
                await self._changed.wait()

    def _is_news(self, server_id: str) -> bool:
        known = self._known.get(server_id)
        return known is not None and known.digest != self._sent.get(server_id, "")

    async def _report(self) -> None:
        self._changed.clear()
        report = self.look()
        definitions = self._definitions(self._wanted)
        try:
            self._wanted = await self._link.report(report, definitions)
        except ToolgateError as exc:
            self._wanted = ()
            if not self._is_failing:
                _log.warning("control does not take the reports of this node: %s; %s", exc, exc.hint)
            self._is_failing = True
        else:
            self._is_failing = False

    def look(self) -> NodeReport:
        """The node as it is now."""
        status = self._status()
        offers, healths = self._servers.tools(), self._servers.health()
        self._known = {
            server_id: self._digested(server_id, offer) for server_id, offer in sorted(offers.items())
        }
        changed: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for one in self._drifted():
            changed[one.server_id][one.tool] = one.found
        return replace(
            self._itself,
            epoch=status.epoch,
            revision=status.revision,
            is_degraded=status.is_degraded,
            servers=tuple(
                replace(
                    _server_report(server_id, healths[server_id], known), changed=changed.get(server_id, {})
                )
                for server_id, known in self._known.items()
                if server_id in healths
            ),
        )

    def _digested(self, server_id: str, offer: ServerTools) -> _ReportedLists:
        """Digests are made once for each list."""
        known, lists = self._known.get(server_id), read_lists(offer)
        if known is not None and all(map(is_, known.lists, lists)):
            return _ReportedLists(offer, lists, known.digest)
        return _ReportedLists(offer, lists, "" if is_unlisted(offer) else digest_lists(lists))

    def _definitions(self, wanted: Sequence[str]) -> Sequence[Definitions]:
        """Those of `wanted` that fit into one report, the others another time."""
        chosen = []
        room = MAX_DEFINITION_BYTES
        for server_id in wanted:
            known = self._known.get(server_id)
            if known is None or not known.digest:
                continue
            size = sum(map(len, known.lists.raws))
            if MAX_DEFINITION_BYTES >= size > room:
                continue
            if size <= room:
                room -= size
                chosen.append(_definitions_of(server_id, known))
            elif self._is_news(server_id):
                _log.warning("the definitions of `%s` are too large to report: %d bytes", server_id, size)
            self._sent[server_id] = known.digest
        return chosen


def _definitions_of(server_id: str, known: _ReportedLists) -> Definitions:
    lists = known.lists
    return Definitions(
        server_id=server_id,
        digest=known.digest,
        tools=tuple(tool.raw for tool in lists.tools.values()),
        prompts=tuple(prompt.raw for prompt in lists.prompts.values()),
        resources=tuple(resource.raw for resource in lists.resources.values()),
        templates=tuple(template.raw for template in lists.templates.values()),
        quarantined=lists.quarantined,
    )


def _server_report(server_id: str, health: ServerHealth, known: _ReportedLists) -> ServerReport:
    return ServerReport(
        server_id=server_id,
        state=health.state,
        list_state=known.offer.state,
        since_ms=health.since_ms,
        last_error=redact_text(health.last_error)[:MAX_ERROR_CHARS],
        hint=redact_text(health.hint)[:MAX_ERROR_CHARS],
        restarts=health.restarts,
        tools=len(known.offer.tools),
        quarantined=len(known.offer.quarantined),
        calls=health.calls,
        verified_ms=health.verified_ms,
        is_stale=known.offer.is_stale,
        definitions=known.digest,
    )


class Suspendable(Protocol):
    """What can stop serving and start again: a gateway."""

    def suspend(self, make_error: Callable[[], ToolgateError], /) -> None:
        """Refuse every list and every call."""

    def resume(self) -> None:
        """Serve again."""


class StalenessGuard:
    """Suspends a gateway that may have fallen behind. Close it when done."""

    def __init__(self, gateway: Suspendable, *, max_staleness_s: float | None) -> None:
        """Nothing is served before the first word; and for ever after it where no limit is set."""
        self._gateway = gateway
        self._max_staleness_s = max_staleness_s
        self._timer: asyncio.TimerHandle | None = None
        gateway.suspend(partial(NotReady, "this node has not heard from control yet"))

    def on_contact(self) -> None:
        """Control has just proved that what is served is current."""
        self._gateway.resume()
        self.close()
        if self._max_staleness_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._max_staleness_s, self._expire, self._max_staleness_s)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self, after_s: float) -> None:
        message = f"this node has not heard from control for more than {after_s:g} s"
        self._gateway.suspend(partial(PolicyStale, message))
