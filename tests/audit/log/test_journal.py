"""STO-10: what was recorded is in the log however its process ended, and each call has one end there."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolgate.audit.events import AdminRecorded, CallEnded, CallRecorded, CallStarted
from toolgate.audit.log import write_ahead as ahead_module
from toolgate.audit.log.files import encode_call_fields
from toolgate.audit.log.journal import Journal
from toolgate.audit.log.verify import LogVerifier
from toolgate.audit.log.writer import FLUSH_BYTES

pytestmark = pytest.mark.anyio

START = CallStarted(
    at_ms=1,
    door="mcp",
    principal="key:ada",
    tool="push",
    server_id="git",
    session="s",
    argument_bytes=9,
    arguments=msgspec.Raw(b'{"to":"a"}'),
)
BEGUN = START.at_ms, encode_call_fields(START)
CALL = CallRecorded(at_ms=2, door="mcp", principal="key:ada", tool="push", outcome="ok", server_id="git")
ADMIN = AdminRecorded(at_ms=3, principal="local", operation="put", kind="server", record_id="git")


def ended(start: int) -> CallEnded:
    return CallEnded(at_ms=2, outcome="ok", start=start, duration_us=7)


@pytest.fixture(params=["mapped", "written"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a log is, on a file system that maps files into memory, and on one that does not."""
    if request.param == "written":

        def refuse(*_args: object) -> None:
            raise OSError("no such device")

        monkeypatch.setattr(ahead_module, "MappedWriteAhead", refuse)
    return tmp_path / "audit.jsonl"


def killed(journal: Journal, path: Path) -> Path:
    """The files as they are at this moment, which is all that is left after a kill -9."""
    place = path.parent / "left"
    place.mkdir()
    for file in path.parent.glob("audit.*"):
        shutil.copy(file, place)
    journal.close()
    return place / path.name


def lines(path: Path) -> list[dict[str, Any]]:
    """Without the seals."""
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [line for line in found if line["type"] != "seal"]


async def test_what_was_recorded_a_moment_ago_survives(path: Path) -> None:
    journal = Journal(path)
    journal.log.record(ADMIN)
    journal.log.flush()
    number = journal.log.begin(*BEGUN)
    journal.log.end(ended(number))
    left = killed(journal, path)
    before = lines(left)
    Journal(left).close()

    assert [one["seq"] for one in before] == [1]
    assert [(one["seq"], one["type"]) for one in lines(left)] == [(1, "admin"), (2, "start"), (3, "call")]
    assert lines(left) == lines(path)


async def test_a_call_under_way_gets_its_end_once(path: Path) -> None:
    """With all that its start says; however often a process ends this way."""
    journal = Journal(path)
    first, second = (
        journal.log.begin(*BEGUN),
        journal.log.begin(*BEGUN),
    )
    journal.log.flush()
    journal.log.end(ended(second))
    left = killed(journal, path)
    Journal(left).close()
    again = Journal(left)
    again.log.record(ADMIN)
    left = killed(again, left)
    Journal(left).close()
    calls = [one for one in lines(left) if one["type"] == "call"]

    assert [(one["start"], one["outcome"], one.get("code")) for one in calls] == [
        (second, "ok", None),
        (first, "unknown", "gateway_ended"),
    ]
    assert {**calls[1], "type": "start"} == {
        **lines(left)[0],
        "seq": 4,
        "outcome": "unknown",
        "code": "gateway_ended",
        "start": first,
    }
    assert [one["seq"] for one in lines(left)] == [1, 2, 3, 4, 5]


async def test_a_call_that_began_long_ago_gets_its_end(path: Path) -> None:
    """Over rotations: its start is looked for as far back as it may be, and no further."""
    journal = Journal(path, rotate_bytes=2_000)
    for _ in range(5):
        journal.log.record(CALL)
        journal.log.flush()
    start = journal.log.begin(*BEGUN)
    for _ in range(40):
        journal.log.record(ADMIN)
        journal.log.flush()
    left = killed(journal, path)
    Journal(left).close()

    assert len(list(left.parent.glob("audit.jsonl.[0-9]"))) > 2
    assert [(one["seq"], one["start"]) for one in lines(left) if one["type"] == "call"] == [(47, start)]


async def test_a_call_that_flushes_the_log_gets_its_end(path: Path) -> None:
    journal = Journal(path)
    journal.log.record(ADMIN)
    start = journal.log.begin(1, encode_call_fields(msgspec.structs.replace(START, tool="t" * FLUSH_BYTES)))
    left = killed(journal, path)
    before = lines(left)
    Journal(left).close()

    assert [one["type"] for one in before] == ["admin", "start"]
    assert [(one["start"], one["outcome"]) for one in lines(left)[2:]] == [(start, "unknown")]


async def test_a_batch_that_was_torn_is_made_whole(path: Path) -> None:
    """The process ended while the file was written: at any byte, the log is the same afterwards."""
    journal = Journal(path)
    journal.log.record(ADMIN)
    journal.log.flush()
    before = path.stat().st_size
    for _ in range(3):
        journal.log.record(ADMIN)
    left = killed(journal, path)
    whole, ahead = path.read_bytes(), left.with_name("audit.ahead").read_bytes()
    for size in range(before, len(whole), 5):
        left.write_bytes(whole[:size])
        left.with_name("audit.ahead").write_bytes(ahead)
        Journal(left).close()
        verifier = LogVerifier()
        verifier.read("audit.jsonl", io.BytesIO(left.read_bytes()))

        assert lines(left) == lines(path)
        assert (verifier.breaks, verifier.files[0].notes) == ([], [])


async def test_nothing_is_left_of_a_process_that_ends_well(path: Path) -> None:
    journal = Journal(path)
    number = journal.log.begin(*BEGUN)
    is_there = path.with_name("audit.ahead").exists()
    journal.log.end(ended(number))
    journal.close()
    journal.close()

    assert is_there
    assert sorted(file.name for file in path.parent.iterdir()) == ["audit.jsonl", "audit.jsonl.id"]


async def test_a_call_under_way_gets_its_end_though_what_was_left_is_gone(path: Path) -> None:
    """`audit.ahead` was deleted: the log has the calls without an end, too."""
    journal = Journal(path)
    numbers = [journal.log.begin(*BEGUN) for _ in range(2)]
    journal.log.end(ended(numbers[0]))
    journal.log.flush()
    left = killed(journal, path)
    left.with_suffix(".ahead").unlink()
    Journal(left).close()
    Journal(left).close()

    ends = [one for one in lines(left) if one["type"] == "call"]
    assert [(one["start"], one["outcome"]) for one in ends] == [(1, "ok"), (2, "unknown")]


async def test_a_call_that_outlives_its_process_gets_its_end_from_the_next(path: Path) -> None:
    journal = Journal(path)
    journal.log.begin(*BEGUN)
    journal.close()
    Journal(path).close()

    assert [one.get("outcome") for one in lines(path)] == [None, "unknown"]


@pytest.mark.parametrize(
    "left",
    [b"", b"TGAHEAD1", b"TGAHEAD2" + b"\xff" * 16, b"TGAHEAD1" + b"\xff" * 16, b"\0" * 100],
    ids=["nothing", "less than a head", "of another program", "no end", "not begun"],
)
async def test_an_unreadable_leftover_does_not_prevent_a_start(path: Path, left: bytes) -> None:
    path.with_name("audit.ahead").write_bytes(left)
    journal = Journal(path)
    journal.log.record(ADMIN)
    journal.close()

    assert [one["seq"] for one in lines(path)] == [1]


async def test_fil_9_what_is_written_ahead_is_its_owners_alone_and_has_its_place(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "audit.jsonl")
    found = (tmp_path / "audit.ahead").stat()
    journal.close()

    assert (found.st_mode & 0o777, found.st_size) == (0o600, ahead_module.FILE_BYTES)
    assert found.st_blocks * 512 >= ahead_module.FILE_BYTES
