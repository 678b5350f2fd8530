"""The transports of a node behind one call, with a deadline and a limited number at once; and trial
connections.

A trial connects next to the pool to check whether a record works. It never touches the live connection.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from toolgate.model.servers import ServerRecord, Transport, choose_start_timeout
from toolgate.model.tools import Revision, ToolDefinition
from toolgate.upstream.connection import contract
from toolgate.upstream.pool.discovery import ListFailed, read_list
from toolgate.upstream.pool.health import StderrTail

ALL_CAPABILITIES: Final = b'{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}'
"""The client capabilities of a connection that only lists, so it lists what any session may be offered."""

_REQUIRED_REVISIONS: Final[Mapping[str, Revision]] = {"session": "legacy", "stateless": "modern"}
"""The revision that `protocol` in a record requires; `auto` requires none."""


class Connectors:
    """The connectors of a node, by transport."""

    def __init__(
        self, connectors: Mapping[Transport, contract.Connector], limits: contract.PoolLimits
    ) -> None:
        self._connectors = connectors
        self._limits = limits
        self._starting = asyncio.Semaphore(limits.max_starting)
        self._connecting = asyncio.Semaphore(limits.max_connecting)

    async def open(
        self,
        record: ServerRecord,
        listener: contract.ConnectionListener,
        *,
        known_revision: Revision | None,
        capabilities: bytes | None = None,
    ) -> contract.ServerConnection:
        """A negotiated connection to the server of `record`. Raises StartFailed.

        `capabilities` are those of the one client behind the connection; None: several clients share it.
        """
        connector = self._connectors.get(record.transport)
        if connector is None:
            raise contract.StartFailed(f"this node has no transport `{record.transport}`", fatal=True)
        if capabilities is None:
            capabilities = contract.SHARED_CAPABILITIES if record.sharing == "shared" else ALL_CAPABILITIES
        timeout_s = max(self._limits.start_timeout_s, choose_start_timeout(record, 0.0) + contract.GRACE_S)
        required = _REQUIRED_REVISIONS.get(record.protocol)
        try:
            async with asyncio.timeout(timeout_s):
                connection = await connector(
                    record, listener, known_revision=required or known_revision, capabilities=capabilities
                )
        except TimeoutError as exc:
            raise contract.StartFailed(f"no connection within {timeout_s:g} s", state="list_timeout") from exc
        info = connection.server_info
        if required is not None and info.revision != required:
            await connection.aclose()
            reason = f'it speaks `{info.version}`, and its record requires `protocol = "{record.protocol}"`'
            raise contract.StartFailed(reason, fatal=True)
        return connection

    @asynccontextmanager
    async def slot(self, transport: Transport) -> AsyncIterator[None]:
        """A slot for opening a connection; freed at the end of the block, or early if the start hangs."""
        slots = self._starting if transport == "stdio" else self._connecting
        await slots.acquire()
        with ExitStack() as held:
            held.callback(slots.release)
            timer = asyncio.get_running_loop().call_later(self._limits.start_slot_s, held.close)
            held.callback(timer.cancel)
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """The result of connecting to a server once. `error` is empty on success."""

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
    """Keeps a child's standard error; a trial needs no other event."""

    purpose: contract.Purpose = "trial"

    def __init__(self) -> None:
        self.stderr = StderrTail()

    def on_stderr(self, text: bytes) -> None:
        self.stderr.add(text)

    def on_notification(self, method: str, params: bytes) -> None: ...

    def on_session_replaced(self) -> bool:
        return True

    def on_closed(self, reason: str) -> None: ...

    def on_reading(self) -> None: ...


async def try_server(
    record: ServerRecord, connectors: Connectors, limits: contract.PoolLimits
) -> TrialReport:
    """Connect, list, close. Every failure is in the report."""
    listener = _TrialListener()
    began_ns = time.monotonic_ns()
    try:
        connection = await connectors.open(record, listener, known_revision=None)
    except contract.StartFailed as exc:
        return TrialReport(error=str(exc), hint=exc.hint, stderr_tail=str(listener.stderr))
    connected_ns = time.monotonic_ns()
    connect_ms, info = (connected_ns - began_ns) // 1_000_000, connection.server_info
    report = TrialReport(connect_ms=connect_ms, era=info.revision, version=info.version)
    try:
        listed = await read_list("tools", record.server_id, connection, timeout_s=limits.list_timeout_s)
        list_ms = (time.monotonic_ns() - connected_ns) // 1_000_000
        report = replace(report, list_ms=list_ms, tools=listed.entries, quarantined=listed.quarantined)
    except ListFailed as exc:
        report = replace(report, error=str(exc))
    finally:
        await connection.aclose()
    return replace(report, stderr_tail=str(listener.stderr))
