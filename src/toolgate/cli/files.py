"""Files that people write and commands send: records, and the modules that tasks run.

Records are TOML and JSON files, directories of them, or JSON on standard input. Only their outer form is
parsed here; the gateway checks the rest. Modules are next to the records that name them. They are uploaded in
parts, and parts that the gateway already has are not sent again.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from rich.console import Console

from toolgate.cli.command import CommandError, StepProgress, UsageError, open_console
from toolgate.cli.render.layout import JsonObject, encode_json, render_warnings
from toolgate.cli.rest import RestClient, build_path
from toolgate.model.packages import MAX_PART_BYTES
from toolgate.model.revisions import Kind, describe_kind
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.registry.files.documents import parse_toml

ID_FIELDS: Final[Mapping[Kind, str]] = {
    "server": "server_id",
    "task": "task_id",
    "profile": "profile_id",
    "chat_upstream": "upstream_id",
}
"""Kind of record → the field with its id, by which a file of that kind is recognized."""
_ANY_ID: Final = "`server_id`, `task_id`, `profile_id` or `upstream_id`"

STANDARD_INPUT: Final = Path("-")
SUFFIXES: Final = (".toml", ".json")


class FileRecord(NamedTuple):
    """One record of a known kind, whose content is unchecked."""

    kind: Kind
    id: str
    body: dict[str, Any]
    file: Path = STANDARD_INPUT
    text: str = ""
    """The text of the file, to find the line of a problem."""


def load_record(path: Path, *, kind: Kind | None = None) -> FileRecord:
    """The one record in `path`; `-` is standard input. With `kind`, another kind is an error."""
    text = read_text(path)
    return _parse_record(path, text, load_object(path, text), kind=kind)


def load_object(path: Path, text: str | None = None) -> dict[str, Any]:
    """The object in `path`, or in its `text`; `-` is standard input."""
    found = _parse(path, read_text(path) if text is None else text)
    if not isinstance(found, dict):
        raise UsageError(f"`{path}` does not contain an object")
    return found


def load_records(paths: Sequence[Path]) -> list[FileRecord]:
    """Every record in the files, and in all files under the directories. A duplicate is an error."""
    records: list[FileRecord] = []
    for file in (file for path in paths for file in _walk_files(path)):
        text = read_text(file)
        value = _parse(file, text)
        for body in value if isinstance(value, list) else [value]:
            if not isinstance(body, dict):
                raise UsageError(f"`{file}` contains neither an object nor a list of objects")
            records.append(_parse_record(file, text, body))
    if not records:
        hint = f"a record is a `.toml` or `.json` file with {_ANY_ID}"
        raise UsageError(f"no record found in {', '.join(f'`{path}`' for path in paths)}", hint=hint)
    seen: dict[tuple[Kind, str], FileRecord] = {}
    for record in records:
        earlier = seen.setdefault((record.kind, record.id), record)
        if earlier is not record:
            where = f"in `{earlier.file}` and in `{record.file}`"
            raise UsageError(f"duplicate {record.kind} `{record.id}`: {where}", hint="keep one of the two")
    return records


def read_text(path: Path) -> str:
    """The text of a file, or of standard input."""
    try:
        return sys.stdin.read() if path == STANDARD_INPUT else path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read `{path}`: {exc}") from exc


def _walk_files(path: Path) -> Iterator[Path]:
    """`path`, or the files under it in the order of their names, without hidden ones."""
    if not path.is_dir():
        yield path
        return

    def reject_directory(exc: OSError) -> None:
        # Half of a directory must not pass for all of it: --prune would delete the other half.
        raise UsageError(f"cannot read `{exc.filename}`: {exc.strerror}") from exc

    for directory, inner, names in os.walk(path, onerror=reject_directory):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield Path(directory, name)


def _parse(path: Path, text: str) -> Any:
    try:
        return parse_toml(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as exc:
        hint = "correct the file; names of TOML files end in `.toml`, all others are read as JSON"
        raise UsageError(f"cannot parse `{path}`: {exc}", hint=hint) from exc


def _parse_record(path: Path, text: str, body: dict[str, Any], *, kind: Kind | None = None) -> FileRecord:
    kinds = [one for one, id_field in ID_FIELDS.items() if id_field in body]
    found = kinds[0] if len(kinds) == 1 else None
    if found == "server" and "tools" in body and "transport" not in body:
        found = "pin"  # a pin has the id of its server, and digests of tools
    if found is None or kind not in {None, found}:
        hint = "add the id of the record in that field, at the top of the file"
        if "mcpServers" in body:
            hint = "this is a file of another program: import its servers with `toolgate servers import`"
        wanted = _ANY_ID if kind is None else f"`{ID_FIELDS.get(kind, 'server_id` with `tools')}`"
        what = "record" if kind is None else describe_kind(kind)
        raise UsageError(f"`{path}` is not a {what}: it has no {wanted}", hint=hint)
    id_field = ID_FIELDS.get(found, "server_id")
    record_id = body[id_field]
    if not isinstance(record_id, str):
        raise UsageError(f"`{path}`: `{id_field}` is not text")
    return FileRecord(found, record_id, _task_body(body) if found == "task" else body, path, text)


def _task_body(body: dict[str, Any]) -> dict[str, Any]:
    """The task with its `config` as the gateway stores it: keys to JSON text.

    `mcp.enabled = true` in TOML is a table `mcp`; its keys become `mcp.enabled`.
    """
    config = body.get("config", {})
    if not isinstance(config, Mapping):
        return body
    flat = dict(config)
    for prefix in ("mcp", "chat"):
        if isinstance(nested := flat.get(prefix), Mapping):
            del flat[prefix]
            flat |= {f"{prefix}.{key}": value for key, value in nested.items()}
    return {**body, "config": {key: _encode_config_value(value) for key, value in flat.items()}}


def _encode_config_value(value: Any) -> str:
    """A value as JSON text. Text that is JSON stays; any other text becomes a JSON string."""
    if isinstance(value, str):
        with suppress(ValueError):
            json.loads(value)
            return value
    return json.dumps(value, ensure_ascii=False)


def write_json(path: Path, value: JsonObject) -> None:
    """Write one object to a file, for people to read and edit."""
    try:
        path.write_text(encode_json(value, indent=2) + "\n", "utf-8")
    except OSError as exc:
        hint = "choose a file in a writable directory"
        raise UsageError(f"cannot write `{path}`: {exc.strerror}", hint=hint) from exc


ReportProgress = Callable[[str], None]


def open_progress(*, as_json: bool) -> StepProgress:
    """Steps, shown on a terminal only."""
    if as_json or not sys.stderr.isatty():
        return StepProgress(Console(quiet=True))
    return StepProgress(open_console(to_stderr=True))


def upload(
    client: RestClient, file: BinaryIO, sha256: str, kept_at: str, report: ReportProgress
) -> JsonObject:
    """Send the missing parts and store the file. Returns the gateway's response."""
    size = file.seek(0, 2)
    count = max(1, -(-size // MAX_PART_BYTES))
    path = f"/api/uploads/{sha256}"
    headers = {"content-type": "application/octet-stream"}
    there = set(client.get(path)["parts"])
    for number in range(1, count + 1):
        report(f"{(number - 1) * 100 // count} %")
        if number not in there:
            file.seek((number - 1) * MAX_PART_BYTES)
            client.send("PUT", f"{path}/{number}", file.read(MAX_PART_BYTES), headers=headers)
    return client.post(kept_at, {"parts": count})


MODULES: Final = "/admin/api/modules"
MIN_PREFIX: Final = 8  # 32 bits: unique among a few thousand modules

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAGIC: Final = b"\0asm"
_CORE: Final = b"\1\0\0\0"
"""The version of a module. A component has another."""


class ModuleFile(NamedTuple):
    """A file with the header of a module."""

    path: Path
    sha256: str


def load_module(path: Path) -> ModuleFile:
    """The module in a file. Raises UsageError."""
    try:
        with path.open("rb") as file:
            _check_head(path, file.read(8), size=file.seek(0, 2))
            file.seek(0)
            return ModuleFile(path=path, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as exc:
        where = "relative to the record's file"
        hint = f"give a `.wasm` file {where}, or the SHA-256 of an uploaded one"
        raise UsageError(f"cannot read the module `{path}`: {exc.strerror}", hint=hint) from exc


def hash_modules(records: Sequence[FileRecord]) -> tuple[list[FileRecord], list[ModuleFile]]:
    """The records with hashes in place of file names, and the files."""
    hashed, files = list(records), []
    for at, record in enumerate(records):
        workload = record.body.get("workload") if record.kind == "task" else None
        name = workload.get("module") if isinstance(workload, Mapping) else None
        # A hash stays; the gateway rejects what is not text.
        if isinstance(workload, Mapping) and isinstance(name, str) and not _SHA256.fullmatch(name):
            files.append(load_module(record.file.parent / name))
            named = {**workload, "module": files[-1].sha256}
            hashed[at] = record._replace(body={**record.body, "workload": named})
    return hashed, files


def send_modules(client: RestClient, files: Iterable[ModuleFile], *, as_json: bool) -> None:
    """Upload the modules that the gateway does not have. Warnings go to standard error."""
    for file in {one.sha256: one for one in files}.values():
        if client.find(build_path(MODULES, file.sha256)) is None:
            found = render_warnings(send_module(client, file, as_json=as_json)["warnings"])
            if found is not None and not as_json:
                open_console(to_stderr=True).print(found)


def send_module(client: RestClient, file: ModuleFile, *, as_json: bool) -> JsonObject:
    """Upload one module. Returns the gateway's response."""
    progress = open_progress(as_json=as_json)
    try:
        with progress.step(f"uploading {file.path}") as report, file.path.open("rb") as content:
            return upload(client, content, file.sha256, build_path(MODULES, file.sha256), report)
    except CommandError as failure:
        if failure.code != "invalid_module":
            raise
        raise CommandError(f"{file.path}: {failure}", hint=failure.hint, code=failure.code) from None


def find_module(client: RestClient, prefix: str) -> str:
    """The hash of the module that a prefix of it selects. Raises UsageError."""
    if _SHA256.fullmatch(prefix):
        return prefix
    is_enough = len(prefix) >= MIN_PREFIX
    kept = client.get(MODULES)["modules"] if is_enough else []
    found = [str(one["sha256"]) for one in kept if one["sha256"].startswith(prefix)]
    if len(found) != 1:
        hint = f"give {MIN_PREFIX} or more characters of a hash in `toolgate modules list`"
        raise UsageError(f"`{prefix}` matches {'more than one' if found else 'no'} module", hint=hint)
    return found[0]


def _check_head(path: Path, head: bytes, *, size: int) -> None:
    if head == _MAGIC + _CORE and size <= MAX_MODULE_BYTES:
        return
    if head == _MAGIC + _CORE:
        problem = f"has {size:,} bytes; the limit is {MAX_MODULE_BYTES:,}"
        hint = "build it for release, and strip names and debug information"
    elif head.startswith(_MAGIC):
        problem, hint = "is a component, not a module", "build it as a module for WASI preview 1"
    else:
        problem, hint = "is not a WebAssembly module", "compile it first: `zig cc --target=wasm32-wasi`"
    raise UsageError(f"`{path}` {problem}", hint=hint)
