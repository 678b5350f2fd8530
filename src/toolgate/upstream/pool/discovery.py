"""Reading what a server offers: all pages of one of its lists, every entry checked alone.

A list is read in the background only; nobody's `tools/list` waits here. Whatever a server answers, a list
is bounded, and one bad entry never costs the others.

Comparing what a connection of a pinned server lists, before the first call on it.

For connections that are not listed otherwise: those of sessions, and the second one of a server of both
revisions. Behind another connection may be another program than the one whose tools were approved.

What a server offers as last listed, and when to list it again.

Each kind has its own time: one that fails is tried again alone, and costs neither its last good list nor
the others.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from toolgate.catalog.checks import MAX_DEFINITIONS
from toolgate.catalog.definitions import check_tools
from toolgate.catalog.encoding import clean_instructions
from toolgate.catalog.listings import check_prompts, check_resources, check_templates
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.json_text import UNREADABLE, Members, decode_members
from toolgate.model.protocol import LIST_MEMBERS, LIST_METHODS
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.snapshot import Pin
from toolgate.model.tools import FEATURES, ListKind, ListState, Revision, ServerTools
from toolgate.upstream.connection.contract import (
    Params,
    PoolLimits,
    ServerConnection,
    ServerInfo,
    StartFailed,
)
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
class ListResult:
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
        ListForm("tools", "tools", check_tools, 8 * _MIB),
        ListForm("prompts", "prompts", check_prompts, 2 * _MIB),
        ListForm("resources", "resources", check_resources, 4 * _MIB),
        ListForm("templates", "resources", check_templates, 2 * _MIB),
    )
}

_decode_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def read_list(
    kind: ListKind, server_id: str, link: ServerConnection, *, timeout_s: float
) -> ListResult:
    """Read every page of a list, if the server announces that it has one. Raises ListFailed."""
    form = FORMS[kind]
    if form.feature not in link.server_info.capabilities:
        return ListResult(detail="the server announces no tools" if kind == "tools" else "", ttl_s=math.inf)
    reading = _PageReader(form)
    until_s = asyncio.get_running_loop().time() + timeout_s
    while reading.is_wanting:
        reading.add(await _page(form, link, reading.params, until_s=until_s))
    # In a thread: thousands of large definitions take longer to check than the loop may stand still.
    entries, quarantined = await asyncio.to_thread(form.check, server_id, reading.raws)
    return ListResult(entries=entries, quarantined=quarantined, detail=reading.detail, ttl_s=reading.ttl_s)


class _Page(NamedTuple):
    entries: Sequence[msgspec.Raw] = ()
    next_cursor: object = None
    ttl_ms: object = None


class _PageReader:
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
            if len(self.raws) == MAX_DEFINITIONS:
                return self._stop(f"only the first {MAX_DEFINITIONS} {kind} are taken")
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


async def _page(form: ListForm, link: ServerConnection, params: Params, *, until_s: float) -> _Page:
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
        return _interpret_refusal(form, reply.error or b"")
    try:
        return _parse_page(form, reply.result)
    except UNREADABLE as exc:
        raise ListFailed(f"the answer to `{method}` is not a list of {form.kind}: {exc}") from exc


def _interpret_refusal(form: ListForm, error: bytes) -> _Page:
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


class PinCheck:
    """Whether the tools that a link lists are those that were approved: looked at once for each session."""

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id
        self._vetted: ServerConnection | None = None
        self._sessions = 0
        self._turn = asyncio.Lock()

    def renew(self) -> None:
        """The link has another session: what was seen holds no more."""
        self._vetted = None
        self._sessions += 1

    async def check(self, link: ServerConnection, pin: Pin, until_s: float) -> bool:
        """Returns once `link` lists what `pin` approves: whether that took time. Raises ServerUnavailable."""
        if self._vetted is link:
            return False
        try:
            async with asyncio.timeout_at(until_s), self._turn:
                while self._vetted is not link:
                    session = self._sessions
                    self._compare(await self._read(link, until_s), pin)
                    if session == self._sessions:
                        self._vetted = link
        except TimeoutError as exc:
            raise CallTimedOut(
                f"server `{self._server_id}` was not listed within the call's time; nothing was sent"
            ) from exc
        return True

    async def _read(self, link: ServerConnection, until_s: float) -> ListResult:
        timeout_s = until_s - asyncio.get_running_loop().time()
        try:
            return await read_list("tools", self._server_id, link, timeout_s=timeout_s)
        except ListFailed as exc:
            raise ServerUnavailable(
                f"server `{self._server_id}` offers only what was approved, and could not be listed "
                "since it was connected; nothing was sent"
            ) from exc

    def _compare(self, read: ListResult, pin: Pin) -> None:
        """Tools that are known to have changed are not offered anyway, and keep no call from the others."""
        listed = {name: tool.digest for name, tool in read.entries.items() if name not in pin.changed}
        if any(listed.get(name, digest) != digest for name, digest in pin.tools.items()):
            raise ServerUnavailable(
                f"server `{self._server_id}` lists other tools on this connection than were approved; "
                "nothing was sent"
            )


_MAX_DOUBLINGS: Final = 16


class _ListSchedule:
    """One list of a server."""

    __slots__ = ("began_s", "due_s", "failure", "failures", "read")

    def __init__(self) -> None:
        self.due_s = 0.0
        self.began_s = -math.inf
        self.failures = 0
        self.read: ListResult | None = None
        """The last good one."""
        self.failure: ListFailed | None = None
        """Of the newest attempt."""

    @property
    def detail(self) -> str:
        if self.failure is not None:
            return str(self.failure)
        return self.read.detail if self.read else ""


class ServerDiscovery:
    """Decides only; the supervisor acts."""

    def __init__(
        self,
        record: ServerRecord,
        limits: PoolLimits,
        jitter: Callable[[], float],
        *,
        before: ServerTools | None = None,
        known: ServerTools | None = None,
    ) -> None:
        """`before` is what an earlier version of the server offered: shown until it is listed itself.

        `known` is what the server itself offered in an earlier run: nothing is due until it is connected.
        """
        self._limits = limits
        self._jitter = jitter
        self._parts: dict[ListKind, _ListSchedule] = {kind: _ListSchedule() for kind in FORMS}
        self._before = before
        self._era: Revision | None = None if before is None else before.era
        self._features = frozenset[str]() if before is None else before.features
        self._instructions = "" if before is None else before.instructions
        self.tools = (
            ServerTools(record=record) if before is None else replace(before, record=record, state="pending")
        )
        """The picture, as last shown."""
        self.last_list_ms: int | None = None
        """How long the newest good list of tools took."""
        if known is not None:
            self.recall(known)

    def recall(self, known: ServerTools) -> None:
        """Show what is known of the server, and list it when it is connected."""
        self._era, self._features, self._instructions = known.era, known.features, known.instructions
        for kind, part in self._parts.items():
            quarantined = known.quarantined if kind == "tools" else EMPTY
            part.read = ListResult(entries=getattr(known, kind), quarantined=quarantined)
        self.rest()
        self.show()

    @property
    def has_tools(self) -> bool:
        """Whether the newest list of tools was good."""
        tools = self._parts["tools"]
        return tools.read is not None and tools.failure is None

    @property
    def due_s(self) -> float:
        """When to list something next."""
        return min(part.due_s for part in self._parts.values())

    def replace_record(self, record: ServerRecord) -> None:
        """The same server under other rules: what it offers stays known."""
        self.tools = replace(self.tools, record=record)

    def on_connected(self, hello: ServerInfo, now_s: float) -> None:
        """List everything: it may be another server by now."""
        self._era = hello.revision
        self._features = FEATURES & hello.capabilities.keys()
        self._instructions = clean_instructions(hello.instructions)
        self.ask(now_s)

    def ask(self, now_s: float) -> None:
        """List all kinds as soon as possible."""
        for part in self._parts.values():
            part.due_s = min(part.due_s, now_s)

    def on_list_changed(self, kind: ListKind, now_s: float) -> None:
        part = self._parts[kind]
        # The trailing edge: what changes while a list is read, or soon after, is read by the next one.
        part.due_s = min(part.due_s, max(now_s, part.began_s + self._limits.list_gap_s))

    def on_used(self) -> None:
        """Somebody is interested: list what was not listed for as long as a list holds."""
        for part in self._parts.values():
            part.due_s = min(part.due_s, part.began_s + self._ttl_s)

    def begin(self, now_s: float) -> tuple[ListKind, ...]:
        """The kinds that are to be listed now."""
        due = tuple(kind for kind, part in self._parts.items() if part.due_s <= now_s)
        for kind in due:
            self._parts[kind].began_s = now_s
            self._parts[kind].due_s = math.inf
        return due

    def on_read(self, kind: ListKind, read: ListResult, now_s: float) -> None:
        """Take a list over. `show` makes it seen."""
        part = self._parts[kind]
        part.failures, part.failure = 0, None
        if part.read is not None and part.read.entries == read.entries:
            # The same entries stay the same object, so whoever holds them need not compare.
            read = replace(read, entries=part.read.entries)
        part.read = read
        ttl_s = self._ttl_of(read)
        # Spread, or all servers of a node would be listed in the same moment for ever.
        part.due_s = min(part.due_s, now_s + ttl_s * (1 - 0.2 * self._jitter()))
        if kind == "tools":
            self.last_list_ms = round((now_s - part.began_s) * 1000)

    def on_failed(self, kind: ListKind, failure: ListFailed, now_s: float) -> None:
        """A list could not be read. `show` makes it seen."""
        limits, part = self._limits, self._parts[kind]
        # While something besides tools is tried in vain, the tools may have to wait for it.
        most_s = limits.list_retry_max_s if kind == "tools" else self._ttl_s
        part.due_s = now_s + min(limits.list_retry_s * 2**part.failures, most_s)
        part.failures = min(part.failures + 1, _MAX_DOUBLINGS)
        part.failure = failure

    def on_start_failed(self, failure: StartFailed, *, due_s: float) -> None:
        """There was no link to list by; the next try is at `due_s`. `show` makes it seen."""
        for part in self._parts.values():
            part.due_s = due_s
        self._before = None
        self._parts["tools"].failure = ListFailed(str(failure), state=failure.state)

    def rest(self) -> None:
        """No list until the server is connected again."""
        for part in self._parts.values():
            part.due_s = math.inf

    def show(self) -> bool:
        """Make what is known the picture. Returns whether that changed it."""
        parts = self._parts
        reads = {kind: part.read for kind, part in parts.items() if part.read is not None}
        tools = ServerTools(
            record=self.tools.record,
            state=self._state,
            quarantined={name: why for read in reads.values() for name, why in read.quarantined.items()},
            features=self._features,
            era=self._era,
            instructions=self._instructions,
            is_stale=self._state == "ready" and any(part.failure for part in parts.values()),
            detail="; ".join(_prefix_kind(kind, part.detail) for kind, part in parts.items() if part.detail),
            **{kind: read.entries for kind, read in reads.items()},
        )
        if self._before is not None:
            awaited = [kind for kind, part in parts.items() if part.read is None and part.failure is None]
            tools = replace(tools, **{kind: getattr(self._before, kind) for kind in awaited})
        if tools == self.tools:
            return False
        self.tools = tools
        return True

    @property
    def _ttl_s(self) -> float:
        """How long a list holds whose server names no time."""
        return self.tools.record.list_ttl_s or self._limits.list_ttl_s

    def _ttl_of(self, read: ListResult) -> float:
        """How long `read` holds. What the operator set wins over the server's `ttlMs`."""
        if read.ttl_s is None or (self.tools.record.list_ttl_s and read.ttl_s != math.inf):
            return self._ttl_s
        return read.ttl_s

    @property
    def _state(self) -> ListState:
        tools = self._parts["tools"]
        if tools.read is not None:
            return "ready"
        return "pending" if tools.failure is None else tools.failure.state


def _prefix_kind(kind: ListKind, detail: str) -> str:
    return detail if kind == "tools" else f"{kind}: {detail}"
