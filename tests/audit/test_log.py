"""The audit log: numbered, batched, and never in the way of a call."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from toolgate.audit import log as log_module
from toolgate.audit.events import AuditEvent, CallRecorded
from toolgate.audit.log import AuditLog
from toolgate.audit.sinks import MemorySink

pytestmark = pytest.mark.anyio
CALL = CallRecorded(at_ms=1, door="mcp", principal="local", tool="a", outcome="ok")


class FailingSink(MemorySink):
    """Fails until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = True

    def write(self, events: Sequence[tuple[int, AuditEvent]]) -> None:
        if self.is_broken:
            raise OSError("no space left")
        super().write(events)


async def test_events_are_numbered_and_leave_by_themselves() -> None:
    sink = MemorySink()
    log = AuditLog(sink, first_sequence=5)

    log.record(CALL)
    log.record(CALL)
    async with asyncio.timeout(5):
        while not sink.events:
            await asyncio.sleep(0.01)

    assert list(sink.events) == [(5, CALL), (6, CALL)]


async def test_many_events_leave_at_once() -> None:
    sink = MemorySink()
    log = AuditLog(sink)

    for _ in range(log_module.FLUSH_EVENTS):
        log.record(CALL)

    assert len(sink.events) == log_module.FLUSH_EVENTS
    log.close()


async def test_closing_hands_over_the_rest() -> None:
    sink = MemorySink()
    log = AuditLog(sink)

    log.record(CALL)
    log.close()

    assert list(sink.events) == [(1, CALL)]


async def test_a_failing_sink_loses_nothing_and_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = FailingSink()
    log = AuditLog(sink)

    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            log.record(CALL)
            log.flush()
    sink.is_broken = False
    log.close()

    assert [number for number, _ in sink.events] == [1, 2, 3]
    assert len(caplog.records) == 1


async def test_what_is_held_for_a_failing_sink_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_HELD", 2)
    sink = FailingSink()
    log = AuditLog(sink)

    for _ in range(4):
        log.record(CALL)
    log.flush()
    sink.is_broken = False
    log.close()

    assert [number for number, _ in sink.events] == [3, 4]
