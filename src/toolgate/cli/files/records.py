"""Records as people write them: in TOML and JSON files, in directories of them, or on standard input as JSON.

The gateway checks what a record says; here only its outer form is read and put right.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate.cli.failure import UsageError
from toolgate.model.revisions import Kind, describe_kind
from toolgate.registry.files.documents import parse_toml

ID_FIELDS: Final[Mapping[Kind, str]] = {
    "server": "server_id",
    "task": "task_id",
    "profile": "profile_id",
    "chat_upstream": "upstream_id",
}
"""What people write into files, and the field that names a record, and by being there tells its kind."""
_ANY_ID: Final = "`server_id`, `task_id`, `profile_id` or `upstream_id`"

STANDARD_INPUT: Final = Path("-")
SUFFIXES: Final = (".toml", ".json")


class FileRecord(NamedTuple):
    """One record, its kind known, its policy not yet checked."""

    kind: Kind
    id: str
    body: dict[str, Any]
    file: Path = STANDARD_INPUT
    text: str = ""
    """The text of the file, to find the line of a problem."""


def load_record(path: Path, *, kind: Kind | None = None) -> FileRecord:
    """The one record in `path`; `-` is standard input. With `kind`, no other will do."""
    text = read_text(path)
    return _parse_record(path, text, _parse_object(path, text), kind=kind)


def load_object(path: Path) -> dict[str, Any]:
    """The object in `path`, record or not; `-` is standard input."""
    return _parse_object(path, read_text(path))


def load_records(paths: Sequence[Path]) -> list[FileRecord]:
    """Every record in the files, and in all files under the directories. None is there twice."""
    files = [file for path in paths for file in _walk_files(path)]
    records = [record for file in files for record in _records_in(file)]
    if not records:
        raise UsageError(
            f"there is no record in {', '.join(f'`{path}`' for path in paths)}",
            hint=f"a record is a `.toml` or `.json` file with {_ANY_ID}",
        )
    _reject_duplicates(records)
    return records


def read_text(path: Path) -> str:
    """What is in a file, or in standard input."""
    try:
        return sys.stdin.read() if path == STANDARD_INPUT else path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read `{path}`: {exc}") from exc


def _walk_files(path: Path) -> Iterator[Path]:
    """`path`, or the files under it in the order of their names. What is hidden is passed over."""
    if not path.is_dir():
        yield path
        return
    for directory, inner, names in os.walk(path, onerror=_reject_directory):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                yield Path(directory, name)


def _reject_directory(exc: OSError) -> None:
    # Half of a directory must not pass for the whole: with --prune the other half would be removed.
    raise UsageError(f"cannot read `{exc.filename}`: {exc.strerror}") from exc


def _records_in(path: Path) -> Iterator[FileRecord]:
    text = read_text(path)
    value = _parse(path, text)
    for body in value if isinstance(value, list) else [value]:
        if not isinstance(body, dict):
            raise UsageError(f"`{path}` holds neither an object nor a list of objects")
        yield _parse_record(path, text, body)


def _parse_object(path: Path, text: str) -> dict[str, Any]:
    found = _parse(path, text)
    if not isinstance(found, dict):
        raise UsageError(f"`{path}` does not hold an object")
    return found


def _parse(path: Path, text: str) -> Any:
    try:
        return parse_toml(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise UsageError(
            f"`{path}` is neither TOML nor JSON as its name says: {exc}",
            hint="mend the file; TOML files end in `.toml`, everything else is read as JSON",
        ) from exc


def _parse_record(path: Path, text: str, body: dict[str, Any], *, kind: Kind | None = None) -> FileRecord:
    found = _detect_kind(body)
    if found is None or kind not in {None, found}:
        wanted = f"`{ID_FIELDS[kind]}`" if kind is not None else _ANY_ID
        is_foreign = "mcpServers" in body
        raise UsageError(
            f"`{path}` is not a {describe_kind(kind) if kind else 'record'}: it has no {wanted}",
            hint="this is another program's file: take its servers over with `toolgate servers import`"
            if is_foreign
            else "name the record in that field, at the top of the file",
        )
    id_field = ID_FIELDS.get(found, "server_id")
    record_id = body[id_field]
    if not isinstance(record_id, str):
        raise UsageError(f"`{path}`: `{id_field}` is not text")
    return FileRecord(found, record_id, _task_body(body) if found == "task" else body, path, text)


def _detect_kind(body: Mapping[str, Any]) -> Kind | None:
    kinds = [kind for kind, id_field in ID_FIELDS.items() if id_field in body]
    if kinds == ["server"] and "tools" in body and "transport" not in body:
        return "pin"  # which names its server, and the digests of its tools
    return kinds[0] if len(kinds) == 1 else None


def _reject_duplicates(records: Iterable[FileRecord]) -> None:
    seen: dict[tuple[Kind, str], FileRecord] = {}
    for record in records:
        earlier = seen.setdefault((record.kind, record.id), record)
        if earlier is not record:
            raise UsageError(
                f"duplicate {record.kind} `{record.id}`: in `{earlier.file}` and in `{record.file}`",
                hint="keep one of the two",
            )


def _task_body(body: dict[str, Any]) -> dict[str, Any]:
    """The task with its `config` as the gateway keeps it: keys to JSON text."""
    config = body.get("config", {})
    if not isinstance(config, Mapping):
        return body
    return {
        **body,
        "config": {key: _encode_config_value(value) for key, value in _flatten_config(config).items()},
    }


def _flatten_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`mcp.enabled = true` in TOML is a table `mcp`; its keys are meant to be `mcp.enabled`."""
    flat = dict(config)
    for prefix in ("mcp", "chat"):
        if isinstance(nested := flat.get(prefix), Mapping):
            del flat[prefix]
            flat |= {f"{prefix}.{key}": value for key, value in nested.items()}
    return flat


def _encode_config_value(value: Any) -> str:
    """A value as JSON text. Text that is JSON already stays; any other text is meant as a JSON string."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    try:
        json.loads(value)
    except ValueError:
        return json.dumps(value, ensure_ascii=False)
    return value
