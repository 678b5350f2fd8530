"""The contract between the pool and its transports: one live connection to one server.

A link is made by an opener, already negotiated (`hello`), and ends once, for good: the pool opens a
new one. A link never retries and never sends a request twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tools import Era, ListState

Params = dict[str, msgspec.Raw]
"""The members of a request's `params`, each still the JSON it came as."""


MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""The longest stdio line, SSE event or HTTP body taken from a server."""
START_TIMEOUT_S: Final = 10.0
"""From spawn or connect to a finished negotiation."""
PROBE_TIMEOUT_S: Final = 2.0
"""How long a silent server is given to answer `server/discover` before it counts as legacy."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered: its result or its JSON-RPC error object, raw. Exactly one is set."""

    result: bytes | None = None
    error: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What negotiation found out."""

    era: Era
    version: str
    capabilities: Mapping[str, msgspec.Raw] = field(default_factory=lambda: MappingProxyType({}))
    server_info: bytes = b"{}"
    instructions: str = ""

    @property
    def has_list_changed(self) -> bool:
        """Whether the server says it will tell when its tools change."""
        raw = self.capabilities.get("tools")
        tools = msgspec.json.decode(raw) if raw else {}
        return isinstance(tools, dict) and tools.get("listChanged") is True


class StartFailed(Exception):
    """A link could not be opened. `state` is what the server's tools are to be marked with."""

    def __init__(
        self,
        message: str,
        *,
        state: ListState = "list_failed",
        fatal: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.state: ListState = state
        self.fatal = fatal
        """Trying again without a change to the record is pointless (no such command, missing variable)."""
        self.retry_after_s = retry_after_s
        """How long the server asks to be left alone."""


class LinkListener(Protocol):
    """What a link tells its owner, always from the event loop, never blocking."""

    def on_notification(self, method: str, params: bytes) -> None:
        """A notification that belongs to no request of ours (`list_changed` and the like)."""

    def on_closed(self, reason: str) -> None:
        """The link ended without being asked to. Called once, after all its requests have failed."""

    def on_stderr(self, text: bytes) -> None:
        """Something the child wrote to its standard error."""


class Link(Protocol):
    """A live, negotiated connection."""

    hello: Hello
    pid: int | None

    async def request(
        self, method: str, params: Params, *, timeout_s: float, headers: Mapping[str, str] = EMPTY
    ) -> Reply:
        """Ask, once. `headers` are extra HTTP headers (`Mcp-Name`, `Mcp-Param-…`); stdio ignores them.

        The link puts the `_meta` envelope of its era into `params` (see `wire.params_for`).
        Raises CallTimedOut after `timeout_s` and ServerUnavailable when the connection dies; both,
        and a cancellation of the caller, tell the server to stop (`notifications/cancelled`, or by
        closing the stream).
        """

    async def aclose(self) -> None:
        """End it: for a child, close stdin, wait 2 s, TERM, wait 2 s, KILL. Idempotent."""


class Opener(Protocol):
    """Connects to the server of a record and negotiates. One per transport."""

    async def __call__(self, record: ServerRecord, listener: LinkListener, *, known_era: Era | None) -> Link:
        """Raises StartFailed. `known_era` is what an earlier link found: try it first, then probe."""
