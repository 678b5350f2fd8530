"""The audit log: numbered, batched, and never in the way of a call."""

import asyncio
import logging

import msgspec
import pytest

from tests.memory_audit import MemorySink
from toolgate.audit.events import CallEnded, CallRecorded, CallStarted
from toolgate.audit.log.files import EncodedLines, encode_call_fields, encode_line
from toolgate.audit.log.writer import FLUSH_BYTES, AuditLog
from toolgate.errors import ServerUnavailable

pytestmark = pytest.mark.anyio
CALL = CallRecorded(at_ms=1, door="mcp", principal="local", tool="a", outcome="ok")
START = CallStarted(at_ms=1, door="mcp", principal="local", tool="a", server_id="git")
BEGUN = START.at_ms, encode_call_fields(START)


class FailingSink(MemorySink):
    """Fails until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken = True

    def write(self, lines: EncodedLines) -> None:
        if self.is_broken:
            raise OSError("no space left")
        super().write(lines)


async def test_events_are_numbered_and_leave_by_themselves() -> None:
    sink = MemorySink()
    log = AuditLog(sink, first_sequence=5)

    log.record(CALL)
    log.record(CALL)
    async with asyncio.timeout(60):
        while not sink.events:
            await asyncio.sleep(0.01)

    assert list(sink.events) == [(5, CALL), (6, CALL)]


async def test_many_events_leave_at_once() -> None:
    sink = MemorySink()
    log = AuditLog(sink)

    for _ in range(10_000):
        log.record(CALL)
        if sink.events:
            break

    sizes = [len(encode_line(*line)) for line in sink.events]
    assert sum(sizes[:-1]) < FLUSH_BYTES <= sum(sizes)
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
    assert caplog.messages == [
        "cannot write the audit log, holding events: no space left",
        "the audit log is writable again; events lost meanwhile: 0",
    ]


async def test_a_failing_sink_is_tried_again_by_itself() -> None:
    sink = FailingSink()
    log = AuditLog(sink, retry_s=0.01)
    log.record(CALL)
    log.flush()
    sink.is_broken = False

    async with asyncio.timeout(60):
        while not sink.events:
            await asyncio.sleep(0.01)
    log.close()


async def test_sto_10_no_call_begins_when_too_much_is_held_and_what_has_begun_is_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is to run of which nothing is known. Room is kept for what comes of those that have begun."""
    large = msgspec.structs.replace(CALL, tool="x" * 16_000)
    sink = FailingSink()
    log = AuditLog(sink)
    begun = [log.begin(*BEGUN), log.begin(*BEGUN)]
    while not log.is_full:
        log.record(large)
    for _ in range(3):
        with pytest.raises(ServerUnavailable, match="so no call is sent"):
            log.begin(*BEGUN)
    for number in begun:
        log.end(CallEnded(at_ms=2, outcome="ok", start=number))
    while log.record(large):
        pass
    recorded = log.record(large)
    sink.is_broken = False
    log.flush()
    again = log.begin(*BEGUN)
    log.close()

    assert (begun, recorded) == ([1, 2], 0)
    assert [number for number, _ in sink.events] == [*range(1, again + 1)]
    gap = sink.events[-2][1]
    assert isinstance(gap, CallRecorded)
    assert (gap.outcome, gap.code, gap.layer) == ("denied", "mcp_unavailable", "audit")
    assert gap.rule == "3 calls were not sent, 2 events are lost"
    assert gap.duration_us == (gap.at_ms - BEGUN[0]) * 1_000
    assert caplog.messages[1:] == [
        "no calls are sent from now on: there is no room for their audit records",
        "audit events are lost from now on: the write-ahead file is full",
        "the audit log is writable again; events lost meanwhile: 2",
    ]
