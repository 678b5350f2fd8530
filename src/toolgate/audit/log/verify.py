"""Verifies that a log is intact: checks each seal against its lines, over all files.

It works on copies and on a log that is being written. It never changes a file.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import BinaryIO, Final, Literal, NamedTuple

import msgspec

from toolgate.audit.log.files import GENESIS, Seal, compute_digest, parse_number, parse_seal

MAX_BREAKS: Final = 20  # reported of one log. With that many, the rest does not matter
_LINE_BYTES: Final = 1024 * 1024  # longer than any line
BreakKind = Literal["changed", "missing", "added", "reordered", "out_of_place", "cut_off"]


class LogBreak(msgspec.Struct, frozen=True):
    """A place where a log was changed."""

    kind: BreakKind
    file: str
    first_line: int
    last_line: int
    """The lines of the file, counted from 1: the break is in them or between them."""
    first_seq: int
    last_seq: int
    """The sequence numbers that should be there."""
    what: str


class FileReport(msgspec.Struct):
    """The content of one file."""

    file: str
    lines: int = 0
    """Including seals."""
    seals: int = 0
    first_seq: int = 0
    last_seq: int = 0
    unsealed: int = 0
    """The lines at its end without a seal."""
    is_torn: bool = False
    """Whether its last line is incomplete."""
    notes: list[str] = []
    """Unusual findings that do not prove tampering."""


class LogGap(NamedTuple):
    """Missing numbers although the chain is intact: it ended before them and continued after them."""

    report: FileReport
    line: int
    """The line before the missing ones."""
    first_seq: int
    last_seq: int


class LogVerifier:
    """Reads the files of one log, from the oldest to the newest."""

    def __init__(self) -> None:
        self.files: list[FileReport] = []
        self.breaks: list[LogBreak] = []
        self.last_seq = 0
        """The newest sequence number."""
        self.last_seal: Seal | None = None
        self.seals: set[str] = set()
        """The digests of the valid seals."""
        self.gaps: list[LogGap] = []
        """The newest gaps. The index may have their events."""
        self._expected: str | None = None
        """The digest that the next seal must follow; None if unknown."""

    def read(self, name: str, file: BinaryIO) -> None:
        """Check the next file. Raises OSError."""
        if self.files:
            self._check_end(self.files[-1])
        report = FileReport(name)
        self.files.append(report)
        lines: list[bytes] = []
        while raw := file.readline(_LINE_BYTES):
            if not raw.endswith(b"\n") and len(raw) < _LINE_BYTES:
                self._read_torn(report, raw)
                break
            report.lines += 1
            seal = parse_seal(raw[:-1])
            if seal is None:
                lines.append(raw)
            else:
                self._check(report, lines, seal)
                lines = []
        self._end(report, lines)

    def expect_names(self, by_age: Sequence[str]) -> None:
        """Check that the numbers of the files match the order of their names, the oldest first."""
        numbered = [report for report in self.files if report.first_seq]
        names = [name for name in by_age if any(report.file == name for report in numbered)]
        for report, name in zip(numbered, names, strict=True):
            if report.file != name:
                what = f"the file has the content of {name}: files were renamed, swapped or copied"
                numbers = (report.first_seq, report.last_seq)
                self._break("out_of_place", report, (1, report.lines), numbers, what)

    def expect_number(self, last_seq: int, who: str) -> None:
        """Check against a follower that has events up to `last_seq`."""
        if last_seq > self.last_seq:
            what = f"{who} has events up to {last_seq}: the end of the log is missing"
            place = (self._newest.lines + 1,) * 2
            self._break("cut_off", self._newest, place, (self.last_seq + 1, last_seq), what)

    def expect_lines(self, gap: LogGap, who: str) -> None:
        """Report a gap whose events a follower has: they were in the log before."""
        what = f"{who} has events with these numbers: the end of the log was cut off before it continued"
        self._break("cut_off", gap.report, (gap.line, gap.line), (gap.first_seq, gap.last_seq), what)

    def expect_seal(self, sha256: str) -> None:
        """Check that a seal whose digest was kept elsewhere is in the log."""
        if sha256 not in self.seals:
            what = f"the seal {sha256} is not in the log: the end is missing, or the whole log was rewritten"
            self._break("cut_off", self._newest, (1, self._newest.lines), (1, self.last_seq), what)

    @property
    def _newest(self) -> FileReport:
        return self.files[-1] if self.files else FileReport("")

    def _check(self, report: FileReport, lines: Sequence[bytes], seal: Seal) -> None:
        numbers = [*map(parse_number, lines)]
        if self._expected is None and not self.seals and not self.breaks:
            self._begin(report, numbers, seal)
        holds = (
            seal.sha256 == compute_digest(seal.prev, b"".join(lines))
            and seal.of == len(lines)
            and seal.upto == (max(numbers, default=0) or self.last_seq)
        )
        follows = self._expected is None or seal.prev == self._expected
        if not holds:
            self._diagnose(report, numbers, seal)
        elif not follows:
            self._diagnose_order(report, numbers)
        else:
            self._note_gap(report, numbers)
        report.seals += 1
        self._count(report, numbers, upto=seal.upto)
        # The seal after a broken one may not follow it either: that is not a second break.
        self._expected = seal.sha256 if holds else None
        if holds:
            self.seals.add(seal.sha256)
            self.last_seal = seal

    def _begin(self, report: FileReport, numbers: Sequence[int], seal: Seal) -> None:
        """The first seal: it begins the chain, or continues a chain whose beginning is missing."""
        first = next(filter(None, numbers), 0)
        if first == 1 or self.last_seq or seal.prev == GENESIS:
            self._expected = GENESIS
        else:
            report.notes.append(f"begins with number {first}: earlier events are missing")
            self.last_seq = first - 1

    def _diagnose(self, report: FileReport, numbers: Sequence[int], seal: Seal) -> None:
        begin, expected = report.lines - len(numbers), self.last_seq + 1
        wrong = next((at for at, number in enumerate(numbers) if number != expected + at), None)
        place = (begin, report.lines) if wrong is None else (begin + wrong, begin + wrong)
        which = (expected, max(seal.upto, expected))
        if len(numbers) < seal.of:
            absent = expected + (len(numbers) if wrong is None else wrong)
            what = f"{seal.of - len(numbers)} of the {seal.of} lines of the seal are missing"
            self._break("missing", report, place, (absent, which[1]), what)
        elif len(numbers) > seal.of:
            what = f"{len(numbers)} lines instead of the {seal.of} of the seal, or the seal was changed"
            self._break("added", report, place, which, what)
        elif wrong is not None and sorted(numbers) == [*range(expected, expected + len(numbers))]:
            self._break("reordered", report, place, which, "the lines are not in their original order")
        else:
            self._break("changed", report, place, which, "a line or the seal was changed")

    def _diagnose_order(self, report: FileReport, numbers: Sequence[int]) -> None:
        """Report a seal that is valid for its lines but does not follow the previous seal."""
        place = (report.lines - len(numbers), report.lines)
        first = next(filter(None, numbers), 0)
        if first > self.last_seq + 1:
            what = f"numbers {self.last_seq + 1} to {first - 1} are missing, with their seals"
            self._break("missing", report, place, (self.last_seq + 1, first - 1), what)
        else:
            what = "these lines do not follow the lines before: they come from another place or another log"
            self._break("out_of_place", report, place, (first, max([first, *numbers])), what)

    def _note_gap(self, report: FileReport, numbers: Sequence[int]) -> None:
        known = [self.last_seq, *filter(None, numbers)]
        for before, after in pairwise(known):
            if after > before + 1:
                lost = f"numbers {before + 1} to {after - 1} are missing"
                report.notes.append(f"{lost}: the machine lost them, or the end was cut off")
                self.gaps.append(LogGap(report, report.lines, before + 1, after - 1))
                del self.gaps[:-MAX_BREAKS]
        if 0 in numbers:
            report.notes.append("has an incomplete line from a crash, which was sealed as it was")

    def _end(self, report: FileReport, lines: Sequence[bytes]) -> None:
        """Check the lines after the last seal: a crash leaves some, and old logs have no seals."""
        numbers = [*map(parse_number, lines)]
        report.unsealed = len(lines)
        begin = report.lines - len(lines) + 1
        for at, (before, number) in enumerate(pairwise([self.last_seq, *numbers])):
            if number <= before or not _is_json(lines[at]):
                what = "neither an event that follows the previous one, nor a seal"
                self._break("changed", report, (begin + at,) * 2, (before + 1, before + 1), what)
                break
        self._count(report, numbers, upto=max([self.last_seq, *numbers]))

    def _check_end(self, report: FileReport) -> None:
        """Check the end of a file that is not the newest: it must end with a seal."""
        if report.is_torn or (report.unsealed and self.seals):
            place = (report.lines, report.lines + 1)
            what = "the file does not end with a seal: its end was changed or is missing"
            self._break("missing", report, place, (self.last_seq, self.last_seq + 1), what)
        elif report.unsealed:
            report.notes.append("has no seals: an earlier release wrote it")

    def _read_torn(self, report: FileReport, raw: bytes) -> None:
        report.is_torn = True
        if parse_seal(raw[:-1]) is not None:
            what = "the end of a seal was changed"
            self._break("changed", report, (report.lines + 1,) * 2, (self.last_seq,) * 2, what)

    def _count(self, report: FileReport, numbers: Sequence[int], *, upto: int) -> None:
        report.first_seq = report.first_seq or next(filter(None, numbers), 0)
        report.last_seq = self.last_seq = upto

    def _break(
        self, kind: BreakKind, report: FileReport, lines: tuple[int, int], numbers: tuple[int, int], what: str
    ) -> None:
        if len(self.breaks) < MAX_BREAKS:
            self.breaks.append(LogBreak(kind, report.file, *lines, *numbers, what))


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True
