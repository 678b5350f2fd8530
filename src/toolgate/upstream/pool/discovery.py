"""What a server offers as last listed, and when to list it again.

Each kind has its own time: one that fails is tried again alone, and costs neither its last good list nor
the others.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from toolgate.catalog.instructions import clean_instructions
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import FEATURES, Era, ListKind, ListState, ServerTools
from toolgate.upstream.connection.contract import Hello, StartFailed
from toolgate.upstream.limits import PoolLimits
from toolgate.upstream.lists import FORMS, ListFailed, Read

_MAX_DOUBLINGS: Final = 16


class _Part:
    """One list of a server."""

    __slots__ = ("began_s", "due_s", "failure", "failures", "read")

    def __init__(self) -> None:
        self.due_s = 0.0
        self.began_s = -math.inf
        self.failures = 0
        self.read: Read | None = None
        """The last good one."""
        self.failure: ListFailed | None = None
        """Of the newest attempt."""

    @property
    def detail(self) -> str:
        if self.failure is not None:
            return str(self.failure)
        return self.read.detail if self.read else ""


class Discovery:
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
        self._parts: dict[ListKind, _Part] = {kind: _Part() for kind in FORMS}
        self._before = before
        self._era: Era | None = None if before is None else before.era
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
            part.read = Read(entries=getattr(known, kind), quarantined=quarantined)
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

    def on_connected(self, hello: Hello, now_s: float) -> None:
        """List everything: it may be another server by now."""
        self._era = hello.era
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

    def on_read(self, kind: ListKind, read: Read, now_s: float) -> None:
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
            detail="; ".join(_told(kind, part.detail) for kind, part in parts.items() if part.detail),
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

    def _ttl_of(self, read: Read) -> float:
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


def _told(kind: ListKind, detail: str) -> str:
    return detail if kind == "tools" else f"{kind}: {detail}"
