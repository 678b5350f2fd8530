"""Whatever is done to a log is found, and where. What crashes leave behind is no break."""

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.audit.events import CallRecorded
from toolgate.audit.log.files import (
    GENESIS,
    encode_line,
    find_last_seal,
    join_lines,
    parse_seal,
    rotated_path,
)
from toolgate.audit.log.verify import LogBreak, LogVerifier
from toolgate.audit.log.writer import JsonLinesSink

CALL = CallRecorded(at_ms=1, door="mcp", principal="local", tool="a", outcome="ok")
SEALED = 1_400
"""Bytes into the log, somewhere before its last seal."""
BATCHES: Sequence[Sequence[int]] = ([1, 2, 3], [4], [5, 6, 7, 8], [9, 10])


def write(path: Path, batches: Sequence[Sequence[int]] = BATCHES, *, rotate_bytes: int = 1 << 20) -> None:
    sink = JsonLinesSink(path, rotate_bytes=rotate_bytes)
    for batch in batches:
        sink.write(join_lines([encode_line(number, CALL) for number in batch]))
    sink.close()


def verify(*texts: bytes) -> LogVerifier:
    verifier = LogVerifier()
    for age, text in enumerate(texts):
        verifier.read(f"audit.{age}", io.BytesIO(text))
    return verifier


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log in one file: lines 1 to 3 and their seal, 5 and its, 7 to 10 and theirs, 12 to 13 and theirs."""
    path = tmp_path_factory.mktemp("whole") / "audit.jsonl"
    write(path)
    return path.read_bytes()


@pytest.fixture
def pieces(tmp_path: Path) -> list[bytes]:
    """The same log, a file for each batch."""
    path = tmp_path / "audit.jsonl"
    write(path, rotate_bytes=1)
    return [*(rotated_path(path, age).read_bytes() for age in (3, 2, 1)), path.read_bytes()]


def test_a_log_as_it_was_written_holds(whole: bytes, pieces: list[bytes]) -> None:
    one, many = verify(whole), verify(*pieces)

    assert (one.breaks, many.breaks) == ([], [])
    assert (one.files[0].lines, one.files[0].seals, one.files[0].unsealed) == (14, 4, 0)
    assert [(file.first_seq, file.last_seq) for file in many.files] == [(1, 3), (4, 4), (5, 8), (9, 10)]
    assert one.last_seal == many.last_seal
    assert all(not file.notes for file in many.files)


def lines_of(text: bytes) -> list[bytes]:
    return text.splitlines(keepends=True)


def edited(change: Callable[[list[bytes]], object]) -> Callable[[bytes], bytes]:
    def edit(text: bytes) -> bytes:
        lines = lines_of(text)
        change(lines)
        return b"".join(lines)

    return edit


def swap(lines: list[bytes], first: int, second: int) -> None:
    lines[first], lines[second] = lines[second], lines[first]


@pytest.mark.parametrize(
    ("edit", "kind", "lines", "numbers"),
    [
        pytest.param(
            lambda text: text.replace(b'"seq":6,"type":"call","at_ms":1', b'"seq":6,"type":"call","at_ms":7'),
            "changed",
            (7, 11),
            (5, 8),
            id="a byte changed",
        ),
        pytest.param(edited(lambda lines: lines.pop(7)), "missing", (8, 8), (6, 8), id="a line removed"),
        pytest.param(
            edited(lambda lines: lines.pop(9)), "missing", (7, 10), (8, 8), id="a last line removed"
        ),
        pytest.param(edited(lambda lines: swap(lines, 7, 8)), "reordered", (8, 8), (5, 8), id="two swapped"),
        pytest.param(
            edited(lambda lines: lines.insert(2, lines[1])), "added", (3, 3), (1, 3), id="a line repeated"
        ),
        pytest.param(
            edited(lambda lines: lines.__delitem__(slice(4, 6))),
            "missing",
            (5, 9),
            (4, 4),
            id="a batch removed",
        ),
        pytest.param(
            edited(lambda lines: lines.extend(lines[4:6])),
            "out_of_place",
            (15, 16),
            (4, 4),
            id="a batch again",
        ),
        pytest.param(edited(lambda lines: lines.pop(3)), "added", (1, 5), (1, 4), id="a seal removed"),
        pytest.param(
            edited(lambda lines: lines.pop(0)), "missing", (1, 1), (1, 3), id="the first line removed"
        ),
    ],
)
def test_tampering_is_reported_with_its_place(
    whole: bytes,
    edit: Callable[[bytes], bytes],
    kind: str,
    lines: tuple[int, int],
    numbers: tuple[int, int],
) -> None:
    text = edit(whole)
    (found,) = verify(text).breaks

    assert text != whole
    assert (found.kind, (found.first_line, found.last_line), (found.first_seq, found.last_seq)) == (
        kind,
        lines,
        numbers,
    )


@given(st.data())
def test_any_byte_that_is_changed_is_found(whole: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    text = whole[:at] + bytes([byte]) + whole[at + 1 :]

    assert verify(text).breaks


def test_any_bit_that_is_flipped_is_found(whole: bytes) -> None:
    for at in range(len(whole)):
        text = bytearray(whole)
        text[at] ^= 1

        assert verify(bytes(text)).breaks


@given(st.data())
def test_any_piece_that_is_cut_out_but_the_end_is_found(whole: bytes, data: st.DataObject) -> None:
    """What comes after it holds on to it."""
    begin, end = sorted(data.draw(st.tuples(st.integers(0, SEALED), st.integers(0, SEALED))))
    text = whole[:begin] + whole[end:]

    assert verify(text).breaks or text == whole


def test_a_file_of_another_log_is_found(pieces: list[bytes], tmp_path: Path) -> None:
    """Though its numbers fit, and its seals hold for its lines."""
    path = tmp_path / "other" / "audit.jsonl"
    path.parent.mkdir()
    write(path, [[1, 2], [3]])
    write(path, [[4]], rotate_bytes=1)
    other = path.read_bytes()
    found = verify(pieces[0], other, *pieces[2:]).breaks

    assert [(one.kind, one.file) for one in found] == [
        ("out_of_place", "audit.1"),
        ("out_of_place", "audit.2"),
    ]


@pytest.mark.parametrize(
    ("order", "kinds"),
    [
        pytest.param([0, 2, 3], ["missing"], id="a file removed"),
        pytest.param([0, 2, 1, 3], ["missing", "out_of_place", "missing"], id="files in another order"),
    ],
)
def test_a_file_that_is_not_where_it_was_is_found(
    pieces: list[bytes], order: list[int], kinds: list[str]
) -> None:
    assert [one.kind for one in verify(*(pieces[age] for age in order)).breaks] == kinds


def test_the_end_of_an_older_file_cannot_be_cut_off(pieces: list[bytes]) -> None:
    lines = lines_of(pieces[2])
    cut = b"".join(lines[:-1])
    torn = pieces[2][:-1]

    assert verify(*pieces[:2], cut, pieces[3]).breaks[0].kind == "missing"
    assert verify(*pieces[:2], torn, pieces[3]).breaks[0].kind == "missing"


def test_the_oldest_files_may_be_gone(pieces: list[bytes]) -> None:
    verifier = verify(*pieces[2:])

    assert verifier.breaks == []
    assert verifier.files[0].notes == ["begins with number 5: earlier events are missing"]


def test_an_end_that_was_cut_off_is_known_by_others(whole: bytes) -> None:
    """By the number that the index has, or by a seal that was kept elsewhere."""
    last = verify(whole).last_seal
    cut = verify(b"".join(lines_of(whole)[:11]))
    assert last is not None
    assert cut.breaks == []
    cut.expect_number(8, "the index")
    cut.expect_seal(min(cut.seals))
    assert cut.breaks == []
    cut.expect_number(10, "the index")
    cut.expect_seal(last.sha256)

    assert [(one.kind, one.first_seq, one.last_seq) for one in cut.breaks] == [
        ("cut_off", 9, 10),
        ("cut_off", 1, 8),
    ]


def test_the_leftover_of_a_crash_is_reported_and_no_break(whole: bytes) -> None:
    """At any byte of the last batch: whole lines without a seal, and one that is torn."""
    begin = whole.rindex(b'{"seq":9,')
    for size in range(begin, len(whole)):
        verifier = verify(whole[:size])

        assert verifier.breaks == []
        assert verifier.files[0].is_torn == (whole[size - 1 : size] != b"\n")


def test_a_log_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    """The machine crashed: the rest of the line is lost. It is sealed as it was found."""
    path = tmp_path / "audit.jsonl"
    write(path)
    text = path.read_bytes()
    path.write_bytes(text[: text.index(b'"seq":10')])
    write(path, [[20]])
    verifier = verify(path.read_bytes())

    assert verifier.breaks == []
    assert verifier.files[0].notes == [
        "has an incomplete line from a crash, which was sealed as it was",
        "numbers 10 to 19 are missing: the machine lost them, or the end was cut off",
    ]


def test_a_log_of_before_there_were_seals_is_sealed_when_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"".join(encode_line(number, CALL) for number in range(4, 7)))
    rotated_path(path).write_bytes(b"".join(encode_line(number, CALL) for number in range(1, 4)))
    write(path, [[7]])
    verifier = verify(rotated_path(path).read_bytes(), path.read_bytes())
    seals = [seal for line in path.read_bytes().splitlines() if (seal := parse_seal(line))]

    assert verifier.breaks == []
    assert [file.notes for file in verifier.files] == [
        ["has no seals: an earlier release wrote it"],
        [],
    ]
    assert [(seal.upto, seal.of) for seal in seals] == [(6, 3), (7, 1)]
    assert seals[0].prev == GENESIS


def test_seals_cannot_be_taken_off_older_files(pieces: list[bytes]) -> None:
    stripped = [b"".join(lines_of(piece)[:-1]) for piece in pieces[:2]]

    assert [one.kind for one in verify(*stripped, *pieces[2:]).breaks] == ["out_of_place"]


def test_what_a_caller_wrote_is_no_seal(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path)
    with path.open("ab") as file:
        file.write(b'{"seq":11,"type":"call","arguments":{"a":1,"type":"seal","prev":""}}\n' * 3_000)
    sealed = find_last_seal(path)

    assert sealed.seal is not None
    assert (sealed.seal.upto, sealed.rest.count(b"\n")) == (10, 3_000)


def test_few_breaks_are_reported(whole: bytes) -> None:
    broken = whole.replace(b"mcp", b"mco")

    assert len(verify(*[broken] * 20).breaks) == 20
    assert isinstance(verify(broken).breaks[0], LogBreak)


def test_a_copy_is_as_good(tmp_path: Path) -> None:
    write(tmp_path / "audit.jsonl")
    shutil.copy(tmp_path / "audit.jsonl", tmp_path / "copy")

    assert verify((tmp_path / "copy").read_bytes()).breaks == []
