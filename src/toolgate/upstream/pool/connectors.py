"""Opening a link: the right opener, under a deadline, and only so many at once.

One connection beside the pool, to see whether a record works. It must never touch the live link.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from toolgate.model.servers import ServerRecord, Transport, choose_start_timeout
from toolgate.model.tools import Revision, ToolDefinition
from toolgate.upstream.connection.contract import (
    GRACE_S,
    SHARED_CAPABILITIES,
    ConnectionListener,
    Connector,
    PoolLimits,
    ServerConnection,
    StartFailed,
)
from toolgate.upstream.pool.discovery import ListFailed, read_list
from toolgate.upstream.pool.health import StderrTail

ALL_CAPABILITIES: Final = b'{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}'
"""What a link claims that only lists a server, so that it lists all that any session could be offered."""

_REQUIRED_REVISIONS: Final[Mapping[str, Revision]] = {"session": "legacy", "stateless": "modern"}
"""What `protocol` in a record requires; `auto` requires nothing."""


class Connectors:
    """The transports of a node, behind one call."""

    def __init__(self, openers: Mapping[Transport, Connector], limits: PoolLimits) -> None:
        self._openers = openers
        self._limits = limits
        self._starting = asyncio.Semaphore(limits.max_starting)
        self._connecting = asyncio.Semaphore(limits.max_connecting)

    async def open(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_revision: Revision | None,
        capabilities: bytes | None = None,
    ) -> ServerConnection:
        """A negotiated link to the server of `record`. Raises StartFailed.

        `capabilities` are those of the one client behind the link; None: it is no single client's.
        """
        opener = self._openers.get(record.transport)
        if opener is None:
            raise StartFailed(f"this node has no transport `{record.transport}`", fatal=True)
        if capabilities is None:
            capabilities = SHARED_CAPABILITIES if record.sharing == "shared" else ALL_CAPABILITIES
        timeout_s = max(self._limits.start_timeout_s, choose_start_timeout(record, 0.0) + GRACE_S)
        era = _REQUIRED_REVISIONS.get(record.protocol)
        try:
            async with asyncio.timeout(timeout_s):
                link = await opener(
                    record, listener, known_revision=era or known_revision, capabilities=capabilities
                )
        except TimeoutError as exc:
            raise StartFailed(f"no connection within {timeout_s:g} s", state="list_timeout") from exc
        if era is not None and link.server_info.revision != era:
            await link.aclose()
            raise StartFailed(
                f"it speaks `{link.server_info.version}`, and its record says "
                f'`protocol = "{record.protocol}"`',
                fatal=True,
            )
        return link

    @asynccontextmanager
    async def slot(self, transport: Transport) -> AsyncIterator[None]:
        """One of the places for links being opened; given back at the end, or by a start that hangs."""
        slots = self._starting if transport == "stdio" else self._connecting
        await slots.acquire()
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                slots.release()

        timer = asyncio.get_running_loop().call_later(self._limits.start_slot_s, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """What came of connecting to a server once. `error` is empty when all went well."""

    connect_ms: int | None = None
    list_ms: int | None = None
    era: Revision | None = None
    version: str | None = None
    tools: Mapping[str, ToolDefinition] = field(default_factory=lambda: MappingProxyType({}))
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""
    hint: str = ""
    stderr_tail: str = ""


class _TrialListener:
    """Hears a child's last words; nothing else matters to a trial."""

    purpose: Final = "trial"

    def __init__(self) -> None:
        self.stderr = StderrTail()

    def on_notification(self, method: str, params: bytes) -> None:
        """A trial lists once."""

    def on_session_replaced(self) -> bool:
        """A trial makes no calls."""
        return True

    def on_closed(self, reason: str) -> None:
        """The request in flight fails by itself."""

    def on_stderr(self, text: bytes) -> None:
        self.stderr.add(text)

    def on_reading(self) -> None:
        """A trial waits for the end of the start."""


async def try_server(record: ServerRecord, openers: Connectors, limits: PoolLimits) -> TrialReport:
    """Connect, list, close. Whatever goes wrong is in the report."""
    ear = _TrialListener()
    began_ns = time.monotonic_ns()
    try:
        link = await openers.open(record, ear, known_revision=None)
    except StartFailed as exc:
        return TrialReport(error=str(exc), hint=exc.hint, stderr_tail=str(ear.stderr))
    connected_ns = time.monotonic_ns()
    connect_ms = _ms(connected_ns - began_ns)
    era, version = link.server_info.revision, link.server_info.version
    try:
        listed = await read_list("tools", record.server_id, link, timeout_s=limits.list_timeout_s)
    except ListFailed as exc:
        return TrialReport(
            connect_ms=connect_ms, era=era, version=version, error=str(exc), stderr_tail=str(ear.stderr)
        )
    finally:
        list_ms = _ms(time.monotonic_ns() - connected_ns)
        await link.aclose()
    return TrialReport(
        connect_ms=connect_ms,
        list_ms=list_ms,
        era=era,
        version=version,
        tools=listed.entries,
        quarantined=listed.quarantined,
        stderr_tail=str(ear.stderr),
    )


def _ms(duration_ns: int) -> int:
    return duration_ns // 1_000_000
