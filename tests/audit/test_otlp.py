"""The audit log at a collector: every event at least once, in order, over restarts and refusals."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.collector import Collector
from toolgate.audit.events import AdminRecorded, CallRecorded, CallStarted
from toolgate.audit.log.journal import Journal, follow_log
from toolgate.audit.otlp import AuditExport
from toolgate.telemetry.spans import ExportRejected

pytestmark = pytest.mark.anyio

TRACE_ID = "a1" * 16
STARTED = CallStarted(at_ms=5, door="mcp", principal="key:ada", tool="t", server_id="s")
CALL = CallRecorded(
    at_ms=7, door="mcp", principal="key:ada", tool="t", server_id="s", outcome="denied", trace_id=TRACE_ID
)
ADMIN = AdminRecorded(at_ms=9, principal="key:root", operation="put", kind="server", record_id="s")


class Taker:
    """A collector behind a line that can be cut, and that may refuse some records."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.status: int | None = 200
        self.refuses = ""

    async def send(self, body: bytes) -> None:
        if self.status != 200:
            raise ExportRejected("it does not", status=self.status)
        if self.refuses and self.refuses.encode() in body:
            raise ExportRejected("it is not to its taste", may_retry=False, status=400)
        self.collector.take("/v1/logs", body, {})

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(record.body.string_value) for record in self.collector.logs]

    @property
    def numbers(self) -> list[int]:
        return [one["seq"] for one in self.bodies]

    async def has(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.collector.logs) < count:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def exported(directory: Path, taker: Taker) -> AsyncIterator[Journal]:
    path = directory / "audit.jsonl"
    with closing(Journal(path)) as journal:
        export = AuditExport(
            taker.send, directory / "audit.otlp", resource={"service.name": "toolgate"}, log=journal.name
        )
        async with follow_log(journal, export.deliver, who="it", retry_s=0.01):
            yield journal


async def test_an_event_is_a_log_record_with_its_line_and_its_trace(tmp_path: Path) -> None:
    taker = Taker()
    async with exported(tmp_path, taker) as journal:
        for event in (STARTED, CALL, ADMIN):
            journal.log.record(event)
    call, admin = taker.collector.logs
    notes = {one.key: one.value.string_value or one.value.int_value for one in call.attributes}

    assert (call.event_name, admin.event_name) == ("toolgate.audit.call", "toolgate.audit.admin")
    assert (call.trace_id.hex(), call.time_unix_nano, call.severity_number) == (TRACE_ID, 7_000_000, 13)
    assert json.loads(call.body.string_value)["tool"] == "t"
    assert notes == {
        "toolgate.audit.seq": 2,
        "toolgate.audit.log.writer": journal.name,
        "toolgate.door": "mcp",
        "toolgate.principal": "key:ada",
        "toolgate.server_id": "s",
        "toolgate.tool": "t",
        "toolgate.outcome": "denied",
    }
    assert taker.collector.resources == [{"service.name": "toolgate"}]


async def test_a_collector_that_was_gone_gets_what_it_missed(tmp_path: Path) -> None:
    taker = Taker()
    async with exported(tmp_path, taker) as journal:
        for status in (None, 401, 503, 200):
            taker.status = status
            journal.log.record(CALL)
            journal.log.flush()
            await asyncio.sleep(0)
        await taker.has(4)
        calls = [one for one in taker.bodies if one["type"] == "call"]

        assert [one["seq"] for one in calls] == sorted({one["seq"] for one in calls})
        assert len(calls) == 4


async def test_a_process_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    taker = Taker()
    for _ in range(3):
        async with exported(tmp_path, taker) as journal:
            journal.log.record(CALL)
    place = tmp_path / "audit.otlp"

    assert len(taker.numbers) == len(set(taker.numbers)) == 3
    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "nonsense", '{"log": "another", "taken": 7}', "[]"])
async def test_a_place_that_says_nothing_of_this_log_is_its_beginning(tmp_path: Path, text: str) -> None:
    (tmp_path / "audit.otlp").write_text(text)
    taker = Taker()
    async with exported(tmp_path, taker) as journal:
        journal.log.record(CALL)

    assert len(taker.numbers) == 1


async def test_one_event_that_is_refused_for_good_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taker = Taker()
    taker.refuses = "key:root"
    async with exported(tmp_path, taker) as journal:
        for event in (CALL, ADMIN, CALL, CALL):
            journal.log.record(event)

    assert [one["type"] for one in taker.bodies] == ["call"] * 3
    assert "the collector rejected an audit event" in caplog.text
