"""Finding out what a server offers: all pages of its list, and when to read it again.

A list is read in the background only; nobody's `tools/list` waits here. One bad definition never costs
the others, and a list that fails never costs the tools of the last good one.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from toolgate.catalog.definitions import check_list
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ListState, ServerTools, ToolDefinition
from toolgate.upstream.limits import PoolLimits
from toolgate.upstream.link import Link, Params, StartFailed
from toolgate.upstream.wire import UNREADABLE

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 2_000
MAX_LIST_BYTES: Final = 16 * 1024 * 1024
"""All definitions of a server together: what 2,000 tools of reasonable size never reach."""
MIN_TTL_S: Final = 30.0
MAX_TTL_S: Final = 300.0
"""Between these a server's own `ttlMs` is taken at its word."""
_MAX_ERROR: Final = 300
_MAX_DOUBLINGS: Final = 16


class ListFailed(Exception):
    """A list that could not be read. `state` is what the server's tools are to be marked with."""

    def __init__(self, message: str, *, state: ListState = "list_failed") -> None:
        super().__init__(message)
        self.state: ListState = state


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What a server answered: good tools, quarantined ones, and why it may not be all."""

    tools: Mapping[str, ToolDefinition]
    quarantined: Mapping[str, str]
    detail: str = ""
    ttl_s: float | None = None


class _Page(msgspec.Struct):
    tools: list[msgspec.Raw]
    next_cursor: Any = msgspec.field(name="nextCursor", default=None)
    ttl_ms: Any = msgspec.field(name="ttlMs", default=None)


_decode_page = msgspec.json.Decoder(_Page).decode


async def list_tools(server_id: str, link: Link, *, timeout_s: float) -> Listed:
    """Read every page and check every definition. Raises ListFailed."""
    if "tools" not in link.hello.capabilities:
        return Listed(tools={}, quarantined={}, detail="the server announces no tools")
    reading = _Reading()
    until_s = asyncio.get_running_loop().time() + timeout_s
    while reading.is_wanting:
        reading.add(await _page(link, reading.params, until_s=until_s))
    # In a thread: thousands of large definitions take longer to check than the loop may stand still.
    tools, quarantined = await asyncio.to_thread(check_list, server_id, reading.raws)
    return Listed(tools=tools, quarantined=quarantined, detail=reading.detail, ttl_s=reading.ttl_s)


class _Reading:
    """The pages read so far, and whether another is wanted."""

    def __init__(self) -> None:
        self.raws: list[bytes] = []
        self.detail = ""
        self.ttl_s: float | None = None
        self.params: Params = {}
        self.is_wanting = True
        self._cursors: set[str] = set()
        self._bytes = 0

    def add(self, page: _Page) -> None:
        # Each page may carry a time to live; the shortest holds for the whole list.
        ttls = [ttl_s for ttl_s in (self.ttl_s, _ttl_s(page.ttl_ms)) if ttl_s is not None]
        self.ttl_s = min(ttls, default=None)
        for raw in page.tools:
            if len(self.raws) == MAX_TOOLS:
                return self._stop(f"only the first {MAX_TOOLS} tools are taken")
            self._bytes += len(raw)
            if self._bytes > MAX_LIST_BYTES:
                return self._stop(f"only the first {MAX_LIST_BYTES} bytes of definitions are taken")
            self.raws.append(bytes(raw))
        return self._turn(page.next_cursor)

    def _turn(self, cursor: object) -> None:
        if cursor is None:
            return self._stop("")
        if not isinstance(cursor, str):
            return self._stop("the list ends at a `nextCursor` that is not text")
        if cursor in self._cursors:
            return self._stop("the list ends where its cursors begin to repeat")
        self._cursors.add(cursor)
        if len(self._cursors) == MAX_PAGES:
            return self._stop(f"only the first {MAX_PAGES} pages are taken")
        self.params = {"cursor": msgspec.Raw(msgspec.json.encode(cursor))}
        return None

    def _stop(self, detail: str) -> None:
        self.is_wanting = False
        self.detail = detail


async def _page(link: Link, params: Params, *, until_s: float) -> _Page:
    timeout_s = until_s - asyncio.get_running_loop().time()
    if timeout_s <= 0:
        raise ListFailed("the pages of `tools/list` took too long together", state="list_timeout")
    try:
        reply = await link.request("tools/list", params, timeout_s=timeout_s)
    except CallTimedOut as exc:
        raise ListFailed(f"`tools/list` was not answered: {exc}", state="list_timeout") from exc
    except ServerUnavailable as exc:
        raise ListFailed(str(exc)) from exc
    if reply.result is None:
        told = (reply.error or b"").decode("utf-8", "replace")[:_MAX_ERROR]
        raise ListFailed(f"the server refused `tools/list`: {told}")
    try:
        return _decode_page(reply.result)
    except UNREADABLE as exc:
        raise ListFailed(f"the answer to `tools/list` is not a list of tools: {exc}") from exc


def _ttl_s(ttl_ms: object) -> float | None:
    """A server's own time to live, within bounds; nonsense counts as 0, none at all as None."""
    if ttl_ms is None:
        return None
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool):
        return MIN_TTL_S
    # Bounded before it is divided: a number of 400 digits has no float.
    return min(max(ttl_ms, MIN_TTL_S * 1000), MAX_TTL_S * 1000) / 1000


class Discovery:
    """One server's tools as last listed, and when to list them next. Decides only; the supervisor acts."""

    def __init__(self, record: ServerRecord, limits: PoolLimits, jitter: Callable[[], float]) -> None:
        self._limits = limits
        self._jitter = jitter
        self._began_s = -math.inf
        self._failures = 0
        self.tools = ServerTools(record=record)
        self.due_s = 0.0
        self.last_list_ms: int | None = None

    def replace_record(self, record: ServerRecord) -> None:
        """The same server under other rules: what it offers stays known."""
        self.tools = replace(self.tools, record=record)

    def ask(self, now_s: float) -> None:
        """List as soon as possible."""
        self.due_s = min(self.due_s, now_s)

    def on_list_changed(self, now_s: float) -> None:
        # The trailing edge: what changes while a list is read, or soon after, is read by the next one.
        self.due_s = min(self.due_s, max(now_s, self._began_s + self._limits.list_gap_s))

    def on_begun(self, now_s: float) -> None:
        self._began_s = now_s
        self.due_s = math.inf

    def on_listed(self, listed: Listed, now_s: float) -> bool:
        """Take the list over. Returns whether the picture changed."""
        self._failures = 0
        self.last_list_ms = round((now_s - self._began_s) * 1000)
        ttl_s = self._limits.list_ttl_s if listed.ttl_s is None else listed.ttl_s
        # Spread, or all servers of a node would be listed in the same moment for ever.
        self.due_s = min(self.due_s, now_s + ttl_s * (1 - 0.2 * self._jitter()))
        return self._show(
            ServerTools(
                record=self.tools.record,
                state="ready",
                tools=listed.tools,
                quarantined=listed.quarantined,
                detail=listed.detail,
            )
        )

    def on_failed(self, failure: ListFailed, now_s: float) -> bool:
        """A list could not be read. Returns whether the picture changed."""
        limits = self._limits
        wait_s = min(limits.list_retry_s * 2**self._failures, limits.list_retry_max_s)
        self._failures = min(self._failures + 1, _MAX_DOUBLINGS)
        self.due_s = now_s + wait_s
        return self._mark(str(failure), failure.state)

    def on_start_failed(self, failure: StartFailed, *, due_s: float) -> bool:
        """There was no link to list by; the next try is at `due_s`. Returns whether the picture changed."""
        self.due_s = due_s
        return self._mark(str(failure), failure.state)

    def rest(self) -> None:
        """No list until the server is connected again."""
        self.due_s = math.inf

    def _mark(self, detail: str, state: ListState) -> bool:
        """Keep the last good list, marked, or say why there is none."""
        if self.tools.state == "ready":
            return self._show(replace(self.tools, is_stale=True, detail=detail))
        return self._show(replace(self.tools, state=state, detail=detail))

    def _show(self, tools: ServerTools) -> bool:
        # The same value stays the same object, so whoever holds it need not compare.
        if tools == self.tools:
            return False
        self.tools = tools
        return True
