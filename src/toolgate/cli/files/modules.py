"""Modules of workloads: files next to the records that name them, uploaded part by part.

Parts that the gateway already has are not sent again.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from rich.console import Console

from toolgate.cli.client.rest import RestClient
from toolgate.cli.failure import CommandError, UsageError
from toolgate.cli.files.records import FileRecord
from toolgate.cli.output import StepProgress, open_console
from toolgate.cli.render.layout import JsonObject, render_warnings
from toolgate.model.packages import MAX_PART_BYTES
from toolgate.model.tasks import MAX_MODULE_BYTES

ReportProgress = Callable[[str], None]


def open_progress(*, as_json: bool) -> StepProgress:
    """Steps shown as they happen, if a person watches."""
    if as_json or not sys.stderr.isatty():
        return StepProgress(Console(quiet=True))
    return StepProgress(open_console(to_stderr=True))


def send_parts(client: RestClient, file: BinaryIO, sha256: str, tell: ReportProgress) -> int:
    """Send the parts that are not there yet; how many there are."""
    size = file.seek(0, 2)
    count = max(1, -(-size // MAX_PART_BYTES))
    path = build_upload_path(sha256)
    there = set(client.get(path)["parts"])
    for number in range(1, count + 1):
        tell(f"{(number - 1) * 100 // count} %")
        if number not in there:
            file.seek((number - 1) * MAX_PART_BYTES)
            client.put_bytes(f"{path}/{number}", file.read(MAX_PART_BYTES))
    return count


def build_upload_path(sha256: str) -> str:
    """Where the parts of a file go."""
    return f"/api/uploads/{sha256}"


MODULES: Final = "/admin/api/modules"
MIN_PREFIX: Final = 8

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAGIC: Final = b"\0asm"
_CORE: Final = b"\1\0\0\0"
"""The version of a module. A component has another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFile:
    """A file that looks like a module."""

    path: Path
    sha256: str


def load_module(path: Path) -> ModuleFile:
    """What is in a file, or CommandError."""
    try:
        with path.open("rb") as file:
            _check_head(path, file.read(8), size=file.seek(0, 2))
            file.seek(0)
            return ModuleFile(path=path, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as exc:
        raise UsageError(
            f"cannot read the module `{path}`: {exc.strerror}",
            hint="name a `.wasm` file from the directory of the record's file, or the SHA-256 of one that is"
            " uploaded",
        ) from exc


def hash_modules(records: Sequence[FileRecord]) -> tuple[list[FileRecord], list[ModuleFile]]:
    """The records with hashes in place of the names of files, and the files."""
    files = [_load_task_module(record) for record in records]
    hashed = [_set_module_hash(*pair) for pair in zip(records, files, strict=True)]
    return hashed, [file for file in files if file is not None]


def send_modules(client: RestClient, files: Iterable[ModuleFile], *, as_json: bool) -> None:
    """Upload those that the gateway does not have. Warnings go to standard error."""
    for file in {one.sha256: one for one in files}.values():
        if not _is_uploaded(client, file.sha256):
            found = render_warnings(send_module(client, file, as_json=as_json)["warnings"])
            if found is not None and not as_json:
                open_console(to_stderr=True).print(found)


def send_module(client: RestClient, file: ModuleFile, *, as_json: bool) -> JsonObject:
    """Upload one, have it checked and kept; what the gateway found."""
    progress = open_progress(as_json=as_json)
    try:
        with progress.step(f"uploading {file.path}") as tell, file.path.open("rb") as content:
            count = send_parts(client, content, file.sha256, tell)
            answer: JsonObject = client.post(build_module_path(file.sha256), {"parts": count})
    except CommandError as failure:
        if failure.code != "invalid_module":
            raise
        raise CommandError(f"{file.path}: {failure}", hint=failure.hint, code=failure.code) from None
    return answer


def find_module(client: RestClient, prefix: str) -> str:
    """The hash of the one module that is meant: whole, or as much of it as lists show."""
    if _SHA256.fullmatch(prefix):
        return prefix
    is_enough = len(prefix) >= MIN_PREFIX
    kept = client.get(MODULES)["modules"] if is_enough else []
    found = [str(one["sha256"]) for one in kept if one["sha256"].startswith(prefix)]
    if len(found) != 1:
        raise UsageError(
            f"`{prefix}` means {'more than one' if found else 'no'} module",
            hint=f"give {MIN_PREFIX} or more characters of a hash that `toolgate modules list` shows",
        )
    return found[0]


def build_module_path(sha256: str) -> str:
    """Where a module lives."""
    return f"{MODULES}/{quote(sha256, safe='')}"


def _is_uploaded(client: RestClient, sha256: str) -> bool:
    try:
        client.get(build_module_path(sha256))
    except CommandError as failure:
        if failure.code != "not_found":
            raise
        return False
    return True


def _load_task_module(record: FileRecord) -> ModuleFile | None:
    """The file that a task names. None: it names none, or a hash; what is not text the gateway refuses."""
    workload = record.body.get("workload") if record.kind == "task" else None
    name = workload.get("module") if isinstance(workload, Mapping) else None
    if not isinstance(name, str) or _SHA256.fullmatch(name):
        return None
    return load_module(record.file.parent / name)


def _set_module_hash(record: FileRecord, file: ModuleFile | None) -> FileRecord:
    if file is None:
        return record
    workload = {**record.body["workload"], "module": file.sha256}
    return record._replace(body={**record.body, "workload": workload})


def _check_head(path: Path, head: bytes, *, size: int) -> None:
    if head == _MAGIC + _CORE and size <= MAX_MODULE_BYTES:
        return
    if head == _MAGIC + _CORE:
        problem = f"has {size:,} bytes, and a module has at most {MAX_MODULE_BYTES:,}"
        hint = "build it for release, and strip it of names and debug information"
    elif head.startswith(_MAGIC):
        problem, hint = "is a component, not a module", "build it as a module for WASI preview 1"
    else:
        problem, hint = "is not a WebAssembly module", "compile it first: `zig cc --target=wasm32-wasi`"
    raise UsageError(f"`{path}` {problem}", hint=hint)
