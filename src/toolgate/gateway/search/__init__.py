"""The find tools: search the tools of a scope that is too large to list, and describe one tool in full.

The index of a process holds the tools of all servers. A search looks only at the tools of the caller's view,
so a tool outside the scope looks like a missing one. Once a caller has tools to search, a thread indexes the
snapshot in batches of servers, first those that a search waits for. A search waits briefly for its caller's
servers, then returns the indexed tools and the number of servers that are not indexed. It ranks by words, and
by embeddings if a model is configured (`semantic`, loaded only then). The catalog of `govern` uses the same
`HybridIndex`. Never blocks the event loop for longer than one search of words.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolgate.catalog.encoding import encode_definition
from toolgate.catalog.find_tools import MAX_DESCRIPTION_CHARS, SearchArguments
from toolgate.catalog.rows import fill_row, make_rows
from toolgate.catalog.word_search import SearchEntry, SearchIndex, fuse_rankings, make_entry
from toolgate.errors import CallTimedOut, ServerBusy, StartRefused
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View
from toolgate.lazy_modules import load_lazily
from toolgate.model.json_text import Members, encode_raw
from toolgate.model.packages import UNCATEGORIZED, CatalogRow
from toolgate.model.tools import ServerTools, Snapshot

if TYPE_CHECKING:
    from toolgate.gateway.search.semantic import SemanticSearch

DEPTH: Final = 100  # hits of each ranking that count when two rankings are fused
SEMANTIC_TIMEOUT_S: Final = 1.0  # a search that waits longer for the model ranks by words alone


@asynccontextmanager
async def open_semantic_search(model: Path | None, data_dir: Path) -> AsyncIterator["SemanticSearch | None"]:
    """The search that indexes share; None without a `model`. Caches vectors in `data_dir`.

    Raises StartRefused.
    """
    if model is None:
        yield None
        return
    try:
        module = await asyncio.to_thread(load_lazily, "toolgate.gateway.search.semantic")
    except ImportError as exc:
        raise StartRefused(
            f"the setting `semantic_model` requires `{exc.name}`, which is not installed",
            hint="run `pip install 'toolgate[semantic]'`, or unset `semantic_model`",
        ) from exc
    async with module.open_semantic_model(model, data_dir / "vectors.sqlite3") as semantic:
        yield semantic


class HybridIndex:
    """An index of tools in groups. `put` and `drop` are thread-safe, and too slow for the event loop."""

    def __init__(
        self, semantic: "SemanticSearch | None" = None, *, timeout_s: float = SEMANTIC_TIMEOUT_S
    ) -> None:
        self._timeout_s = timeout_s
        self._index = SearchIndex()
        self._near = None if semantic is None else semantic.open_index()
        self._writing = threading.Lock()

    def put(self, group: str, entries: Sequence[SearchEntry]) -> None:
        """Replace `group` by `entries`. 10,000 new entries take a few seconds, unchanged ones little."""
        with self._writing:
            self._index.put(group, entries)
            if self._near is not None:
                self._near.put(group, entries)

    def drop(self, group: str) -> None:
        """Remove `group`, if it is there."""
        with self._writing:
            self._index.drop(group)
            if self._near is not None:
                self._near.drop(group)

    def groups(self) -> AbstractSet[str]:
        return self._index.groups()

    async def search(self, query: str, *, limit: int, within: Container[str] | None) -> list[str]:
        """The keys of the best matches `within`. Another thread reads `within`, too: it must not change."""
        if self._near is None:
            return self._index.search(query, limit=limit, within=within)
        depth = max(limit, DEPTH)
        worded = self._index.search(query, limit=depth, within=within)
        try:
            async with asyncio.timeout(self._timeout_s):
                near = await self._near.rank(query, limit=depth, within=within)
        except TimeoutError:
            near = []
        return fuse_rankings([worded, near], limit=limit)


MAX_WAITING: Final = 64  # searches of a node at once: at 20 ms each, the last one waits about a second
MAX_WAITING_EACH: Final = 16  # searches of one principal at once: four principals fill a node
MAX_CONCURRENT: Final = 2
"""A search among 10,000 tools may block the event loop for 20 ms; other tasks run between two."""
SEARCH_TIMEOUT_S: Final = 30.0  # how long a search may wait for its slot and for the index
INDEX_WAIT_S: Final = 3.0
"""How long a search waits for its caller's servers to be indexed: models retry sooner than they wait."""
INDEX_BATCH: Final = 10  # servers in one batch; the next batch is chosen by the searches that wait
SEARCH_HINT: Final = "find tools with `search_tools`, and use their names unchanged"

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, slots=True)
class ToolSearch:
    """Searches tools for callers."""

    index: HybridIndex = field(default_factory=HybridIndex)
    _: KW_ONLY
    timeout_s: float = SEARCH_TIMEOUT_S
    index_wait_s: float = INDEX_WAIT_S
    index_batch: int = INDEX_BATCH
    _indexed: dict[str, ServerTools] = field(default_factory=dict, init=False)
    _serial: int = field(default=-1, init=False)
    _newest: Snapshot | None = field(default=None, init=False)
    """The snapshot that the index has to reach."""
    _urgent: dict[str, None] = field(default_factory=dict, init=False)
    """Servers that searches wait for: they are indexed first."""
    _indexing: asyncio.Task[None] | None = field(default=None, init=False)
    _progress: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set after each batch, then replaced."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT), init=False)
    _waiting: Counter[str] = field(default_factory=Counter, init=False)

    async def search(self, view: View, snapshot: Snapshot, arguments: SearchArguments) -> Members:
        """The matching tools of the view, as a result of `search_tools`. Raises ServerBusy, CallTimedOut."""
        principal_id = view.caller.principal.id
        if self._waiting.total() >= MAX_WAITING or self._waiting[principal_id] >= MAX_WAITING_EACH:
            raise ServerBusy("too many searches are waiting", hint="retry in a moment")
        self._waiting[principal_id] += 1
        try:
            async with asyncio.timeout(self.timeout_s), self._slots:
                await asyncio.sleep(0)  # otherwise concurrent searches block the loop one after another
                return await self._search(view, snapshot, arguments)
        except TimeoutError as exc:
            raise CallTimedOut(
                f"the search did not finish within {self.timeout_s:g} s", hint="retry in a moment"
            ) from exc
        finally:
            self._waiting[principal_id] -= 1
            self._waiting += Counter()  # drops principals without a search

    def prepare(self, snapshot: Snapshot) -> None:
        """Index `snapshot` in the background, because a caller has tools to search in it."""
        if self._newest is None or self._newest.serial < snapshot.serial:
            self._newest = snapshot
        if self._serial < self._newest.serial and not self._is_indexing:
            self._indexing = asyncio.get_running_loop().create_task(self._run_indexing())

    async def settled(self) -> None:
        """Returns once the index has reached the newest snapshot."""
        while self._is_indexing:
            await self._progress.wait()

    async def _wait_for_index(self, snapshot: Snapshot, server_ids: Sequence[str]) -> int:
        """Wait briefly until these servers are indexed. Returns how many are not."""
        self.prepare(snapshot)
        self._urgent |= dict.fromkeys(server_ids)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.index_wait_s):
                while self._count_missing(snapshot, server_ids) and self._is_indexing:
                    await self._progress.wait()
        return self._count_missing(snapshot, server_ids)

    @property
    def _is_indexing(self) -> bool:
        return self._indexing is not None and not self._indexing.done()

    def _count_missing(self, snapshot: Snapshot, server_ids: Sequence[str]) -> int:
        if self._serial >= snapshot.serial:
            return 0
        return sum(not self._has(one, snapshot.servers[one]) for one in server_ids if one in snapshot.servers)

    def _has(self, server_id: str, offer: ServerTools) -> bool:
        known = self._indexed.get(server_id)
        return known is not None and known.tools is offer.tools and known.record == offer.record

    async def _run_indexing(self) -> None:
        """Index until the newest snapshot is reached. After a failure, the next search tries again."""
        try:
            while self._newest is not None and self._serial < self._newest.serial:
                await self._index_snapshot(self._newest)
        except Exception:
            _log.exception("cannot index all tools for search; the next search tries again")
        finally:
            # After this task has ended, so that waiting searches see that it has.
            asyncio.get_running_loop().call_soon(self._signal_progress)

    async def _index_snapshot(self, snapshot: Snapshot) -> None:
        """Index the changed servers, unless a newer snapshot arrives meanwhile."""
        pending = {one: None for one, offer in snapshot.servers.items() if not self._has(one, offer)}
        while pending and self._newest is snapshot:
            urgent = [one for one in self._urgent if one in pending]
            self._urgent = dict.fromkeys(urgent[self.index_batch :])
            batch = [*urgent, *(one for one in pending if one not in self._urgent)][: self.index_batch]
            for server_id in batch:
                pending.pop(server_id, None)
            await asyncio.to_thread(self._put, {one: snapshot.servers[one] for one in batch})
            self._signal_progress()
        if not pending:
            await asyncio.to_thread(self._drop, self._indexed.keys() - snapshot.servers.keys())
            self._serial = snapshot.serial
            self._urgent.clear()

    def _signal_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _put(self, servers: Mapping[str, ServerTools]) -> None:
        """Index servers. Runs in a thread, one at a time."""
        for server_id, offer in servers.items():
            # The same rows as the catalog's, so that both searches find the same tools.
            rows = make_rows(None, (), record=offer.record, offer=offer, at_ms=0) if offer.tools else ()
            self.index.put(server_id, [make_entry(row) for row in rows])
            self._indexed[server_id] = offer

    def _drop(self, server_ids: AbstractSet[str]) -> None:
        """Remove servers from the index. Runs in a thread."""
        for server_id in server_ids:
            self.index.drop(server_id)
            del self._indexed[server_id]

    async def _search(self, view: View, snapshot: Snapshot, arguments: SearchArguments) -> Members:
        has_query = bool(arguments.query.strip())
        missing = await self._wait_for_index(snapshot, view.scope.servers) if has_query else 0
        candidates = view.names_by_key
        if arguments.has_filter:

            def select() -> dict[str, str]:
                tools = view.tools
                named = view.names_by_key.items()
                return {key: name for key, name in named if _matches(tools[name], snapshot, arguments)}

            candidates = await asyncio.to_thread(select)
        names: list[str] = []
        note = ""
        if has_query:
            hits = await self.index.search(arguments.query, limit=arguments.limit, within=candidates)
            names = [candidates[key] for key in hits]
        if not names:
            names = list(candidates.values())[: arguments.limit]
            note = _empty_search_note(arguments.query, shown=len(names), total=len(candidates))
        if missing:
            servers = f"The tools of {missing} of {len(view.scope.servers)} servers are still being indexed"
            note = f"{servers}: search again in a moment to find them, too. {note}".strip()
        tools = [_show(name, view.tools[name]) for name in names]
        result = {"tools": tools, "total": len(candidates)} | ({"note": note} if note else {})
        lines = [f"{one['name']}: {' '.join(one['description'].split())}" for one in tools]
        return _make_result("\n".join([*([note] if note else []), *lines]), msgspec.json.encode(result))


def _matches(route: Route, snapshot: Snapshot, arguments: SearchArguments) -> bool:
    offer, tool = snapshot.servers.get(route.server_id), route.tool
    return (
        offer is not None
        and arguments.server in (None, route.server_id)
        and arguments.category in (None, offer.record.category or UNCATEGORIZED)
        and (arguments.tag is None or arguments.tag in offer.record.tags)
        and arguments.read_only in (None, tool is not None and tool.is_read_only)
    )


def _show(name: str, route: Route) -> dict[str, Any]:
    tool = route.tool
    assert tool is not None  # the index holds only tools
    row, text = fill_row(CatalogRow(package_id=route.server_id, tool_name=route.name), tool), tool.description
    if len(text) > MAX_DESCRIPTION_CHARS:
        text = f"{text[: MAX_DESCRIPTION_CHARS - 1]}…"
    title = {"title": row.title} if row.title else {}
    shown = {"name": name, **title, "description": text, "server": route.server_id}
    read_only = {"readOnly": True} if tool.is_read_only else {}
    return {**shown, **read_only, "tokens": tool.tokens}


def describe_tool(name: str, route: Route) -> Members:
    """One tool in full, as a result of `describe_tool`."""
    assert route.tool is not None  # the index holds only tools
    definition = encode_definition(route.tool, name, revision="modern")
    return _make_result(definition.decode(), definition)


def _empty_search_note(query: str, *, shown: int, total: int) -> str:
    if not total:
        return "No tool matches these filters."
    first = f"The first {shown} of {total} tools by name:" if shown < total else "All tools by name:"
    return f"No tool matches `{query}`; try other words. {first}" if query.strip() else first


def _make_result(text: str, structured: bytes) -> Members:
    content = encode_raw([{"type": "text", "text": text}])
    return {"content": content, "structuredContent": msgspec.Raw(structured)}
