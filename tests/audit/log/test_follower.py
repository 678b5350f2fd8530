"""A follower gets all of a log, in order, however often it fails; and the log never waits for it."""

import asyncio
import logging
from functools import partial
from pathlib import Path

import pytest

from toolgate.audit.events import CallRecorded
from toolgate.audit.log import files
from toolgate.audit.log import journal as journal_module
from toolgate.audit.log.files import LogChunk, parse_line, rotated_path
from toolgate.audit.log.journal import Journal
from toolgate.errors import StorageUnavailable

pytestmark = pytest.mark.anyio

# A follower that fails is tried again soon.
follow_log = partial(journal_module.follow_log, retry_s=0.01)
CALL = CallRecorded(at_ms=1, door="mcp", principal="local", tool="a", outcome="ok")


class Taker:
    """Takes what it is given, each once; it can be gone, and can lose what it had."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.is_gone = False
        self.asked = asyncio.Event()

    async def deliver(self, read: LogChunk) -> int:
        self.asked.set()
        if self.is_gone:
            raise StorageUnavailable("gone")
        if not read.lines or self.taken >= read.after:
            self.numbers += [
                line.seq for raw in read.lines if (line := parse_line(raw)) and line.seq > self.taken
            ]
        return self.taken

    @property
    def taken(self) -> int:
        return self.numbers[-1] if self.numbers else 0

    async def has(self, number: int) -> None:
        async with asyncio.timeout(60):
            while self.taken < number:
                await asyncio.sleep(0.005)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def record(journal: Journal, count: int) -> None:
    for _ in range(count):
        journal.log.record(CALL)
    journal.log.flush()


async def test_what_is_written_is_delivered_in_order(path: Path) -> None:
    journal, taker = Journal(path), Taker()
    async with follow_log(journal, taker.deliver, who="it"):
        record(journal, 3)
        await taker.has(3)
        record(journal, 2)
        await taker.has(5)
    journal.close()

    assert taker.numbers == [1, 2, 3, 4, 5]


async def test_where_many_came_at_once_more_are_waited_for_and_the_last_words_are_not(
    path: Path,
) -> None:
    journal, taker = Journal(path), Taker()
    async with follow_log(journal, taker.deliver, who="taker", gather_s=3_600.0):
        for _ in range(journal_module.MANY_LINES):
            journal.log.record(CALL)
        journal.log.flush()
        await taker.has(journal_module.MANY_LINES)
        taker.asked.clear()
        journal.log.record(CALL)
        journal.log.flush()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await taker.asked.wait()
    journal.close()

    assert taker.numbers == [*range(1, journal_module.MANY_LINES + 2)]


async def test_the_last_words_of_a_process_are_delivered(path: Path) -> None:
    journal, taker = Journal(path), Taker()
    async with follow_log(journal, taker.deliver, who="it"):
        journal.log.record(CALL)
    journal.close()

    assert taker.numbers == [1]


async def test_what_was_written_before_a_crash_is_delivered_after_it(path: Path) -> None:
    """By sequence: what was delivered is not delivered again."""
    journal, taker = Journal(path), Taker()
    record(journal, 5)
    journal.close()
    taker.numbers = [1, 2, 3]
    again = Journal(path)
    record(again, 1)
    async with follow_log(again, taker.deliver, who="it"):
        await taker.has(6)
    again.close()

    assert (again.name, taker.numbers) == (journal.name, [1, 2, 3, 4, 5, 6])


async def test_who_is_gone_for_a_while_gets_everything_and_is_reported_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, taker = Journal(path), Taker()
    with caplog.at_level(logging.WARNING):
        async with follow_log(journal, taker.deliver, who="the taker"):
            record(journal, 1)
            await taker.has(1)
            taker.is_gone = True
            for _ in range(3):
                record(journal, 2)
                taker.asked.clear()
                async with asyncio.timeout(60):
                    await taker.asked.wait()
            taker.is_gone = False
            await taker.has(7)
    journal.close()

    assert taker.numbers == [*range(1, 8)]
    assert [one.message for one in caplog.records] == [
        "the taker does not accept audit events, retrying: gone"
    ]


async def test_who_lost_what_it_had_gets_it_again(path: Path) -> None:
    """As a database that was put back."""
    journal, taker = Journal(path), Taker()
    async with follow_log(journal, taker.deliver, who="it"):
        record(journal, 4)
        await taker.has(4)
        taker.numbers = [1]
        record(journal, 1)
        await taker.has(5)
    journal.close()

    assert taker.numbers == [1, 2, 3, 4, 5]


async def test_who_takes_nothing_is_not_asked_without_end(path: Path) -> None:
    journal, asked = Journal(path), 0

    async def deliver(_read: LogChunk) -> int:
        nonlocal asked
        asked += 1
        return 0

    async with follow_log(journal, deliver, who="it"):
        record(journal, 1)
        async with asyncio.timeout(60):
            while asked < 4:
                await asyncio.sleep(0.005)
    journal.close()

    assert asked < 20


async def test_starts_and_seals_are_passed_over_and_nothing_is_missing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(
        b'{"seq":1,"type":"start","at_ms":1}\n{"seq":2,"type":"seal","prev":"","sha256":"","of":1}\n'
        b'{"seq":3,"type":"credential","at_ms":1,"peer":"a","code":"\\"type\\":\\"seal\\""}\n'
    )
    journal, chunks = Journal(path), asyncio.Queue[LogChunk]()

    async def deliver(read: LogChunk) -> int:
        if read.upto:
            chunks.put_nowait(read)
        return read.upto

    async with follow_log(journal, deliver, who="it"), asyncio.timeout(60):
        first = await chunks.get()
    journal.close()

    assert (first.after, first.upto, len(first.lines)) == (0, 3, 1)
    assert caplog.messages == []


async def test_a_gap_in_the_log_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal, taker = Journal(path), Taker()
    record(journal, 2)
    journal.close()
    path.unlink()
    path.write_bytes(b'{"seq":9,"type":"credential","at_ms":1,"peer":"a","code":"b"}\n')
    taker.numbers = [1, 2]
    journal = Journal(path)
    async with follow_log(journal, taker.deliver, who="the taker"):
        await taker.has(9)
    journal.close()

    assert taker.numbers == [1, 2, 9]
    assert "the taker lacks 6 audit events: the log was rotated before they were read" in caplog.messages


async def test_numbers_that_the_file_lost_are_not_given_again(path: Path) -> None:
    """The machine crashed: a follower has events that are no longer on the disk."""
    journal, taker = Journal(path), Taker()
    record(journal, 2)
    taker.numbers = [1, 2, 3, 4]
    async with follow_log(journal, taker.deliver, who="it"):
        async with asyncio.timeout(60):
            await taker.asked.wait()
        record(journal, 1)
        await taker.has(5)
    journal.close()

    assert taker.numbers == [1, 2, 3, 4, 5]


async def test_a_new_log_has_another_name(path: Path) -> None:
    journal = Journal(path)
    record(journal, 1)
    journal.close()
    path.unlink()
    renewed = Journal(path)
    record(renewed, 1)
    renewed.close()

    assert renewed.name != journal.name
    assert path.with_name("audit.jsonl.id").stat().st_mode & 0o777 == 0o600


async def test_a_log_goes_on_after_a_rotation_that_was_cut_short(path: Path) -> None:
    journal = Journal(path)
    record(journal, 3)
    journal.close()
    path.replace(rotated_path(path))

    again = Journal(path)
    record(again, 1)
    again.close()

    assert again.name == journal.name
    assert path.read_bytes().startswith(b'{"seq":4,')


async def test_what_cannot_be_read_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, taker = Journal(path), Taker()
    failures = iter([OSError("input/output error"), RuntimeError("a bug")])
    read = files.LogTail.read

    def failing(self: files.LogTail, after: int) -> LogChunk:
        for failure in failures:
            raise failure
        return read(self, after)

    monkeypatch.setattr(files.LogTail, "read", failing)
    async with follow_log(journal, taker.deliver, who="it"):
        record(journal, 1)
        await taker.has(1)
    journal.close()
