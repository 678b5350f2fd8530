"""Reads the lists of a server, page by page, and decides when to read them again.

A server is listed in the background only; no caller's `tools/list` waits here. Each kind has its own
schedule: one that fails is retried alone, and costs neither its last good list nor the other kinds. Whatever
a server sends, a list is bounded, and one bad entry never costs the others.
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
from toolgate.model.json_text import UNREADABLE, decode_members
from toolgate.model.protocol import LIST_CHANGED, LIST_MEMBERS, LIST_METHODS
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import FEATURES, ListKind, ListState, Revision, ServerTools
from toolgate.upstream.connection import contract
from toolgate.upstream.connection.messages import METHOD_NOT_FOUND, parse_error

MAX_PAGES: Final = 100  # MAX_DEFINITIONS in pages of 20; ends lists whose cursors never end
# A server's own `ttlMs` applies between these, the bounds of `list_ttl_s` in a record.
MIN_TTL_S: Final = 30.0
MAX_TTL_S: Final = 300.0
_MIB: Final = 1024 * 1024  # a unit
_MAX_ERROR: Final = 300  # characters of an error object. A choice: two sentences for operators
_MAX_DOUBLINGS: Final = 16  # 18 hours after one second, above every maximum; an endless power overflows


class ListFailed(Exception):
    """A list could not be read. The server's tools are marked with `state`."""

    def __init__(self, message: str, *, state: ListState = "list_failed") -> None:
        super().__init__(message)
        self.state: ListState = state


@dataclass(frozen=True, slots=True, kw_only=True)
class ListResult:
    """One list of a server: good entries by name, quarantined ones, and why it may be incomplete."""

    entries: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Definitions of tools, or listings."""
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    detail: str = ""
    ttl_s: float | None = None


class ListForm(NamedTuple):
    """How to read and check the list of one kind."""

    kind: ListKind
    feature: str
    """The capability of a server that has such a list."""
    check: Callable[[str, Sequence[bytes]], tuple[Mapping[str, Any], Mapping[str, str]]]
    max_bytes: int


FORMS: Final[Mapping[ListKind, ListForm]] = {
    form.kind: form
    for form in (
        ListForm("tools", "tools", check_tools, 8 * _MIB),
        ListForm("prompts", "prompts", check_prompts, 2 * _MIB),
        ListForm("resources", "resources", check_resources, 4 * _MIB),
        ListForm("templates", "resources", check_templates, 2 * _MIB),
    )
}

CHANGED_LISTS: Final[Mapping[str, tuple[ListKind, ...]]] = {
    method: tuple(kind for kind, form in FORMS.items() if form.feature == feature)
    for feature, method in LIST_CHANGED.items()
}
"""The lists that a server's notification makes stale."""

_decode_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def read_list(
    kind: ListKind, server_id: str, connection: contract.ServerConnection, *, timeout_s: float
) -> ListResult:
    """Read all pages of a list, if the server announces one. Raises ListFailed."""
    form = FORMS[kind]
    if form.feature not in connection.server_info.capabilities:
        return ListResult(detail="the server announces no tools" if kind == "tools" else "", ttl_s=math.inf)
    reader = _PageReader(form)
    until_s = asyncio.get_running_loop().time() + timeout_s
    while (params := reader.params) is not None:
        reader.add(await _read_page(form, connection, params, until_s=until_s))
    # In a thread: checking thousands of large definitions would block the event loop.
    entries, quarantined = await asyncio.to_thread(form.check, server_id, reader.raws)
    return ListResult(entries=entries, quarantined=quarantined, detail=reader.detail, ttl_s=reader.ttl_s)


class _Page(NamedTuple):
    entries: Sequence[msgspec.Raw] = ()
    next_cursor: object = None
    ttl_ms: object = None


class _PageReader:
    """Collects the pages of one list, within its bounds."""

    def __init__(self, form: ListForm) -> None:
        self._form = form
        self.raws: list[bytes] = []
        self.detail = ""
        self.ttl_s: float | None = None
        self.params: contract.Params | None = {}
        """Those of the request for the next page; None after the last one."""
        self._cursors: set[str] = set()
        self._bytes = 0

    def add(self, page: _Page) -> None:
        # Each page may carry a time to live; the shortest applies to the whole list.
        ttls = [ttl_s for ttl_s in (self.ttl_s, _parse_ttl_s(page.ttl_ms)) if ttl_s is not None]
        self.ttl_s = min(ttls, default=None)
        self.params, self.detail = None, self._take(page)
        if page.next_cursor is not None and not self.detail:
            self.params = {"cursor": msgspec.Raw(msgspec.json.encode(page.next_cursor))}

    def _take(self, page: _Page) -> str:
        """Take the entries; returns why the list ends early with this page, or nothing if it does not."""
        kind, max_bytes, cursor = self._form.kind, self._form.max_bytes, page.next_cursor
        for raw in page.entries:
            if len(self.raws) == MAX_DEFINITIONS:
                return f"only the first {MAX_DEFINITIONS} {kind} are taken"
            self._bytes += len(raw)
            if self._bytes > max_bytes:
                return f"only the first {max_bytes} bytes of {kind} are taken"
            self.raws.append(bytes(raw))
        if cursor is None:
            return ""
        if not isinstance(cursor, str):
            return "the list ends at a `nextCursor` that is not text"
        if cursor in self._cursors:
            return "the list ends where its cursors begin to repeat"
        self._cursors.add(cursor)
        return f"only the first {MAX_PAGES} pages are taken" if len(self._cursors) == MAX_PAGES else ""


async def _read_page(
    form: ListForm, connection: contract.ServerConnection, params: contract.Params, *, until_s: float
) -> _Page:
    method = LIST_METHODS[form.kind]
    timeout_s = until_s - asyncio.get_running_loop().time()
    if timeout_s <= 0:
        raise ListFailed(f"the pages of `{method}` took too long together", state="list_timeout")
    try:
        response = await connection.request(method, params, timeout_s=timeout_s)
    except CallTimedOut as exc:
        raise ListFailed(f"`{method}` timed out: {exc}", state="list_timeout") from exc
    except ServerUnavailable as exc:
        raise ListFailed(str(exc)) from exc
    if response.result is None:
        error = response.error or b""
        # Many servers of resources lack the method for templates, and the capability does not show it.
        if form.kind != "tools" and parse_error(error).code == METHOD_NOT_FOUND:
            return _Page()
        raise ListFailed(f"the server rejected `{method}`: {error.decode('utf-8', 'replace')[:_MAX_ERROR]}")
    try:
        members, name = decode_members(response.result), LIST_MEMBERS[form.kind]
        if name not in members:
            raise msgspec.ValidationError(f"it has no `{name}`")
        more = (msgspec.json.decode(members.get(member, b"null")) for member in ("nextCursor", "ttlMs"))
        return _Page(_decode_entries(members[name]), *more)
    except UNREADABLE as exc:
        raise ListFailed(f"the response to `{method}` is not a list of {form.kind}: {exc}") from exc


def _parse_ttl_s(ttl_ms: object) -> float | None:
    """A server's own time to live, within bounds; an invalid one counts as 0."""
    if ttl_ms is None:
        return None
    if not isinstance(ttl_ms, int) or isinstance(ttl_ms, bool):
        return MIN_TTL_S
    # Bounded before the division: a number of 400 digits has no float.
    return min(max(ttl_ms, MIN_TTL_S * 1000), MAX_TTL_S * 1000) / 1000


@dataclass(slots=True)
class _ListSchedule:
    """One list of a server: the last good result, the newest failure, and when to read it next."""

    due_s: float = 0.0
    began_s: float = -math.inf
    failures: int = 0
    result: ListResult | None = None
    failure: ListFailed | None = None

    @property
    def detail(self) -> str:
        if self.failure is not None:
            return str(self.failure)
        return self.result.detail if self.result else ""


class ServerDiscovery:
    """The lists of one server. Decides only; the supervisor acts."""

    def __init__(
        self,
        record: ServerRecord,
        limits: contract.PoolLimits,
        jitter: Callable[[], float],
        *,
        before: ServerTools | None = None,
        kept: ServerTools | None = None,
    ) -> None:
        """`before` is the offer of an earlier version of the server, shown until the first list.

        `kept` is the server's own offer from an earlier run: nothing is due until it is connected.
        """
        self._limits = limits
        self._jitter = jitter
        self._schedules: dict[ListKind, _ListSchedule] = {kind: _ListSchedule() for kind in FORMS}
        self._before = before
        self.tools = replace(before or ServerTools(record=record), record=record, state="pending")
        """The offer, as last published."""
        self._revision: Revision | None = self.tools.era
        self._features = self.tools.features
        self._instructions = self.tools.instructions
        self.last_list_ms: int | None = None
        """How long the newest good list of tools took."""
        if kept is not None:
            self.restore(kept)

    def restore(self, kept: ServerTools) -> None:
        """Show an offer from an earlier run, and list the server when it is connected."""
        self._revision, self._features, self._instructions = kept.era, kept.features, kept.instructions
        for kind, schedule in self._schedules.items():
            quarantined = kept.quarantined if kind == "tools" else EMPTY
            schedule.result = ListResult(entries=getattr(kept, kind), quarantined=quarantined)
        self.suspend()
        self.publish()

    @property
    def has_tools(self) -> bool:
        tools = self._schedules["tools"]
        return tools.result is not None and tools.failure is None

    @property
    def due_s(self) -> float:
        return min(schedule.due_s for schedule in self._schedules.values())

    def replace_record(self, record: ServerRecord) -> None:
        self.tools = replace(self.tools, record=record)

    def on_connected(self, info: contract.ServerInfo, now_s: float) -> None:
        """List all kinds: it may now be another server."""
        self._revision = info.revision
        self._features = FEATURES & info.capabilities.keys()
        self._instructions = clean_instructions(info.instructions)
        self.request(now_s)

    def request(self, now_s: float) -> None:
        for schedule in self._schedules.values():
            schedule.due_s = min(schedule.due_s, now_s)

    def on_list_changed(self, method: str, now_s: float) -> None:
        for schedule in map(self._schedules.__getitem__, CHANGED_LISTS[method]):
            # The trailing edge: the next list reads what changes during this one, or soon after.
            schedule.due_s = min(schedule.due_s, max(now_s, schedule.began_s + self._limits.list_gap_s))

    def on_used(self) -> None:
        """The server is in use: list what is older than its time to live."""
        for schedule in self._schedules.values():
            schedule.due_s = min(schedule.due_s, schedule.began_s + self._ttl_s)

    def begin(self, now_s: float) -> tuple[ListKind, ...]:
        due = tuple(kind for kind, schedule in self._schedules.items() if schedule.due_s <= now_s)
        for kind in due:
            self._schedules[kind].began_s = now_s
            self._schedules[kind].due_s = math.inf
        return due

    def on_result(self, kind: ListKind, result: ListResult, now_s: float) -> None:
        schedule = self._schedules[kind]
        schedule.failures, schedule.failure = 0, None
        if schedule.result is not None and schedule.result.entries == result.entries:
            # Equal entries stay the same object, so their users can compare by identity.
            result = replace(result, entries=schedule.result.entries)
        schedule.result = result
        ttl_s = self._ttl_s
        # The operator's setting overrides the server's `ttlMs`.
        if result.ttl_s is not None and (not self.tools.record.list_ttl_s or result.ttl_s == math.inf):
            ttl_s = result.ttl_s
        # With jitter, or all servers of a node would be listed at the same moment forever.
        schedule.due_s = min(schedule.due_s, now_s + ttl_s * (1 - 0.2 * self._jitter()))
        if kind == "tools":
            self.last_list_ms = round((now_s - schedule.began_s) * 1000)

    def on_failed(self, kind: ListKind, failure: ListFailed, now_s: float) -> None:
        limits, schedule = self._limits, self._schedules[kind]
        # Tools may have to wait for the failing list of another kind, so that one is retried more rarely.
        most_s = limits.list_retry_max_s if kind == "tools" else self._ttl_s
        schedule.due_s = now_s + min(limits.list_retry_s * 2**schedule.failures, most_s)
        schedule.failures = min(schedule.failures + 1, _MAX_DOUBLINGS)
        schedule.failure = failure

    def on_start_failed(self, failure: contract.StartFailed, *, due_s: float) -> None:
        """No connection could be opened; the next attempt is at `due_s`. `publish` shows it."""
        for schedule in self._schedules.values():
            schedule.due_s = due_s
        self._before = None
        self._schedules["tools"].failure = ListFailed(str(failure), state=failure.state)

    def suspend(self) -> None:
        """List nothing until the server is connected again."""
        for schedule in self._schedules.values():
            schedule.due_s = math.inf

    def publish(self) -> bool:
        """Publish the known lists as the offer; returns whether that changed it."""
        schedules = self._schedules
        results = {kind: one.result for kind, one in schedules.items() if one.result is not None}
        details = ((kind, one.detail) for kind, one in schedules.items() if one.detail)
        state: ListState = "ready"
        if schedules["tools"].result is None:
            failure = schedules["tools"].failure
            state = "pending" if failure is None else failure.state
        tools = ServerTools(
            record=self.tools.record,
            state=state,
            quarantined={name: why for one in results.values() for name, why in one.quarantined.items()},
            features=self._features,
            era=self._revision,
            instructions=self._instructions,
            is_stale=state == "ready" and any(one.failure for one in schedules.values()),
            detail="; ".join(detail if kind == "tools" else f"{kind}: {detail}" for kind, detail in details),
            **{kind: result.entries for kind, result in results.items()},
        )
        if self._before is not None:
            awaited = [kind for kind, one in schedules.items() if one.result is None and one.failure is None]
            tools = replace(tools, **{kind: getattr(self._before, kind) for kind in awaited})
        if tools == self.tools:
            return False
        self.tools = tools
        return True

    @property
    def _ttl_s(self) -> float:
        """How long a list is good if the server names no time."""
        return self.tools.record.list_ttl_s or self._limits.list_ttl_s
