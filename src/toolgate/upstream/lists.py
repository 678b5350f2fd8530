"""Reading what a server offers: all pages of one of its lists, every entry checked alone.

A list is read in the background only; nobody's `tools/list` waits here. Whatever a server answers, a list
is bounded, and one bad entry never costs the others.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.definitions import check_list
from toolgate.catalog.listings import check_prompts, check_resources, check_templates
from toolgate.catalog.members import MAX_LISTED
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.protocol import LIST_MEMBERS, LIST_METHODS
from toolgate.model.raw import UNREADABLE, Members, decode_members
from toolgate.model.tools import ListKind, ListState
from toolgate.upstream.connection.contract import Link, Params
from toolgate.upstream.connection.messages import parse_error

MAX_PAGES: Final = 100
_MIB: Final = 1024 * 1024
MIN_TTL_S: Final = 30.0
MAX_TTL_S: Final = 300.0
"""Between these a server's own `ttlMs` is taken at its word."""
_MAX_ERROR: Final = 300
_METHOD_NOT_FOUND: Final = -32601


class ListFailed(Exception):
    """A list that could not be read. `state` is what the server's tools are to be marked with."""

    def __init__(self, message: str, *, state: ListState = "list_failed") -> None:
        super().__init__(message)
        self.state: ListState = state


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a server answered: good entries by name, quarantined ones, and why it may not be all."""

    entries: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Definitions of tools, or listings."""
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    detail: str = ""
    ttl_s: float | None = None


class ListForm(NamedTuple):
    """How the list of one kind is asked for, and what is made of the answer."""

    kind: ListKind
    feature: str
    """The capability of a server that has such a list."""
    check: Callable[[str, Sequence[bytes]], tuple[Mapping[str, Any], Mapping[str, str]]]
    max_bytes: int

    @property
    def method(self) -> str:
        return LIST_METHODS[self.kind]


FORMS: Final[Mapping[ListKind, ListForm]] = {
    form.kind: form
    for form in (
        ListForm("tools", "tools", check_list, 8 * _MIB),
        ListForm("prompts", "prompts", check_prompts, 2 * _MIB),
        ListForm("resources", "resources", check_resources, 4 * _MIB),
        ListForm("templates", "resources", check_templates, 2 * _MIB),
    )
}

_decode_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def read_list(kind: ListKind, server_id: str, link: Link, *, timeout_s: float) -> Read:
    """Read every page of a list, if the server announces that it has one. Raises ListFailed."""
    form = FORMS[kind]
    if form.feature not in link.hello.capabilities:
        return Read(detail="the server announces no tools" if kind == "tools" else "", ttl_s=math.inf)
    reading = _Reading(form)
    until_s = asyncio.get_running_loop().time() + timeout_s
    while reading.is_wanting:
        reading.add(await _page(form, link, reading.params, until_s=until_s))
    # In a thread: thousands of large definitions take longer to check than the loop may stand still.
    entries, quarantined = await asyncio.to_thread(form.check, server_id, reading.raws)
    return Read(entries=entries, quarantined=quarantined, detail=reading.detail, ttl_s=reading.ttl_s)


class _Page(NamedTuple):
    entries: Sequence[msgspec.Raw] = ()
    next_cursor: object = None
    ttl_ms: object = None


class _Reading:
    """The pages read so far, and whether another is wanted."""

    def __init__(self, form: ListForm) -> None:
        self._form = form
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
        kind, max_bytes = self._form.kind, self._form.max_bytes
        for raw in page.entries:
            if len(self.raws) == MAX_LISTED:
                return self._stop(f"only the first {MAX_LISTED} {kind} are taken")
            self._bytes += len(raw)
            if self._bytes > max_bytes:
                return self._stop(f"only the first {max_bytes} bytes of {kind} are taken")
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


async def _page(form: ListForm, link: Link, params: Params, *, until_s: float) -> _Page:
    method = form.method
    timeout_s = until_s - asyncio.get_running_loop().time()
    if timeout_s <= 0:
        raise ListFailed(f"the pages of `{method}` took too long together", state="list_timeout")
    try:
        reply = await link.request(method, params, timeout_s=timeout_s)
    except CallTimedOut as exc:
        raise ListFailed(f"`{method}` was not answered: {exc}", state="list_timeout") from exc
    except ServerUnavailable as exc:
        raise ListFailed(str(exc)) from exc
    if reply.result is None:
        return _refused(form, reply.error or b"")
    try:
        return _parse_page(form, reply.result)
    except UNREADABLE as exc:
        raise ListFailed(f"the answer to `{method}` is not a list of {form.kind}: {exc}") from exc


def _refused(form: ListForm, error: bytes) -> _Page:
    """What a server means that has no such method: nothing to list, unless it is tools."""
    # Many a server of resources has no templates, and the capability does not tell.
    if form.kind != "tools" and parse_error(error).code == _METHOD_NOT_FOUND:
        return _Page()
    told = error.decode("utf-8", "replace")[:_MAX_ERROR]
    raise ListFailed(f"the server refused `{form.method}`: {told}")


def _parse_page(form: ListForm, result: bytes) -> _Page:
    members = decode_members(result)
    name = LIST_MEMBERS[form.kind]
    if name not in members:
        raise msgspec.ValidationError(f"it has no `{name}`")
    return _Page(_decode_entries(members[name]), _member(members, "nextCursor"), _member(members, "ttlMs"))


def _member(members: Members, name: str) -> object:
    raw = members.get(name)
    return None if raw is None else msgspec.json.decode(raw)


def _ttl_s(ttl_ms: object) -> float | None:
    """A server's own time to live, within bounds; nonsense counts as 0, none at all as None."""
    if ttl_ms is None:
        return None
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool):
        return MIN_TTL_S
    # Bounded before it is divided: a number of 400 digits has no float.
    return min(max(ttl_ms, MIN_TTL_S * 1000), MAX_TTL_S * 1000) / 1000
