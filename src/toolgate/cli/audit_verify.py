"""What `toolgate audit verify` reads: the files of a log, and what the index beside them knows of it."""

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from sqlalchemy import Connection

from toolgate.app.audit_index import INDEX_FILE
from toolgate.app.journals import AUDIT_FILE
from toolgate.audit.database import SqliteFile
from toolgate.audit.index.index import name_log
from toolgate.audit.index.statements import has_taken, read_taken
from toolgate.audit.journal import read_name
from toolgate.audit.log.files import first_number, open_files
from toolgate.audit.log.verify import Verifier
from toolgate.cli.failure import CommandFailed
from toolgate.settings import load_settings

_INDEX: Final = "the audit index"
_AGE: Final = re.compile(r"\.([0-9]{1,4})\Z")
_NO_LOG_HINT: Final = (
    "name the gateway's data directory with --data: what it was given as --data, else `.toolgate` where it "
    "was started; the demo's is `demo` in that, or in `~/.cache/toolgate`"
)


def verify_copies(paths: Sequence[Path]) -> Verifier:
    """Files of a log, wherever they are."""
    with ExitStack() as stack:
        try:
            return _read([stack.enter_context(path.open("rb")) for path in paths])
        except OSError as exc:
            raise _unreadable(exc.filename, exc) from exc


def verify_log(data: Path | None) -> Verifier:
    """The log in a data directory, or in the default one, beside what the index there has of it."""
    overrides = {} if data is None else {"data_dir": str(data)}
    path = load_settings(None, os.environ, overrides).data_dir / AUDIT_FILE
    with ExitStack() as stack:
        try:
            found = [stack.enter_context(file) for file in open_files(path)]
            if not found:
                raise CommandFailed(f"there is no audit log at `{path}`", hint=_NO_LOG_HINT)
            verifier = _read(found)
        except OSError as exc:
            raise _unreadable(str(path), exc) from exc
    name, index = read_name(path), path.with_name(INDEX_FILE)
    if name is not None and index.exists():
        database = SqliteFile(index)
        try:
            database.read(partial(_hold_against_index, verifier, log=name_log("", name)))
        finally:
            database.close()
    return verifier


def _hold_against_index(verifier: Verifier, connection: Connection, *, log: str) -> None:
    """The index read it from the log: what it has was in there."""
    for gap in verifier.gaps:
        if has_taken(connection, log, gap.first_seq, gap.last_seq):
            verifier.expect_lines(gap, _INDEX)
    verifier.expect_number(read_taken(connection, log), _INDEX)


def _read(files: Sequence[BinaryIO]) -> Verifier:
    """From the oldest on."""
    verifier = Verifier()
    for file in sorted(files, key=first_number):
        file.seek(0)
        verifier.read(Path(file.name).name, file)
    paths = [Path(file.name) for file in files]
    if len({path.with_name(_AGE.sub("", path.name)) for path in paths}) == 1:
        ordered = sorted(paths, key=_age, reverse=True)
        verifier.expect_names([path.name for path in ordered])
    return verifier


def _age(path: Path) -> int:
    """How many newer files a log has, by the name of one of its files."""
    found = _AGE.search(path.name)
    return 0 if found is None else int(found[1])


def _unreadable(path: str, exc: OSError) -> CommandFailed:
    hint = "run it as the gateway's user" if isinstance(exc, PermissionError) else ""
    return CommandFailed(f"cannot read `{path}`: {exc.strerror or exc}", hint=hint)


def shown(verifier: Verifier) -> dict[str, Any]:
    """What programs get."""
    last = verifier.last_seal
    return {
        "ok": not verifier.breaks,
        "files": [msgspec.to_builtins(file) for file in verifier.files],
        "breaks": [msgspec.to_builtins(one) for one in verifier.breaks],
        "last_seq": verifier.last_seq,
        "last_seal": None if last is None else last._asdict(),
    }
