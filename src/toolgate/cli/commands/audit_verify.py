"""`toolgate audit verify`: the files of a log, compared with their seals and with the index next to them."""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from rich.console import RenderableType
from rich.text import Text
from sqlalchemy import Connection

from toolgate.app.audit_index import INDEX_FILE
from toolgate.app.observability import AUDIT_FILE
from toolgate.audit.index.index import IndexFile, name_log
from toolgate.audit.index.statements import has_taken, read_taken
from toolgate.audit.log.files import first_number, open_files
from toolgate.audit.log.journal import read_name
from toolgate.audit.log.verify import FileReport, LogVerifier
from toolgate.cli.command import CommandError
from toolgate.cli.render import layout as ui
from toolgate.settings import load_settings


def render_verified(verifier: LogVerifier) -> RenderableType:
    """A table of the files, the breaks, and the newest seal."""
    table = ui.grid("FILE", "LINES", "SEALS", "FIRST", "LAST", "STATE*")
    broken = {one.file for one in verifier.breaks}
    for file in verifier.files:
        numbers = (f"{file.lines:,}", f"{file.seals:,}", file.first_seq or "", file.last_seq or "")
        table.add_row(file.file, *numbers, _render_state(file, is_broken=file.file in broken))
    breaks = ui.unheaded_grid(2)
    for one in verifier.breaks:
        lines, numbered = _range(one.first_line, one.last_line), _range(one.first_seq, one.last_seq)
        place = f"{one.file}, line {lines}, number {numbered}: {one.what}"
        breaks.add_row(ui.cell(one.kind.replace("_", " "), ui.BAD), place)
    last = verifier.last_seal
    tail = ui.cell("No valid seal.", ui.BAD if verifier.breaks else ui.DIM)
    if last is not None:
        keep = Text("\nKeep it elsewhere: with --seal it shows whether the log was rewritten.", ui.DIM)
        tail = ui.sentence(
            f"The last seal covers all events up to {last.upto}:\n", ui.cell(last.sha256), keep
        )
    return ui.stack_parts(table, breaks if verifier.breaks else None, tail)


def _render_state(file: FileReport, *, is_broken: bool) -> Text:
    notes = [*file.notes]
    if file.unsealed:
        notes.append(f"{file.unsealed} lines at its end are unsealed")
    if file.is_torn:
        notes.append("its last line is incomplete")
    state = ui.cell("BROKEN", ui.BAD) if is_broken else ui.cell("ok", ui.OK)
    return Text("; ").join([state, *(ui.cell(one, ui.DIM) for one in notes)])


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


_INDEX: Final = "the audit index"
_AGE: Final = re.compile(r"\.([0-9]{1,4})\Z")
_NO_LOG_HINT: Final = (
    "give the gateway's data directory with --data: by default `.toolgate` where it was started, for the "
    "demo `.toolgate/demo` or `~/.cache/toolgate/demo`"
)


def verify_copies(paths: Sequence[Path]) -> LogVerifier:
    with ExitStack() as stack:
        try:
            return _read([stack.enter_context(path.open("rb")) for path in paths])
        except OSError as exc:
            raise _read_error(exc.filename, exc) from exc


def verify_log(data: Path | None) -> LogVerifier:
    """The log in a data directory, or in the default one, compared with its index."""
    overrides = {} if data is None else {"data_dir": str(data)}
    path = load_settings(None, os.environ, overrides).data_dir / AUDIT_FILE
    with ExitStack() as stack:
        try:
            found = [stack.enter_context(file) for file in open_files(path)]
            if not found:
                raise CommandError(f"there is no audit log at `{path}`", hint=_NO_LOG_HINT)
            verifier = _read(found)
        except OSError as exc:
            raise _read_error(str(path), exc) from exc
    name, index = read_name(path), path.with_name(INDEX_FILE)
    if name is not None and index.exists():
        database = IndexFile(index)
        try:
            database.read(partial(_compare_with_index, verifier, log=name_log("", name)))
        finally:
            database.close()
    return verifier


def _compare_with_index(verifier: LogVerifier, connection: Connection, *, log: str) -> None:
    """The index read it from the log: what it has was in there."""
    for gap in verifier.gaps:
        if has_taken(connection, log, gap.first_seq, gap.last_seq):
            verifier.expect_lines(gap, _INDEX)
    verifier.expect_number(read_taken(connection, log), _INDEX)


def _read(files: Sequence[BinaryIO]) -> LogVerifier:
    """From the oldest on."""
    verifier = LogVerifier()
    for file in sorted(files, key=first_number):
        file.seek(0)
        verifier.read(Path(file.name).name, file)
    paths = [Path(file.name) for file in files]
    if len({path.with_name(_AGE.sub("", path.name)) for path in paths}) == 1:
        ordered = sorted(paths, key=_rotation_number, reverse=True)
        verifier.expect_names([path.name for path in ordered])
    return verifier


def _rotation_number(path: Path) -> int:
    """How many newer files a log has, by the name of one of its files."""
    found = _AGE.search(path.name)
    return 0 if found is None else int(found[1])


def _read_error(path: str, exc: OSError) -> CommandError:
    hint = "run it as the gateway's user" if isinstance(exc, PermissionError) else ""
    return CommandError(f"cannot read `{path}`: {exc.strerror or exc}", hint=hint)


def to_json(verifier: LogVerifier) -> dict[str, Any]:
    last = verifier.last_seal
    return {
        "ok": not verifier.breaks,
        "files": [msgspec.to_builtins(file) for file in verifier.files],
        "breaks": [msgspec.to_builtins(one) for one in verifier.breaks],
        "last_seq": verifier.last_seq,
        "last_seal": None if last is None else last._asdict(),
    }
