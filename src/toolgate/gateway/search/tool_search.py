"""What the find tools say of a scope: the tools that suit a query, and one of them in full.

The node's index holds the tools of all servers; a search is held against the caller's own, so that what is
not in its scope is as if it were not there. The index follows the snapshot in the background, from the
moment that a caller has tools to find: some servers at a time, in a thread, those that a search waits for
first. Servers whose tools are the same are not looked at again. A search waits for the servers of its caller,
but not for long: it answers with what is indexed by then, and says how much is not.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.encoding import encode_definition, make_error_result
from toolgate.catalog.rows import fill_row, make_rows
from toolgate.catalog.search.find_tools import MAX_DESCRIPTION_CHARS, SearchArguments
from toolgate.catalog.search.index import make_entry
from toolgate.errors import CallTimedOut, ServerBusy, ToolgateError
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.gateway.search.index import HybridIndex
from toolgate.model.json_text import Members
from toolgate.model.packages import UNCATEGORIZED, CatalogRow
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ServerTools

MAX_WAITING: Final = 64
MAX_WAITING_EACH: Final = 16
"""Searches of a node, and of one principal, at once: one more is told to come again."""
MAX_CONCURRENT: Final = 2
"""A search among 10,000 tools may keep the loop for 20 ms; whoever else wants it has a turn in between."""
SEARCH_TIMEOUT_S: Final = 30.0
"""How long a search may wait for its turn, and for the index to have what the snapshot has."""
INDEX_WAIT_S: Final = 3.0
"""How long a search waits for the servers of its caller to be indexed."""
INDEX_BATCH: Final = 10
"""Indexed before it is looked at what callers wait for."""
SEARCH_HINT: Final = "find tools with `search_tools`, and use their names unchanged"

_log = logging.getLogger(__name__)
_encode = msgspec.json.encode


class _Card(NamedTuple):
    """What is shown of a tool that is found, beside what its definition has at hand."""

    title: str
    is_read_only: bool


class _IndexedServer(NamedTuple):
    """A server as the index has it."""

    offer: ServerTools
    cards: Mapping[str, _Card]
    """By digest of the definition: another definition has another card."""


class ToolSearch:
    """Finds tools for callers."""

    def __init__(self, searching: HybridIndex) -> None:
        self._searching = searching
        self._indexed: dict[str, _IndexedServer] = {}
        self._serial = -1
        self._newest: Snapshot | None = None
        """What the index is to have."""
        self._first: dict[str, None] = {}
        """Servers that callers wait for: they are indexed before others."""
        self._catching_up: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        """Set when some servers were indexed; then there is another one."""
        self._turns = asyncio.Semaphore(MAX_CONCURRENT)
        self._waiting: Counter[str] = Counter()

    async def search(self, view: View, snapshot: Snapshot, wanted: SearchArguments) -> Members:
        """The tools of the view that suit, as a result of `search_tools`. Raises ServerBusy, CallTimedOut."""
        principal_id = view.caller.principal.id
        if self._waiting.total() >= MAX_WAITING or self._waiting[principal_id] >= MAX_WAITING_EACH:
            raise ServerBusy("too many searches wait already")
        self._waiting[principal_id] += 1
        try:
            async with asyncio.timeout(SEARCH_TIMEOUT_S), self._turns:
                await asyncio.sleep(0)  # many that come at once would else have the loop one after the other
                return await self._search(view, snapshot, wanted)
        except TimeoutError as exc:
            raise CallTimedOut(f"nothing was found within {SEARCH_TIMEOUT_S:g} s") from exc
        finally:
            self._waiting[principal_id] -= 1
            self._waiting += Counter()  # forgets who waits for nothing

    def prepare(self, snapshot: Snapshot) -> None:
        """Have the index follow `snapshot` in the background: a caller has tools to find in it."""
        if self._newest is None or self._newest.serial < snapshot.serial:
            self._newest = snapshot
        if self._serial < self._newest.serial and not self._is_catching_up:
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())

    async def _follow(self, snapshot: Snapshot, server_ids: Sequence[str]) -> int:
        """Have these servers as `snapshot` has them, if that does not take long; how many are missing."""
        self.prepare(snapshot)
        self._first |= dict.fromkeys(server_ids)
        with suppress(TimeoutError):
            async with asyncio.timeout(INDEX_WAIT_S):
                while self._missing(snapshot, server_ids) and self._is_catching_up:
                    await self._moved.wait()
        return self._missing(snapshot, server_ids)

    @property
    def _is_catching_up(self) -> bool:
        return self._catching_up is not None and not self._catching_up.done()

    async def settled(self) -> None:
        """Returns once the index has what the newest snapshot has that it was asked to follow."""
        while self._is_catching_up:
            await self._moved.wait()

    def _missing(self, snapshot: Snapshot, server_ids: Sequence[str]) -> int:
        if self._serial >= snapshot.serial:
            return 0
        return sum(not self._has(one, snapshot.servers[one]) for one in server_ids if one in snapshot.servers)

    def _has(self, server_id: str, offer: ServerTools) -> bool:
        known = self._indexed.get(server_id)
        return known is not None and _is_same(known.offer, offer)

    async def _catch_up(self) -> None:
        """Until the index has what the newest snapshot has. After a failure, the next search tries again."""
        try:
            await self._index_all()
        except Exception:
            _log.exception("the index of tools is not complete")
        finally:
            # After this task: those who wait see that it is done.
            asyncio.get_running_loop().call_soon(self._tell)

    async def _index_all(self) -> None:
        while self._newest is not None and self._serial < self._newest.serial:
            snapshot = self._newest
            pending = {one: None for one, offer in snapshot.servers.items() if not self._has(one, offer)}
            while pending and self._newest is snapshot:
                chosen = self._choose(pending)
                await asyncio.to_thread(self._put, {one: snapshot.servers[one] for one in chosen})
                self._tell()
            if not pending:
                await asyncio.to_thread(self._drop, self._indexed.keys() - snapshot.servers.keys())
                self._serial = snapshot.serial
                self._first.clear()

    def _choose(self, pending: dict[str, None]) -> Sequence[str]:
        """Some servers of those that are `pending`, and from then on are not: first those wanted first."""
        first = [one for one in self._first if one in pending]
        self._first = dict.fromkeys(first[INDEX_BATCH:])
        chosen = [*first, *(one for one in pending if one not in self._first)][:INDEX_BATCH]
        for server_id in chosen:
            pending.pop(server_id, None)
        return chosen

    def _tell(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _put(self, servers: Mapping[str, ServerTools]) -> None:
        """In a thread, and never in two at once."""
        for server_id, offer in servers.items():
            rows = _rows(offer)
            self._searching.put(server_id, [make_entry(row) for row in rows])
            self._indexed[server_id] = _IndexedServer(offer, {row.digest: _card(row) for row in rows})

    def _drop(self, server_ids: AbstractSet[str]) -> None:
        """In a thread."""
        for server_id in server_ids:
            self._searching.drop(server_id)
            del self._indexed[server_id]

    async def _search(self, view: View, snapshot: Snapshot, wanted: SearchArguments) -> Members:
        missing = await self._follow(snapshot, view.scope.servers) if wanted.query.strip() else 0
        there = view.names_by_key
        if wanted.has_filter:
            there = await asyncio.to_thread(self._filtered, view, snapshot, wanted)
        names: list[str] = []
        note = ""
        if wanted.query.strip():
            hits = await self._searching.search(wanted.query, limit=wanted.limit, within=there)
            names = [there[hit.key] for hit in hits]
        if not names:
            names = list(there.values())[: wanted.limit]
            note = _empty_search_note(wanted.query, shown=len(names), total=len(there))
        if missing:
            note = f"{_indexing_note(missing, of=len(view.scope.servers))} {note}".strip()
        return _search_result(
            [self._show(name, view.tools[name]) for name in names], total=len(there), note=note
        )

    def _filtered(self, view: View, snapshot: Snapshot, wanted: SearchArguments) -> Mapping[str, str]:
        return {
            key: name
            for key, name in view.names_by_key.items()
            if self._passes(view.tools[name], snapshot, wanted)
        }

    def _passes(self, route: Route, snapshot: Snapshot, wanted: SearchArguments) -> bool:
        offer = snapshot.servers.get(route.server_id)
        return (
            offer is not None
            and wanted.server in (None, route.server_id)
            and wanted.category in (None, offer.record.category or UNCATEGORIZED)
            and (wanted.tag is None or wanted.tag in offer.record.tags)
            and wanted.read_only in (None, self._card(route).is_read_only)
        )

    def _card(self, route: Route) -> _Card:
        indexed = self._indexed.get(route.server_id)
        card = None if indexed is None else indexed.cards.get(route.digest)
        if card is None:  # the view is from another snapshot than the index
            assert route.tool is not None
            blank = CatalogRow(package_id=route.server_id, tool_name=route.name)
            card = _card(fill_row(blank, route.tool))
        return card

    def _show(self, name: str, route: Route) -> dict[str, Any]:
        assert route.tool is not None
        card = self._card(route)
        shown: dict[str, Any] = {"name": name}
        if card.title:
            shown["title"] = card.title
        shown |= {"description": _shortened(route.tool.description), "server": route.server_id}
        if card.is_read_only:
            shown["readOnly"] = True
        return shown | {"tokens": route.tool.tokens}


async def failed_find_result(exc: ToolgateError) -> Members:
    """What is wrong with a use of a find tool, as its result."""
    return make_error_result(exc)


async def describe_tool(name: str, route: Route) -> Members:
    """One tool in full, as a result of `describe_tool`."""
    assert route.tool is not None  # what is found is a tool
    definition = encode_definition(route.tool, name, era="modern")
    return _result(definition.decode(), definition)


def _is_same(known: ServerTools, offer: ServerTools) -> bool:
    return known is offer or (known.tools is offer.tools and known.record == offer.record)


def _rows(offer: ServerTools) -> Sequence[CatalogRow]:
    """The tools as the catalog would have them: what is found there is found here, by the same words."""
    return make_rows(None, (), record=offer.record, offer=offer, at_ms=0) if offer.tools else ()


def _card(row: CatalogRow) -> _Card:
    return _Card(row.title, row.is_read_only)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION_CHARS else f"{text[: MAX_DESCRIPTION_CHARS - 1]}…"


def _indexing_note(missing: int, *, of: int) -> str:
    servers = f"The tools of {missing} of {of} servers are still being indexed"
    return f"{servers}: search again in a moment to find them, too."


def _empty_search_note(query: str, *, shown: int, total: int) -> str:
    if not total:
        return "There is no tool here with these filters."
    first = f"The first {shown} of {total} by name:" if shown < total else "All there are, by name:"
    return f"Nothing here suits `{query}`; try other words. {first}" if query.strip() else first


def _search_result(tools: Sequence[Mapping[str, Any]], *, total: int, note: str) -> Members:
    lines = [f"{one['name']}: {' '.join(one['description'].split())}" for one in tools]
    told = {"tools": tools, "total": total} | ({"note": note} if note else {})
    return _result("\n".join([*([note] if note else []), *lines]), _encode(told))


def _result(text: str, structured: bytes) -> Members:
    return {
        "content": msgspec.Raw(_encode([{"type": "text", "text": text}])),
        "structuredContent": msgspec.Raw(structured),
    }
