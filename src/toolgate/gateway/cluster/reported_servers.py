"""The servers as nodes report them: what a control without a node of its own goes by.

Nothing runs here. Tools are the newest definitions any node has sent, health is the worst any live node sees.
A server is never called from here; only a trial connects to one, and only when somebody asks for it.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Self

from toolgate.catalog.listings import ServerLists, check_lists
from toolgate.errors import InvalidRequest, NotFound, ServerUnavailable, ToolgateError
from toolgate.model.reports import Definitions, HealthState, NodeReport, ServerReport
from toolgate.model.servers import ServerRecord, Transport
from toolgate.model.snapshot import Pin
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.registry.store.contract import Reports
from toolgate.upstream.connection.contract import (
    DEFAULT_LIMITS,
    Acknowledgement,
    ClientChannel,
    Connector,
    Params,
)
from toolgate.upstream.pool.connectors import Connectors, TrialReport, try_server
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import NO_ORIGIN, CallOrigin, PoolLoad, ServerResponse

POLL_INTERVAL_S: Final = 5.0
"""That a node has gone silent is told by nobody: it is looked for so often."""
MIN_PAUSE_S: Final = 0.5
PAUSE_FACTOR: Final = 10
MAX_PAUSE_S: Final = 3.0
"""After a look there is none for GAP_S, nor for PAUSE times as long as it took, up to LONGEST_PAUSE_S: on a
busy machine it takes long by the clock, and what nodes report is to be seen within seconds even there."""
RETRY_S: Final = 1.0
MAX_BACKOFF_S: Final = 30.0
"""Definitions that were announced and do not come are looked for after waits that double up to this. Those
that are saved meanwhile are read at once."""
READ_BATCH: Final = 50
"""Servers whose definitions are read and checked before they are shown, and the next ones read."""

_WORST_LAST: Final[Sequence[HealthState]] = (
    *("disabled", "connected", "idle", "starting", "degraded", "down"),
)

_log: Final = logging.getLogger(__name__)


class _DefinitionsVersion(NamedTuple):
    """One version of the definitions of a server."""

    server_id: str
    digest: str


class _ParsedDefinitions(NamedTuple):
    """The definitions of a server, checked."""

    digest: str
    lists: ServerLists


class _ServerSummary(NamedTuple):
    """What the live nodes say of a server: the one that fares worst, and all together."""

    worst: ServerReport
    restarts: int
    calls: int
    is_stale: bool
    """For each of them."""
    verified_ms: int
    """When one of them last had the server list its tools."""


class _ClusterState(NamedTuple):
    """All that is known of the servers, by id."""

    definitions: Mapping[str, _ParsedDefinitions]
    words: Mapping[str, _ServerSummary]
    door_url: str | None = None
    """Of a live node."""


class ReportedServers:
    """The servers of all nodes. Enter it before anything else; while it is entered, reports are followed."""

    is_first_hand: Final = False
    unverified: Final = frozenset[str]()

    def __init__(
        self,
        reports: Reports,
        openers: Mapping[Transport, Connector],
        *,
        on_change: Callable[[str], None],
        clock_ms: Callable[[], int],
    ) -> None:
        """`on_change` is told the id of a server whose tools changed by a report; it must not raise."""
        self._reports = reports
        self._openers = Connectors(openers, DEFAULT_LIMITS)
        self._on_change = on_change
        self._clock_ms = clock_ms
        self._told = _ClusterState({}, {})
        self._tools: Mapping[str, ServerTools] = MappingProxyType({})
        self._health: Mapping[str, ServerHealth] = MappingProxyType({})
        self._missing = _MissingDefinitions()
        self._times: Mapping[str, int] | None = None
        """When the definitions of each server were saved, as of the last time that some were looked for."""
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._look()
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    # Records and what is said of them

    def apply(self, records: Mapping[str, ServerRecord]) -> None:
        """See `Servers.apply`. Nodes hear of the records in their own way, and then report."""
        shown = self._tools
        self._show(
            records,
            {
                each
                for each, record in records.items()
                if each not in shown or shown[each].record is not record
            },
        )

    def tools(self) -> Mapping[str, ServerTools]:
        return self._tools

    def offer(self, server_id: str) -> ServerTools | None:
        return self._tools.get(server_id)

    def set_pins(self, _pins: Mapping[str, Pin], /) -> None:
        """No call is sent from here."""

    def health(self) -> Mapping[str, ServerHealth]:
        return self._health

    def door_url(self) -> str | None:
        """Where a node that lives can be called, if there is one."""
        return self._told.door_url

    def load(self) -> PoolLoad:
        return PoolLoad(states={server_id: one.state for server_id, one in self._health.items()})

    async def settled(self, server_ids: Iterable[str]) -> None:
        """Returns at once: nobody here can hasten a list, and nobody calls by it."""

    async def refresh(self, server_id: str) -> None:
        if server_id not in self._tools:
            raise NotFound(f"no server `{server_id}`")
        raise InvalidRequest(
            f"server `{server_id}` runs on nodes, and this control is none",
            hint=f"nodes list their servers by themselves, every {DEFAULT_LIMITS.list_ttl_s:g} s or sooner",
        )

    async def test(self, record: ServerRecord) -> TrialReport:
        """Connect from this process, which may see another network and other secrets than the nodes do."""
        return await try_server(record, self._openers, DEFAULT_LIMITS)

    async def call(
        self,
        server_id: str,
        _method: str,
        _params: Params,
        /,
        *,
        tool: ToolDefinition | None = None,
        client: ClientChannel | None = None,
        origin: CallOrigin = NO_ORIGIN,
    ) -> ServerResponse:
        del client, origin
        raise ServerUnavailable(
            f"`{server_id if tool is None else tool.ref}` runs on nodes, and this control is none",
            hint=f"send the call to a node{self._such_as()}; `GET /admin/api/nodes` lists them",
        )

    def _such_as(self) -> str:
        return "" if self._told.door_url is None else f", such as `{self._told.door_url}`"

    def end_session(self, _session: str, /) -> None:
        """Nothing is kept here."""

    def reconnect(self, _server_id: str, _principal_id: str, /) -> None:
        """Nobody logs in to a server here."""

    def end_principal(self, _principal_id: str, /) -> None:
        """Nobody has links here."""

    def watch(self, _server_id: str, _uris: frozenset[str], /) -> Acknowledgement:
        """Nobody listens here."""

    # Following the reports

    async def _follow(self) -> None:
        clock = asyncio.get_running_loop().time
        seen, is_failing = 0, False
        while True:
            try:
                seen = await self._news(seen)
                began_s = clock()
                await self._look()
                is_failing = False
                pause_s = min(PAUSE_FACTOR * (clock() - began_s), MAX_PAUSE_S)
                await asyncio.sleep(max(MIN_PAUSE_S, pause_s))
            except ToolgateError as exc:
                if not is_failing:
                    _log.warning("what nodes report cannot be read, trying again: %s", exc)
                is_failing = True
                await asyncio.sleep(RETRY_S)
            except Exception:
                # One report that nobody was prepared for must not end the following of all others.
                _log.exception("what nodes report was not understood, trying again")
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _news(self, seen: int) -> int:
        """The count of reports once it is another than `seen`, or the time to look has come."""
        try:
            async with asyncio.timeout(POLL_INTERVAL_S):
                return await self._reports.changed(seen)
        except TimeoutError:
            return seen

    async def _look(self) -> None:
        """Take over what is reported now."""
        now_ms = self._clock_ms()
        live = [report for report in await self._reports.list_reports() if not report.is_lost(now_ms)]
        self._told = await asyncio.to_thread(_gather, live, self._told.definitions)
        self._take_over()
        # Definitions are large and seldom new: they are read where a report speaks of others than are known.
        wanted = sorted(await self._due(_missing_definitions(live, self._told.definitions)))
        for first in range(0, len(wanted), READ_BATCH):
            kept = await self._reports.list_definitions(wanted[first : first + READ_BATCH])
            # In a thread: thousands of definitions take longer to check than the loop may stand still.
            parsed = await asyncio.to_thread(_parse_all, kept, self._told.definitions)
            self._told = self._told._replace(definitions={**self._told.definitions, **parsed})
            self._take_over()

    async def _due(self, missing: AbstractSet[_DefinitionsVersion]) -> AbstractSet[str]:
        """The servers whose definitions are to be read now, of those that are `missing`."""
        is_due = self._missing.is_due(missing, asyncio.get_running_loop().time())
        is_first = self._times is None
        if not missing and not is_first:
            return frozenset()
        times = await self._reports.definition_times()
        known, self._times = self._times or {}, times
        if is_first:
            return times.keys()
        held = {one: parsed for one, parsed in self._told.definitions.items() if one in times}
        self._told = self._told._replace(definitions=held)  # without those of servers that are gone
        ids = {one.server_id for one in missing} & times.keys()
        return ids if is_due else {one for one in ids if times[one] != known.get(one)}

    def _take_over(self) -> None:
        """Show what is known now, and tell of the servers that it changes."""
        before = self._tools
        self._show({server_id: offer.record for server_id, offer in before.items()}, before)
        for server_id, offer in self._tools.items():
            if offer is not before[server_id]:
                self._on_change(server_id)

    def _show(self, records: Mapping[str, ServerRecord], anew: Container[str]) -> None:
        """Hold exactly `records`, and put together `anew` what is shown of some of them."""
        tools: dict[str, ServerTools] = {}
        health: dict[str, ServerHealth] = {}
        for server_id, record in records.items():
            shown = self._tools.get(server_id)
            if shown is not None and server_id not in anew:
                tools[server_id], health[server_id] = shown, self._health[server_id]
                continue
            word = self._told.words.get(server_id)
            offer = _build_offer(record, word, self._told.definitions.get(server_id))
            # The same value stays the same object, so whoever holds it need not compare.
            tools[server_id] = shown if shown is not None and shown == offer else offer
            health[server_id] = _build_health(offer, word)
        self._tools, self._health = MappingProxyType(tools), MappingProxyType(health)


class _MissingDefinitions:
    """Definitions that nodes announce and control does not have, and when to look for them."""

    def __init__(self) -> None:
        self._missing: AbstractSet[_DefinitionsVersion] | None = None
        self._wait_s = 0.0
        self._due_s = 0.0

    def is_due(self, missing: AbstractSet[_DefinitionsVersion], now_s: float) -> bool:
        """Whether to look now: at first, when others are missing than before, and ever more seldom after."""
        is_news, is_first = missing != self._missing, self._missing is None
        self._missing = missing
        if not is_first and (not missing or (not is_news and now_s < self._due_s)):
            return False
        self._wait_s = MIN_PAUSE_S if is_news else min(2 * self._wait_s, MAX_BACKOFF_S)
        self._due_s = now_s + self._wait_s
        return True


def _missing_definitions(
    live: Sequence[NodeReport], known: Mapping[str, _ParsedDefinitions]
) -> AbstractSet[_DefinitionsVersion]:
    """The definitions that `live` nodes serve and are not `known`."""
    return {
        _DefinitionsVersion(server.server_id, server.definitions)
        for report in live
        for server in report.servers
        if server.definitions
        and (server.server_id not in known or known[server.server_id].digest != server.definitions)
    }


def _gather(live: Sequence[NodeReport], definitions: Mapping[str, _ParsedDefinitions]) -> _ClusterState:
    """What `live` nodes say, and the definitions that are known."""
    reports: dict[str, list[ServerReport]] = {}
    for node in live:
        for report in node.servers:
            reports.setdefault(report.server_id, []).append(report)
    words = {server_id: _summarize(each) for server_id, each in reports.items()}
    return _ClusterState(definitions, words, next((node.url for node in live if node.url), None))


def _summarize(reports: Sequence[ServerReport]) -> _ServerSummary:
    return _ServerSummary(
        worst=max(reports, key=lambda report: _WORST_LAST.index(report.state)),
        restarts=sum(report.restarts for report in reports),
        calls=sum(report.calls for report in reports),
        is_stale=all(report.is_stale for report in reports),
        verified_ms=max(report.verified_ms for report in reports),
    )


def _parse_all(
    kept: Sequence[Definitions], known: Mapping[str, _ParsedDefinitions]
) -> Mapping[str, _ParsedDefinitions]:
    return {each.server_id: _parse_definitions(each, known) for each in kept}


def _parse_definitions(
    definitions: Definitions, known: Mapping[str, _ParsedDefinitions]
) -> _ParsedDefinitions:
    before = known.get(definitions.server_id)
    if before is not None and before.digest == definitions.digest:
        return before
    lists = check_lists(
        definitions.server_id,
        tools=definitions.tools,
        prompts=definitions.prompts,
        resources=definitions.resources,
        templates=definitions.templates,
    )
    # The node does not send what it refused. What this control refuses besides is not offered here either.
    quarantined = MappingProxyType({**definitions.quarantined, **lists.quarantined})
    return _ParsedDefinitions(definitions.digest, lists._replace(quarantined=quarantined))


def _build_offer(
    record: ServerRecord, word: _ServerSummary | None, parsed: _ParsedDefinitions | None
) -> ServerTools:
    """The last good list any node has sent, or why there is none."""
    if parsed is None:
        if word is None or word.worst.list_state == "ready":  # then its definitions are on their way
            return ServerTools(record=record)
        return ServerTools(record=record, state=word.worst.list_state, detail=word.worst.last_error)
    offer = ServerTools(record=record, state="ready", **parsed.lists._asdict())
    if word is None:
        return replace(offer, is_stale=True, detail="no node has reported it of late")
    return replace(offer, is_stale=True, detail=word.worst.last_error) if word.is_stale else offer


def _build_health(offer: ServerTools, word: _ServerSummary | None) -> ServerHealth:
    """The worst that any node sees, and the sums of what can be summed."""
    if word is None or not offer.record.enabled:
        return ServerHealth(state="idle" if offer.record.enabled else "disabled")
    worst = word.worst
    return ServerHealth(
        # A node that still goes by an older record says nothing of how the server fares under this one.
        state="idle" if worst.state == "disabled" else worst.state,
        last_error=worst.last_error,
        hint=worst.hint,
        since_ms=worst.since_ms,
        restarts=word.restarts,
        calls=word.calls,
        verified_ms=word.verified_ms,
        tools=len(offer.tools),
        quarantined=len(offer.quarantined),
    )
