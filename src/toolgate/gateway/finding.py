"""What the find tools say of a scope: the tools that suit a query, and one of them in full.

The node's index holds the tools of all servers; a search is held against the caller's own, so that what is
not in its scope is as if it were not there. The index follows the snapshot when somebody searches, in a
thread: servers whose tools are the same are not looked at again, and searches at the same time wait for one
and the same catching up.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.entries import entry_of
from toolgate.catalog.find_tools import MAX_DESCRIPTION_CHARS, Search
from toolgate.catalog.pages import encode_definition
from toolgate.catalog.rows import fill_row, project
from toolgate.errors import CallTimedOut, ServerBusy
from toolgate.gateway.routes import Route
from toolgate.gateway.searching import Searching
from toolgate.gateway.view import View
from toolgate.model.packages import UNCATEGORIZED, CatalogRow
from toolgate.model.raw import Members
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ServerTools

MAX_WAITING: Final = 64
MAX_WAITING_EACH: Final = 16
"""Searches of a node, and of one principal, at once: one more is told to come again."""
AT_ONCE: Final = 2
"""A search among 10,000 tools may keep the loop for 20 ms; whoever else wants it has a turn in between."""
PATIENCE_S: Final = 30.0
"""How long a search may wait for its turn, and for the index to have what the snapshot has."""
SEARCH_HINT: Final = "find tools with `search_tools`, and use their names unchanged"

_encode = msgspec.json.encode


class _Card(NamedTuple):
    """What is shown of a tool that is found, beside what its definition has at hand."""

    title: str
    is_read_only: bool


class _Indexed(NamedTuple):
    """A server as the index has it."""

    offer: ServerTools
    cards: Mapping[str, _Card]
    """By digest of the definition: another definition has another card."""


class Finding:
    """Finds tools for callers."""

    def __init__(self, searching: Searching) -> None:
        self._searching = searching
        self._indexed: dict[str, _Indexed] = {}
        self._serial = -1
        self._catching_up: asyncio.Task[None] | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting: Counter[str] = Counter()

    async def search(self, view: View, snapshot: Snapshot, wanted: Search) -> Members:
        """The tools of the view that suit, as a result of `search_tools`. Raises ServerBusy, CallTimedOut."""
        principal_id = view.caller.principal.id
        if self._waiting.total() >= MAX_WAITING or self._waiting[principal_id] >= MAX_WAITING_EACH:
            raise ServerBusy("too many searches wait already")
        self._waiting[principal_id] += 1
        try:
            async with asyncio.timeout(PATIENCE_S), self._turns:
                await asyncio.sleep(0)  # many that come at once would else have the loop one after the other
                return await self._search(view, snapshot, wanted)
        except TimeoutError as exc:
            raise CallTimedOut(f"nothing was found within {PATIENCE_S:g} s") from exc
        finally:
            self._waiting[principal_id] -= 1
            self._waiting += Counter()  # forgets who waits for nothing

    async def _follow(self, snapshot: Snapshot) -> None:
        """Have what `snapshot` has. Whoever gives up waiting does not end the work: others wait for it."""
        while self._serial < snapshot.serial:
            if self._catching_up is None or self._catching_up.done():
                self._catching_up = asyncio.get_running_loop().create_task(self._catch_up(snapshot))
            await asyncio.shield(self._catching_up)

    async def _catch_up(self, snapshot: Snapshot) -> None:
        await asyncio.to_thread(self._put_all, snapshot.servers)
        self._serial = snapshot.serial

    def _put_all(self, servers: Mapping[str, ServerTools]) -> None:
        """In a thread, and never in two at once."""
        for server_id, offer in servers.items():
            known = self._indexed.get(server_id)
            if known is None or not _is_same(known.offer, offer):
                rows = _rows(offer)
                self._searching.put(server_id, [entry_of(row) for row in rows])
                self._indexed[server_id] = _Indexed(offer, {row.digest: _card(row) for row in rows})
        for server_id in self._indexed.keys() - servers.keys():
            self._searching.drop(server_id)
            del self._indexed[server_id]

    async def _search(self, view: View, snapshot: Snapshot, wanted: Search) -> Members:
        await self._follow(snapshot)
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
            note = _note(wanted.query, shown=len(names), total=len(there))
        return _found([self._show(name, view.tools[name]) for name in names], total=len(there), note=note)

    def _filtered(self, view: View, snapshot: Snapshot, wanted: Search) -> Mapping[str, str]:
        return {
            key: name
            for key, name in view.names_by_key.items()
            if self._passes(view.tools[name], snapshot, wanted)
        }

    def _passes(self, route: Route, snapshot: Snapshot, wanted: Search) -> bool:
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


async def describe_tool(name: str, route: Route) -> Members:
    """One tool in full, as a result of `describe_tool`."""
    assert route.tool is not None  # what is found is a tool
    definition = encode_definition(route.tool, name, era="modern")
    return _result(definition.decode(), definition)


def _is_same(known: ServerTools, offer: ServerTools) -> bool:
    return known is offer or (known.tools is offer.tools and known.record == offer.record)


def _rows(offer: ServerTools) -> Sequence[CatalogRow]:
    """The tools as the catalog would have them: what is found there is found here, by the same words."""
    return project(None, (), record=offer.record, offer=offer, at_ms=0) if offer.tools else ()


def _card(row: CatalogRow) -> _Card:
    return _Card(row.title, row.is_read_only)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION_CHARS else f"{text[: MAX_DESCRIPTION_CHARS - 1]}…"


def _note(query: str, *, shown: int, total: int) -> str:
    if not total:
        return "There is no tool here with these filters."
    first = f"The first {shown} of {total} by name:" if shown < total else "All there are, by name:"
    return f"Nothing here suits `{query}`; try other words. {first}" if query.strip() else first


def _found(tools: Sequence[Mapping[str, Any]], *, total: int, note: str) -> Members:
    lines = [f"{one['name']}: {' '.join(one['description'].split())}" for one in tools]
    told = {"tools": tools, "total": total} | ({"note": note} if note else {})
    return _result("\n".join([*([note] if note else []), *lines]), _encode(told))


def _result(text: str, structured: bytes) -> Members:
    return {
        "content": msgspec.Raw(_encode([{"type": "text", "text": text}])),
        "structuredContent": msgspec.Raw(structured),
    }
