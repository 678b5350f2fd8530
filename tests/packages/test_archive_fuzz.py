"""Whatever is sent, the error is ours, and nothing is written outside."""

import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.packages.archive_samples import (
    good_tar,
    good_zip,
    inspect_archive,
    member,
    tar_of,
    zip_entry,
    zip_of,
)
from toolgate.errors import BodyTooLarge, InvalidRecord
from toolgate.packages.archive import unpack_archive
from toolgate.packages.entries import ArchiveEntry, ArchiveLedger, parse_path

WHOLE = {"tar": good_tar(), "zip": good_zip(), "streamed": good_zip(0)}
PARTS = st.sampled_from(["a", "A", "b", "..", ".", "", "lib", "读", "e\u0301", "\u00e9", "c:", "x\\y", "~"])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join) | st.text(max_size=12)


def try_reading(content: bytes) -> None:
    """It reads or it is refused; in either case nothing is outside of the directory."""
    with tempfile.TemporaryDirectory() as place:
        try:
            unpack_archive(io.BytesIO(content), Path(place, "package"))
        except (InvalidRecord, BodyTooLarge):
            assert list(Path(place).iterdir()) == []
        else:
            inspect_archive(io.BytesIO(content))
            assert list(Path(place).iterdir()) == [Path(place, "package")]


@pytest.mark.parametrize("kind", WHOLE)
def test_an_archive_that_breaks_off_anywhere_is_refused(kind: str) -> None:
    whole = WHOLE[kind]
    for length in range(0, len(whole), 3):
        with pytest.raises(InvalidRecord):
            inspect_archive(io.BytesIO(whole[:length]))


@pytest.mark.parametrize("kind", WHOLE)
@settings(max_examples=150, deadline=None)
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=3))
def test_a_damaged_archive_reads_or_is_refused(kind: str, flips: list[tuple[int, int]]) -> None:
    content = bytearray(WHOLE[kind])
    for place, mask in flips:
        content[place % len(content)] ^= mask

    try_reading(bytes(content))


@settings(max_examples=100, deadline=None)
@given(names=st.lists(PATHS, min_size=1, max_size=4))
@example(names=["\ud800"])
def test_whatever_its_entries_are_called_nothing_leaves_the_directory(names: list[str]) -> None:
    """FIL-2"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        archives = [
            tar_of(member(name, b"x") for name in names if "\ud800" not in name),
            zip_of((zip_entry(name), b"x") for name in names if not any(map(is_surrogate, name))),
        ]
    for archive in archives:
        try_reading(archive)


def is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


@given(name=PATHS)
def test_a_path_that_passes_stays_below_and_is_one_spelling(name: str) -> None:
    try:
        path = parse_path(name)
    except InvalidRecord:
        return
    root = Path("/srv/package")

    assert root.joinpath(path).resolve().is_relative_to(root)
    assert parse_path(path or ".") == path


@given(names=st.lists(st.sampled_from(["a", "A", "b", "a/b", "A/b", "a/b/c", "b/c"]), max_size=6))
def test_of_what_a_ledger_has_no_two_are_one_without_regard_to_case(names: list[str]) -> None:
    ledger, taken = ArchiveLedger(), []
    for name in names:
        try:
            ledger.enter(ArchiveEntry(path=name))
        except InvalidRecord:
            break
        taken.append(name)

    assert len({name.lower() for name in taken}) == len(taken) == ledger.files
