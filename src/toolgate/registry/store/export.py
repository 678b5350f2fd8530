"""A whole registry as one file: JSON lines with a header, the records, the log, and an end with a checksum.

It contains everything in the store, including hashes of keys, so only its owner may read it. It is written
under another name and moved into place. It is trusted only as a whole: `check_export` reads all of it and
reports the invalid line.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from toolgate.disk import sync_directory
from toolgate.errors import ImportRefused, StorageFailed
from toolgate.model.revisions import Body, RecordChange, RecordList, StoredRecord
from toolgate.registry.records.transaction import RecordKey

FORMAT: Final = "toolgate-registry"
VERSION: Final = 1  # of the format; there is one so far
MAX_LINE_BYTES: Final = 32 * 1024 * 1024  # a change contains a record twice, and a record came in one request
MAX_ID_CHARS: Final = 64  # of the column `id` of records
_PROGRESS_EVERY: Final = 500  # many per second, and still few enough to print
ExportProgress = Callable[[int], None]  # called now and then with the number of finished records and changes


class ExportHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The format, and the position of the store."""

    format: str
    version: int
    epoch: str
    revision: int
    compacted: int


class ExportEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of lines, and the SHA-256 of all bytes before this one."""

    records: int
    changes: int
    sha256: str


class ExportLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the file, with exactly one of these members."""

    header: ExportHeader | None = None
    record: StoredRecord | None = None
    change: RecordChange | None = None
    end: ExportEnd | None = None


_encode: Final = msgspec.json.Encoder(enc_hook=dict).encode
_decode: Final = msgspec.json.Decoder(ExportLine).decode
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
_decode_header: Final = msgspec.json.Decoder(dict[str, dict[str, object]]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """The content of a file."""

    epoch: str
    revision: int
    records: int
    changes: int


def write_export(
    path: Path,
    listing: RecordList,
    compacted: int,
    changes: Iterable[RecordChange],
    progress: ExportProgress | None = None,
) -> ExportSummary:
    """Write the records and the log after `compacted` into `path`, replacing it. Raises StorageFailed."""
    draft: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        draft = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            exported = _write_lines(file, listing, compacted, changes, progress or (lambda _: None))
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
        sync_directory(path.parent)
    except OSError as exc:
        raise StorageFailed(
            f"cannot write `{path}`: {exc.strerror}", hint="choose another path, or free space"
        ) from exc
    finally:
        if draft is not None:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    return exported


def check_export(path: Path) -> ExportHeader:
    """Read the whole file. Raises ImportRefused with the invalid line."""
    reader = _ExportReader(path)
    for _ in reader.lines():
        pass
    return reader.header


def read_export(path: Path) -> Iterator[StoredRecord | RecordChange]:
    """Yield the records, then the changes. Raises ImportRefused, at the latest after the last one."""
    return _ExportReader(path).lines()


def _write_lines(
    file: BinaryIO, listing: RecordList, compacted: int, log: Iterable[RecordChange], progress: ExportProgress
) -> ExportSummary:
    digest, changes = hashlib.sha256(), 0

    def put(line: ExportLine) -> None:
        text = _encode(line) + b"\n"
        digest.update(text)
        file.write(text)

    put(ExportLine(header=ExportHeader(FORMAT, VERSION, listing.epoch, listing.revision, compacted)))
    for stored in listing.records:
        put(ExportLine(record=stored))
    for changes, change in enumerate(log, 1):
        put(ExportLine(change=change))
        if (done := len(listing.records) + changes) % _PROGRESS_EVERY == 0:
            progress(done)
    records = len(listing.records)
    put(ExportLine(end=ExportEnd(records, changes, digest.hexdigest())))
    progress(records + changes)
    return ExportSummary(epoch=listing.epoch, revision=listing.revision, records=records, changes=changes)


class _ExportReader:
    """Checks that the lines of a file make one consistent registry. Errors contain the line number."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._digest = hashlib.sha256()
        self._records: dict[RecordKey, tuple[int, bytes]] = {}
        self._newest: dict[RecordKey, tuple[int, bytes | None]] = {}
        self._previous: RecordKey | None = None
        self._changes = 0
        self._revision = 0
        self.header: ExportHeader

    def lines(self) -> Iterator[StoredRecord | RecordChange]:
        """Yield each record and change after its own checks. The end confirms the whole file."""
        try:
            with self._path.open("rb") as file:
                yield from self._read_lines(file)
        except OSError as exc:
            raise ImportRefused(f"cannot read `{self._path}`: {exc.strerror}") from exc

    def _read_lines(self, file: BinaryIO) -> Iterator[StoredRecord | RecordChange]:
        self.header = self._read_header(file)
        self._revision = self.header.compacted
        while True:
            before = self._digest.hexdigest()
            line = self._parse(self._read_line(file))
            if line.end is not None:
                self._check_end(line.end, before)
                self._expect(not file.read(1), "there is data after the end")
                return
            if line.record is not None:
                self._check_record(line.record)
                yield line.record
            elif line.change is not None:
                self._check_change(line.change)
                yield line.change

    def _read_header(self, file: BinaryIO) -> ExportHeader:
        text = self._read_line(file)
        try:
            # The version first: a later one may have entirely different lines.
            found = _decode_header(text).get("header", {})
        except _UNREADABLE:
            found = {}
        self._expect(found.get("format") == FORMAT, "this is not a backup of a Toolgate registry")
        version = found.get("version")
        if version != VERSION:
            reason = f"its format version is {version!r}; this Toolgate reads {VERSION}"
            raise self._refusal(reason, hint="restore it with the Toolgate that wrote it, or a newer one")
        header = self._parse(text).header
        sound = header is not None and 0 <= header.compacted <= header.revision
        self._expect(sound, "the header is inconsistent")
        assert header is not None
        return header

    def _read_line(self, file: BinaryIO) -> bytes:
        self._number += 1
        text = file.readline(MAX_LINE_BYTES)
        self._expect(text.endswith(b"\n"), "the file is truncated here, or the line is too long")
        self._digest.update(text)
        return text

    def _parse(self, text: bytes) -> ExportLine:
        try:
            line = _decode(text)
        except _UNREADABLE as exc:
            raise self._refusal(f"the line is unreadable: {exc}") from exc
        members = (line.header, line.record, line.change, line.end)
        is_one = sum(member is not None for member in members) == 1
        self._expect(
            is_one and (line.header is None or self._number == 1), "the line must have exactly one member"
        )
        return line

    def _check_record(self, stored: StoredRecord) -> None:
        key = RecordKey(stored.kind, stored.id)
        self._expect(self._changes == 0, "a record follows the changes")
        self._expect(self._previous is None or self._previous < key, f"{key} is out of order, or a duplicate")
        self._expect(_is_id(stored.id) and "\0" not in stored.actor, f"{key} has an invalid id or actor")
        self._expect(0 < stored.revision <= self.header.revision, f"{key} has an impossible revision")
        self._previous = key
        self._records[key] = (stored.revision, _fingerprint(stored.body))

    def _check_change(self, change: RecordChange) -> None:
        key = RecordKey(change.kind, change.id)
        after = None if change.after is None else _fingerprint(change.after)
        highest = min(self._revision + 1, self.header.revision)
        in_order = self._revision + (self._changes == 0) <= change.revision <= highest
        self._expect(in_order, "the log has a gap, or is out of order")
        self._expect(_is_id(change.id) and "\0" not in change.actor, f"{key} has an invalid id or actor")
        is_consistent = (change.operation == "delete") == (after is None)
        self._expect(is_consistent, "the operation does not match the body")
        newest, _ = self._newest.get(key, (0, None))
        self._expect(newest < change.revision, f"duplicate {key} in one revision")
        self._changes += 1
        self._revision = change.revision
        self._newest[key] = (change.revision, after)

    def _check_end(self, end: ExportEnd, digest: str) -> None:
        self._expect(end.sha256 == digest, "the checksum does not match: the file was changed or damaged")
        counted = (len(self._records), self._changes)
        self._expect((end.records, end.changes) == counted, "the number of lines differs")
        self._expect(self._revision == self.header.revision, "the log ends too early")
        young = {key: at for key, at in self._records.items() if at[0] > self.header.compacted}
        left = {key: at for key, at in self._newest.items() if at[1] is not None}
        deleted = self._newest.keys() - left.keys()
        self._expect(young == left and not deleted & self._records.keys(), "the records do not match the log")

    def _expect(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001 (reads as a sentence)
        if not holds:
            raise self._refusal(otherwise)

    def _refusal(self, reason: str, *, hint: str | None = None) -> ImportRefused:
        return ImportRefused(f"`{self._path}` line {self._number}: {reason}", hint=hint)


def _is_id(text: str) -> bool:
    return 0 < len(text) <= MAX_ID_CHARS and "\0" not in text


def _fingerprint(body: Body) -> bytes:
    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).digest()
