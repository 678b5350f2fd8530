"""The servers as nodes report them, for a process that is control plane only.

No server runs in this process. Tools are the newest definitions that any node sent; health is the worst that
any live node reports. This process never calls a server; it connects to one only when an admin tests it.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Never, Self

from toolgate.catalog.listings import ServerLists, check_lists
from toolgate.errors import InvalidRequest, NotFound, ServerUnavailable, ToolgateError
from toolgate.model.reports import Definitions, HealthState, NodeReport, ServerReport
from toolgate.model.servers import ServerRecord, Transport
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.upstream.connection.contract import DEFAULT_LIMITS, Connector
from toolgate.upstream.pool.connectors import Connectors, TrialReport, try_server
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import PoolLoad

if TYPE_CHECKING:  # a node loads no SQL
    from toolgate.registry.store.side_tables import Reports

POLL_INTERVAL_S: Final = 5.0
"""A node that fails does not announce it, so reports are read at least this often."""
MIN_PAUSE_S: Final = 0.5  # between two reads: reports that arrive meanwhile are read together
PAUSE_FACTOR: Final = 10  # the pause by the duration of the last read, which so takes a tenth of the time
MAX_PAUSE_S: Final = 3.0  # reports are shown within seconds, even on a busy machine
RETRY_S: Final = 1.0  # after a read that failed; a choice: the database may be back at any moment
MAX_BACKOFF_S: Final = 30.0  # the longest pause between looks for announced definitions
READ_BATCH: Final = 50
"""Servers whose definitions are read, checked and published together, before the next batch."""
_WORST_LAST: Final[Sequence[HealthState]] = (
    *("disabled", "connected", "idle", "starting", "degraded", "down"),
)

_log: Final = logging.getLogger(__name__)

_Version = tuple[str, str]
"""The id of a server, and the digest of one version of its definitions."""


class _ParsedDefinitions(NamedTuple):
    digest: str
    lists: ServerLists


@dataclass(eq=False)
class ReportedServers:
    """The servers of all nodes. Follows their reports between entering and exiting; enter it first."""

    is_first_hand: ClassVar[bool] = False
    """Servers list their tools to nodes, whose records may be older."""
    unverified: ClassVar[frozenset[str]] = frozenset()

    reports: "Reports"
    connectors: Mapping[Transport, Connector]
    _: KW_ONLY
    on_change: Callable[[str], None]
    """Gets the id of a server whose tools a report changed; it must not raise."""
    clock_ms: Callable[[], int]
    node_url: str | None = field(default=None, init=False)
    """The URL of a live node, if there is one."""
    _definitions: Mapping[str, _ParsedDefinitions] = field(default_factory=dict, init=False)
    _summaries: Mapping[str, ServerReport] = field(default_factory=dict, init=False)
    _tools: Mapping[str, ServerTools] = field(default_factory=dict, init=False)
    _health: Mapping[str, ServerHealth] = field(default_factory=dict, init=False)
    _missing: AbstractSet[_Version] | None = field(default=None, init=False)
    """Definitions that nodes announced and that were not saved at the last look for them."""
    _wait_s: float = field(default=0.0, init=False)
    _due_s: float = field(default=0.0, init=False)
    _saved_ms: Mapping[str, int] | None = field(default=None, init=False)
    """When the definitions of each server were saved, as of the last look for missing ones."""
    _following: asyncio.Task[None] | None = field(default=None, init=False)

    async def __aenter__(self) -> Self:
        await self._read()
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def apply(self, records: Mapping[str, ServerRecord]) -> None:
        """See `Pool.apply`. Nodes get the records by their own watch, and then report."""
        shown = {server_id: offer.record for server_id, offer in self._tools.items()}
        self._show(records, {one for one, record in records.items() if shown.get(one) is not record})

    def tools(self) -> Mapping[str, ServerTools]:
        return self._tools

    def offer(self, server_id: str) -> ServerTools | None:
        return self._tools.get(server_id)

    def health(self) -> Mapping[str, ServerHealth]:
        return self._health

    def load(self) -> PoolLoad:
        return PoolLoad(states={server_id: one.state for server_id, one in self._health.items()})

    async def settled(self, server_ids: Iterable[str]) -> None:
        """Returns at once: this process cannot make a server list its tools."""

    async def refresh(self, server_id: str) -> None:
        if server_id not in self._tools:
            raise NotFound(f"no server `{server_id}`")
        raise InvalidRequest(
            f"server `{server_id}` runs on nodes; this process is control plane only",
            hint=f"nothing to do: nodes list their servers at least every {DEFAULT_LIMITS.list_ttl_s:g} s",
        )

    async def test(self, record: ServerRecord) -> TrialReport:
        """Test a server from this process, whose network and secrets may differ from the nodes'."""
        return await try_server(record, Connectors(self.connectors, DEFAULT_LIMITS), DEFAULT_LIMITS)

    async def call(
        self, server_id: str, *_args: object, tool: ToolDefinition | None = None, **_options: object
    ) -> Never:
        example = "" if self.node_url is None else f", such as `{self.node_url}`"
        raise ServerUnavailable(
            f"`{server_id if tool is None else tool.ref}` runs on nodes; this process is control plane only",
            hint=f"send the call to a node{example}; `toolgate nodes` lists them",
        )

    def _ignore(self, *_args: object) -> None:
        """Do nothing: this process has no connections to servers."""

    set_pins = end_session = reconnect = end_principal = watch = _ignore

    async def _follow(self) -> None:
        clock = asyncio.get_running_loop().time
        seen, is_failing = 0, False
        while True:
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_INTERVAL_S):
                        seen = await self.reports.changed(seen)
                began_s = clock()
                await self._read()
                is_failing = False
                await asyncio.sleep(max(MIN_PAUSE_S, min(PAUSE_FACTOR * (clock() - began_s), MAX_PAUSE_S)))
            except ToolgateError as exc:
                if not is_failing:
                    _log.warning("cannot read the reports of nodes; retrying: %s", exc)
                is_failing = True
                await asyncio.sleep(RETRY_S)
            except Exception:
                # One unexpected report must not stop the reading of all others.
                _log.exception("cannot process the reports of nodes; retrying")
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _read(self) -> None:
        now_ms = self.clock_ms()
        live = [report for report in await self.reports.list_reports() if not report.is_lost(now_ms)]
        self._summaries = await asyncio.to_thread(_summarize, live)
        self.node_url = next((node.url for node in live if node.url), None)
        self._publish()
        # Definitions are large and seldom new, so only announced ones that are missing are read.
        known = {server_id: parsed.digest for server_id, parsed in self._definitions.items()}
        served = {(one.server_id, one.definitions) for report in live for one in report.servers}
        missing = {(one, digest) for one, digest in served if digest and known.get(one) != digest}
        due = sorted(await self._find_due(missing))
        for first in range(0, len(due), READ_BATCH):
            stored = await self.reports.list_definitions(due[first : first + READ_BATCH])
            # In a thread: checking thousands of definitions would block the event loop.
            parsed = await asyncio.to_thread(_parse_definitions, stored, self._definitions)
            self._definitions = {**self._definitions, **parsed}
            self._publish()

    async def _find_due(self, missing: AbstractSet[_Version]) -> AbstractSet[str]:
        # At once when the missing set changed, then less and less often.
        now_s, is_new, known = asyncio.get_running_loop().time(), missing != self._missing, self._saved_ms
        is_due = self._missing is None or bool(missing and (is_new or now_s >= self._due_s))
        self._missing = missing
        if is_due:
            self._wait_s = MIN_PAUSE_S if is_new else min(2 * self._wait_s, MAX_BACKOFF_S)
            self._due_s = now_s + self._wait_s
        if not missing and known is not None:
            return frozenset()
        saved = self._saved_ms = await self.reports.definition_times()
        if known is None:
            return saved.keys()
        self._definitions = {one: parsed for one, parsed in self._definitions.items() if one in saved}
        announced = {server_id for server_id, _ in missing} & saved.keys()
        return announced if is_due else {one for one in announced if saved[one] != known.get(one)}

    def _publish(self) -> None:
        before = self._tools
        self._show({server_id: offer.record for server_id, offer in before.items()}, before)
        for server_id, offer in self._tools.items():
            if offer is not before[server_id]:
                self.on_change(server_id)

    def _show(self, records: Mapping[str, ServerRecord], changed: Container[str]) -> None:
        """Show exactly `records`; rebuild the offers of those that `changed`."""
        tools: dict[str, ServerTools] = {}
        health: dict[str, ServerHealth] = {}
        for server_id, record in records.items():
            shown = self._tools.get(server_id)
            if shown is not None and server_id not in changed:
                tools[server_id], health[server_id] = shown, self._health[server_id]
                continue
            summary = self._summaries.get(server_id)
            offer = _build_offer(record, summary, self._definitions.get(server_id))
            # An equal offer stays the same object, so that its holders need not compare.
            tools[server_id] = shown if shown is not None and shown == offer else offer
            health[server_id] = _build_health(offer, summary)
        self._tools, self._health = MappingProxyType(tools), MappingProxyType(health)


def _summarize(live: Sequence[NodeReport]) -> Mapping[str, ServerReport]:
    """The worst state of each server on any live node, with the calls, restarts and lists of all nodes."""
    reports: dict[str, list[ServerReport]] = {}
    for node in live:
        for report in node.servers:
            reports.setdefault(report.server_id, []).append(report)
    return {
        server_id: replace(
            max(each, key=lambda one: _WORST_LAST.index(one.state)),
            restarts=sum(one.restarts for one in each),
            calls=sum(one.calls for one in each),
            is_stale=all(one.is_stale for one in each),
            verified_ms=max(one.verified_ms for one in each),
        )
        for server_id, each in reports.items()
    }


def _parse_definitions(
    stored: Sequence[Definitions], known: Mapping[str, _ParsedDefinitions]
) -> Mapping[str, _ParsedDefinitions]:
    parsed = {}
    for one in stored:
        before = known.get(one.server_id)
        if before is None or before.digest != one.digest:
            lists = check_lists(
                one.server_id,
                tools=one.tools,
                prompts=one.prompts,
                resources=one.resources,
                templates=one.templates,
            )
            # Tools that the node quarantined, and those that this process quarantines, too: none is offered.
            quarantined = MappingProxyType({**one.quarantined, **lists.quarantined})
            before = _ParsedDefinitions(one.digest, lists._replace(quarantined=quarantined))
        parsed[one.server_id] = before
    return parsed


def _build_offer(
    record: ServerRecord, summary: ServerReport | None, parsed: _ParsedDefinitions | None
) -> ServerTools:
    if parsed is None:
        if summary is None or summary.list_state == "ready":  # its definitions are on their way
            return ServerTools(record=record)
        return ServerTools(record=record, state=summary.list_state, detail=summary.last_error)
    offer = ServerTools(record=record, state="ready", **parsed.lists._asdict())
    if summary is None:
        return replace(offer, is_stale=True, detail="no live node reports this server")
    return replace(offer, is_stale=True, detail=summary.last_error) if summary.is_stale else offer


def _build_health(offer: ServerTools, summary: ServerReport | None) -> ServerHealth:
    if summary is None or not offer.record.enabled:
        return ServerHealth(state="idle" if offer.record.enabled else "disabled")
    return ServerHealth(
        # "disabled" comes from a node with an older record, and does not apply to this one.
        state="idle" if summary.state == "disabled" else summary.state,
        last_error=summary.last_error,
        hint=summary.hint,
        since_ms=summary.since_ms,
        restarts=summary.restarts,
        calls=summary.calls,
        verified_ms=summary.verified_ms,
        tools=len(offer.tools),
        quarantined=len(offer.quarantined),
    )
