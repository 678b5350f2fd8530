"""`toolgate audit verify`: whether a log is as it was written, for people and for programs."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from toolgate.audit.events import CallRecorded
from toolgate.audit.index.index import open_sqlite_index
from toolgate.audit.log.files import AuditLine, LineBatch, rotated_path
from toolgate.audit.log.journal import Journal

CALL = CallRecorded(at_ms=1, door="mcp", principal="local", tool="a", outcome="ok")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log in three files: numbers 1 to 3, 4 to 6, 7 to 9."""

    async def write() -> None:
        journal = Journal(tmp_path / "audit.jsonl", rotate_bytes=1)
        for _ in range(3):
            for _ in range(3):
                journal.log.record(CALL)
            journal.log.flush()
        journal.close()

    asyncio.run(write())
    return tmp_path / "audit.jsonl"


def test_each_file_is_shown_oldest_first(log: Path, run: Run) -> None:
    ran = run("audit", "verify", "--data", str(log.parent))

    assert (ran.code, [line.split() for line in ran.lines[:4]]) == (
        0,
        [
            ["FILE", "LINES", "SEALS", "FIRST", "LAST", "STATE"],
            ["audit.jsonl.2", "4", "1", "1", "3", "ok"],
            ["audit.jsonl.1", "4", "1", "4", "6", "ok"],
            ["audit.jsonl", "4", "1", "7", "9", "ok"],
        ],
    )
    assert "The last seal covers all events up to 9:" in ran.lines


def test_a_byte_that_was_changed_is_found_and_where(log: Path, run: Run) -> None:
    file = rotated_path(log)
    file.write_bytes(file.read_bytes().replace(b'"seq":5,"type":"call"', b'"seq":5,"type":"cell"'))

    ran = run("audit", "verify", "--data", str(log.parent))
    shown = run("audit", "verify", "--data", str(log.parent), "--json")

    assert ran.code == shown.code == 1
    assert ran.lines[2].split()[-1] == "BROKEN"
    assert "changed  audit.jsonl.1, line 1-4, number 4-6: a line or the seal was changed" in ran.lines
    assert shown.json["ok"] is False
    assert [(one["kind"], one["file"]) for one in shown.json["breaks"]] == [("changed", "audit.jsonl.1")]


def test_copies_are_checked_in_whatever_order_they_are_named(log: Path, run: Run) -> None:
    names = [str(log), str(rotated_path(log, 2)), str(rotated_path(log))]
    log.with_name("audit.jsonl.id").unlink()

    assert run("audit", "verify", *names, "--json").json["ok"] is True
    assert run("audit", "verify", names[0], names[1]).code == 1


def test_an_end_that_is_gone_is_known_to_the_index(log: Path, run: Run) -> None:
    name = log.with_name("audit.jsonl.id").read_text().strip()

    async def take_in() -> None:
        async with open_sqlite_index(log.parent / "audit.db") as index:
            await index.add(LineBatch(0, 9, []), node="", log=name)

    asyncio.run(take_in())
    verify = partial(run, "audit", "verify", "--data", str(log.parent))
    assert verify().code == 0
    log.unlink()
    ran = verify()

    assert ran.code == 1
    assert "cut off  audit.jsonl.1, line 5, number 7-9: the audit index has events up to 9:" in ran.lines


def test_an_end_that_was_cut_off_before_the_log_went_on_is_known_to_the_index(log: Path, run: Run) -> None:
    async def go_on(last: int) -> None:
        """As a gateway does, whose index has a line of the log, and knows how far that goes."""
        journal = Journal(log)
        async with open_sqlite_index(log.parent / "audit.db") as index:
            await index.add(LineBatch(0, 9, [AuditLine(last, CALL)]), node="", log=journal.name)
            taken = await index.add(LineBatch(0, 0, []), node="", log=journal.name)
        journal.log.resume_after(taken)
        journal.log.record(CALL)
        journal.close()

    verify = partial(run, "audit", "verify", "--data", str(log.parent))
    log.unlink()
    asyncio.run(go_on(8))
    ran = verify()

    assert ran.code == 1
    assert "cut off  audit.jsonl, line 2, number 7-9: the audit index has events with these" in ran.lines


def test_numbers_that_the_index_lacks_are_no_break(log: Path, run: Run) -> None:
    async def go_on() -> None:
        journal = Journal(log)
        journal.log.resume_after(20)
        journal.log.record(CALL)
        journal.close()

    asyncio.run(go_on())
    ran = run("audit", "verify", "--data", str(log.parent), "--json")

    assert ran.code == 0
    assert ran.json["files"][-1]["notes"] == [
        "numbers 10 to 20 are missing: the machine lost them, or the end was cut off"
    ]


def test_a_seal_that_was_written_down_must_be_there(log: Path, run: Run) -> None:
    verify = partial(run, "audit", "verify", "--data", str(log.parent))
    seal = verify("--json").json["last_seal"]["sha256"]

    assert verify("--seal", seal).code == 0
    assert verify("--seal", "0" * 64).code == 1
    assert verify("--seal", seal[:16]).code == 2


def test_what_is_not_there_is_named(log: Path, run: Run) -> None:
    nothing = run("audit", "verify", "--data", str(log.parent / "none"))
    unreadable = run("audit", "verify", str(log.parent))
    both = run("audit", "verify", str(log), "--data", str(log.parent))

    assert (nothing.code, unreadable.code, both.code) == (1, 1, 2)
    assert "there is no audit log at" in nothing.err
    assert "cannot read" in unreadable.err


def test_a_log_without_seals_is_no_broken_one(log: Path, run: Run) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    ran = run("audit", "verify", str(log))

    assert ran.code == 0
    assert "No valid seal." in ran.lines


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def go_on(log: Path) -> None:
    """Another process writes one event more."""

    async def write() -> None:
        journal = Journal(log)
        journal.log.record(CALL)
        journal.close()

    asyncio.run(write())


@pytest.mark.parametrize(("one", "other"), [(0, 1), (0, 2), (1, 2)])
def test_try_8_swapped_files_are_found_before_and_after_a_start(
    log: Path, run: Run, one: int, other: int
) -> None:
    files = [log, rotated_path(log), rotated_path(log, 2)]
    swap(files[one], files[other])
    contents = {file.read_bytes() for file in files}

    before = run("audit", "verify", "--data", str(log.parent), "--json")
    go_on(log)
    after = run("audit", "verify", "--data", str(log.parent), "--json")

    assert (before.code, after.code) == (1, 1)
    assert {found["kind"] for found in before.json["breaks"]} == {"out_of_place"}
    assert {found["file"] for found in before.json["breaks"]} == {files[one].name, files[other].name}
    assert {found["kind"] for found in after.json["breaks"]} == {"out_of_place"}
    assert after.json["last_seq"] == 10
    untouched = {file.read_bytes() for file in log.parent.glob("audit.jsonl*")}
    assert len(contents & untouched) == (3 if one == 0 else 2)  # in order at the end, it is gone on with


@pytest.mark.parametrize("source", [1, 2])
def test_try_8_an_older_file_copied_over_the_newest_is_not_gone_on_with(
    log: Path, run: Run, source: int
) -> None:
    copied = rotated_path(log, source).read_bytes()
    log.write_bytes(copied)

    before = run("audit", "verify", "--data", str(log.parent), "--json")
    go_on(log)
    after = run("audit", "verify", "--data", str(log.parent), "--json")

    assert (before.code, after.code) == (1, 1)
    assert rotated_path(log).read_bytes() == copied
    assert [line.split(b",")[0] for line in log.read_bytes().splitlines()] == [b'{"seq":7'] * 2


def test_try_8_the_newest_file_copied_over_an_older_one_is_found_and_gone_on_with(
    log: Path, run: Run
) -> None:
    rotated_path(log).write_bytes(log.read_bytes())

    before = run("audit", "verify", "--data", str(log.parent))
    go_on(log)

    assert before.code == 1
    assert log.read_bytes().count(b'"seq":10') == 2  # the event, and its seal


def test_try_8_a_renamed_newest_file_is_found_and_the_numbers_go_on_after_it(log: Path, run: Run) -> None:
    log.rename(rotated_path(log, 7))

    before = run("audit", "verify", "--data", str(log.parent), "--json")
    go_on(log)
    after = run("audit", "verify", "--data", str(log.parent), "--json")

    assert (before.code, after.code) == (1, 1)
    assert after.json["last_seq"] == 10
    assert log.read_bytes().startswith(b'{"seq":10,')


def test_try_8_swapped_copies_are_found_by_their_names(log: Path, run: Run) -> None:
    swap(rotated_path(log), rotated_path(log, 2))

    assert run("audit", "verify", str(log), str(rotated_path(log, 2)), str(rotated_path(log))).code == 1
