"""The observability of a process: audit log, traces, event loop lag, token counts.

The collector in the settings gets the exports. Without one, no library of OpenTelemetry is loaded.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import Final
from urllib.parse import unquote

from toolgate.app.components import call_regularly, wall_clock_ms
from toolgate.audit.log.journal import Journal, follow_log
from toolgate.disk import lock_file
from toolgate.errors import StartRefused
from toolgate.gateway.gateway import Gateway
from toolgate.lazy_modules import load_lazily
from toolgate.model.http import HEADER_NAME
from toolgate.settings import OtlpSettings, Settings
from toolgate.telemetry import Metrics
from toolgate.telemetry.logs import FULL_DISK_HINT, append_trace_ids, describe_full_disk
from toolgate.telemetry.spans import Tracer
from toolgate.upstream.http.fetch import OTLP_LOGS_PATH, OTLP_TRACES_PATH, OtlpCollector

_HINT: Final = "write one `Name: value` per line"
_VALUE: Final = re.compile(r"[\x20-\x7e]+")


def build_collector(otlp: OtlpSettings) -> OtlpCollector:
    """The collector in the settings. Raises StartRefused if its headers are unreadable."""
    return OtlpCollector(otlp.endpoint, load_collector_headers(otlp))


def load_collector_headers(otlp: OtlpSettings) -> Mapping[str, str]:
    """The headers for the collector. No error contains any part of them."""
    if otlp.headers_file is not None:
        try:
            lines = otlp.headers_file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as exc:
            raise StartRefused(f"cannot read `otlp.headers_file` `{otlp.headers_file}`: {exc}") from exc
        return _parse_headers((line.partition(":") for line in lines if line.strip()), "otlp.headers_file")
    if otlp.headers is not None:
        pairs = filter(str.strip, otlp.headers.get_secret_value().split(","))
        parted = ((name, mark, unquote(value)) for name, mark, value in (one.partition("=") for one in pairs))
        return _parse_headers(parted, "otlp.headers")
    return {}


def _parse_headers(parted: Iterable[tuple[str, str, str]], setting: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    stripped = ((name.strip(), mark, value.strip()) for name, mark, value in parted)
    for number, (name, mark, value) in enumerate(stripped, start=1):
        if not mark or not HEADER_NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise StartRefused(f"`{setting}`: header {number} is not a valid HTTP header", hint=_HINT)
        found[name] = value
    return found


AUDIT_FILE: Final = "audit.jsonl"


@contextmanager
def open_journal(settings: Settings) -> Iterator[Journal]:
    """The audit log of one process, in a directory that no other process uses. Raises StartRefused."""
    path, kept = settings.data_dir / AUDIT_FILE, settings.audit
    with ExitStack() as stack:
        # Two processes that number the records of one log would break each other's order.
        stack.callback(os.close, lock_file(path))
        try:
            journal = Journal(path, rotate_bytes=kept.file_mb * 1024**2, keep=kept.files)
        except OSError as exc:
            if full := describe_full_disk(path, exc):
                raise StartRefused(full, hint=FULL_DISK_HINT) from exc
            hint = "let the gateway's user write there, or move the log to another place"
            raise StartRefused(f"cannot use the audit log `{path}`: {exc.strerror}", hint=hint) from exc
        stack.callback(journal.close)
        yield journal


SPAN_INTERVAL_S: Final = 1.0
"""How long spans are collected before they are sent, unless the standard variable sets another time."""


@asynccontextmanager
async def open_traces(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Tracer | None]:
    """A tracer whose spans are sent while the block runs. None: tracing is off. Raises StartRefused."""
    otlp = settings.otlp
    if otlp is None or not otlp.traces:
        yield None
        return
    tracing = load_lazily("toolgate.telemetry.tracing")
    given_ms = environ.get("OTEL_BSP_SCHEDULE_DELAY", "")
    is_given = given_ms.isdecimal() and len(given_ms) < 9
    made: Tracer
    async with tracing.open_tracing(
        partial(build_collector(otlp).send, OTLP_TRACES_PATH),
        tracing.make_resource(settings.process_id),
        sample=otlp.sample,
        every_s=min(int(given_ms), 60_000) / 1_000 if is_given else SPAN_INTERVAL_S,
    ) as made:
        with append_trace_ids(lambda: made.trace_id if made.is_recording else ""):
            yield made


@asynccontextmanager
async def open_exported_journal(settings: Settings, metrics: Metrics) -> AsyncIterator[Journal]:
    """The audit log of this process, with its metrics, and exported if configured. Raises StartRefused."""
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(open_journal(settings))
        log, otlp = journal.log, settings.otlp
        newest = "Number of the newest line of the audit log."
        failing = "1 while this process cannot write the audit log."
        metrics.gauge("toolgate_audit_events_total", newest, lambda: log.last_sequence)
        metrics.gauge("toolgate_audit_failing", failing, lambda: log.is_failing)
        lag = "Lines of the audit log that a follower has not processed."
        metrics.gauge("toolgate_audit_lag", lag, journal.lag, labels=("follower",))
        if otlp is not None and otlp.audit:
            audit = load_lazily("toolgate.audit.otlp")
            tracing = load_lazily("toolgate.telemetry.tracing")
            send = partial(build_collector(otlp).send, OTLP_LOGS_PATH)
            resource = tracing.make_resource(settings.process_id).attributes
            export = audit.AuditExport(
                send, settings.data_dir / "audit.otlp", resource=resource, log=journal.name
            )
            await stack.enter_async_context(follow_log(journal, export.deliver, who="the collector"))
        yield journal


SAMPLE_EVERY_S: Final = 0.05  # 20 wake-ups a second cost little, and callers notice only longer delays
WINDOW_S: Final = 30.0  # two of them are the minute that the gauge covers


@contextmanager
def open_loop_lag(metrics: Metrics, clock_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Measure the longest delay of a timer. The loop's clock is no use: it stops during an iteration."""
    loop = asyncio.get_running_loop()
    recent_s = former_s = 0.0
    due_s = clock_s() + SAMPLE_EVERY_S
    window_ends_s = clock_s() + WINDOW_S
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal recent_s, former_s, due_s, window_ends_s, timer
        now_s = clock_s()
        recent_s = max(recent_s, now_s - due_s)
        if now_s >= window_ends_s:
            former_s, recent_s = recent_s, 0.0
            window_ends_s = now_s + WINDOW_S
        due_s = now_s + SAMPLE_EVERY_S
        timer = loop.call_later(SAMPLE_EVERY_S, look)

    timer = loop.call_later(SAMPLE_EVERY_S, look)
    longest = "Longest delay of the event loop in the last minute."
    metrics.gauge("toolgate_loop_lag_ms", longest, lambda: max(recent_s, former_s) * 1e3)
    try:
        yield
    finally:
        timer.cancel()


AUDIT_TOKENS_EVERY_S: Final = 60.0
"""A crash may lose the counts of this time. The audit event of each call has its tokens, too."""
_SAVED: Final = "Tokens saved by lists, compared with lists of all registered tools."
_TOKEN_METRICS: Final = {
    "toolgate_definition_tokens_total": ("definitions", "Estimated tokens of the definitions in lists."),
    "toolgate_definition_tokens_saved_total": ("saved", _SAVED),
    "toolgate_result_tokens_total": ("results", "Estimated tokens of the results of calls."),
}
"""Metric → the count of each task that it shows."""


def open_token_audit(
    gateway: Gateway, *, every_s: float = AUDIT_TOKENS_EVERY_S
) -> AbstractAsyncContextManager[None]:
    """Audit token counts while the block runs, and the rest at its end."""
    counts = gateway.tokens

    def audit_counts() -> None:
        counts.audit_changes(at_ms=wall_clock_ms(), registered=gateway.snapshot.tasks)

    for metric, (number, help_text) in _TOKEN_METRICS.items():
        gateway.metrics.gauge(metric, help_text, partial(counts.read, number), labels=("task_id",))
    return call_regularly(audit_counts, every_s=every_s, at_end=audit_counts)
