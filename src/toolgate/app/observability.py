"""What goes to a collector, where the settings name one. Elsewhere no library of OpenTelemetry is loaded."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from importlib import import_module
from typing import Final

from toolgate.app.collector import collector_of
from toolgate.app.components import node_id_of
from toolgate.app.journals import AUDIT_FILE, open_journal
from toolgate.audit.journal import Journal
from toolgate.audit.log.follower import followed
from toolgate.audit.tail import LogTail
from toolgate.settings import Settings
from toolgate.telemetry.logs import mark_lines
from toolgate.telemetry.spans import Tracing

EVERY_S: Final = 1.0
"""How long spans are gathered before they are sent."""
PLACE_FILE: Final = "audit.otlp"
"""How far the collector has the audit log."""


@asynccontextmanager
async def open_traces(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Tracing | None]:
    """What makes spans, and sends them while the block runs. None: nothing is traced. Raises StartRefused."""
    otlp = settings.otlp
    if otlp is None or not otlp.traces:
        yield None
        return
    # Only where it is used: the library takes as long to load as we do.
    tracing = import_module("toolgate.telemetry.tracing")
    async with AsyncExitStack() as stack:
        made: Tracing = await stack.enter_async_context(
            tracing.open_tracing(
                collector_of(otlp).send_traces,
                tracing.resource_of(node_id_of(settings)),
                sample=otlp.sample,
                every_s=_every_s(environ),
            )
        )
        stack.enter_context(mark_lines(lambda: made.trace_id if made.is_recording else ""))
        yield made


def _every_s(environ: Mapping[str, str]) -> float:
    """How long spans are gathered, by the standard variable."""
    given_ms = environ.get("OTEL_BSP_SCHEDULE_DELAY", "")
    return min(int(given_ms), 60_000) / 1_000 if given_ms.isdecimal() and len(given_ms) < 9 else EVERY_S


@asynccontextmanager
async def open_exported_journal(settings: Settings) -> AsyncIterator[Journal]:
    """The audit log of this process, which the collector is handed where it is to be. Raises StartRefused."""
    with open_journal(settings) as journal:
        async with _exported(settings, journal):
            yield journal


@asynccontextmanager
async def _exported(settings: Settings, journal: Journal) -> AsyncIterator[None]:
    otlp = settings.otlp
    if otlp is None or not otlp.audit:
        yield
        return
    audit = import_module("toolgate.audit.otlp")
    tracing = import_module("toolgate.telemetry.tracing")
    export = audit.AuditExport(
        collector_of(otlp).send_logs,
        audit.Place(settings.data_dir / PLACE_FILE, log=journal.name),
        resource=tracing.resource_of(node_id_of(settings)).attributes,
        log=journal.name,
    )
    with closing(LogTail(settings.data_dir / AUDIT_FILE)) as tail:
        async with followed(journal, export.deliver, who="the collector", tail=tail):
            yield
