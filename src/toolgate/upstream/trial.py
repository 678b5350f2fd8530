"""One connection beside the pool, to see whether a record works. It must never touch the live link."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Era, ToolDefinition
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.limits import PoolLimits
from toolgate.upstream.lists import ListFailed, read_list
from toolgate.upstream.pool.connectors import Openers
from toolgate.upstream.pool.health import StderrTail


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """What came of connecting to a server once. `error` is empty when all went well."""

    connect_ms: int | None = None
    list_ms: int | None = None
    era: Era | None = None
    version: str | None = None
    tools: Mapping[str, ToolDefinition] = field(default_factory=lambda: MappingProxyType({}))
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""
    hint: str = ""
    stderr_tail: str = ""


class _Ear:
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


async def try_server(record: ServerRecord, openers: Openers, limits: PoolLimits) -> TrialReport:
    """Connect, list, close. Whatever goes wrong is in the report."""
    ear = _Ear()
    began_ns = time.monotonic_ns()
    try:
        link = await openers.open(record, ear, known_era=None)
    except StartFailed as exc:
        return TrialReport(error=str(exc), hint=exc.hint, stderr_tail=str(ear.stderr))
    connected_ns = time.monotonic_ns()
    connect_ms = _ms(connected_ns - began_ns)
    era, version = link.hello.era, link.hello.version
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
