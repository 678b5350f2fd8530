"""Records as people write them: one in a TOML or JSON file, or on standard input as JSON.

The gateway checks what a record says; here only its outer form is read and put right.
"""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate.cli.failure import CommandFailed, Exit
from toolgate.model.revisions import Kind

WRITTEN_KINDS: Final[tuple[Kind, ...]] = ("server", "task", "profile")
"""What people write into files. The field `<kind>_id` names a record, and by being there tells its kind."""

STANDARD_INPUT: Final = Path("-")


class Record(NamedTuple):
    """One record, its kind known, its policy not yet checked."""

    kind: Kind
    id: str
    body: dict[str, Any]


def load_record(path: Path, *, kind: Kind | None = None) -> Record:
    """The record in `path`; `-` is standard input. With `kind`, no other will do."""
    body = _load_object(path)
    found = _kind_of(body)
    if found is None or kind not in {None, found}:
        wanted = f"`{kind}_id`" if kind else "`server_id`, `task_id` or `profile_id`"
        is_foreign = "mcpServers" in body
        raise CommandFailed(
            f"`{path}` is not a {kind or 'record'}: it has no {wanted}",
            hint="this is another program's file: take its servers over with `toolgate servers import`"
            if is_foreign
            else "name the record in that field, at the top of the file",
            exit_code=Exit.USAGE,
        )
    record_id = body[f"{found}_id"]
    if not isinstance(record_id, str):
        raise CommandFailed(f"`{path}`: `{found}_id` is not text", exit_code=Exit.USAGE)
    return Record(found, record_id, _task_body(body) if found == "task" else body)


def read_text(path: Path) -> str:
    """What is in a file, or in standard input."""
    try:
        return sys.stdin.read() if path == STANDARD_INPUT else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandFailed(f"cannot read `{path}`: {exc}", exit_code=Exit.USAGE) from exc


def _load_object(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        value = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CommandFailed(
            f"`{path}` is neither TOML nor JSON as its name says: {exc}",
            hint="mend the file; TOML files end in `.toml`, everything else is read as JSON",
            exit_code=Exit.USAGE,
        ) from exc
    if not isinstance(value, dict):
        raise CommandFailed(f"`{path}` does not hold an object", exit_code=Exit.USAGE)
    return value


def _kind_of(body: Mapping[str, Any]) -> Kind | None:
    kinds = [kind for kind in WRITTEN_KINDS if f"{kind}_id" in body]
    return kinds[0] if len(kinds) == 1 else None


def _task_body(body: dict[str, Any]) -> dict[str, Any]:
    """The task with its `config` as the gateway keeps it: keys to JSON text."""
    config = body.get("config", {})
    if not isinstance(config, Mapping):
        return body
    return {**body, "config": {key: _config_text(value) for key, value in _dotted(config).items()}}


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """`mcp.enabled = true` in TOML is a table `mcp`; its keys are meant to be `mcp.enabled`."""
    flat = dict(config)
    nested = flat.pop("mcp", None)
    if isinstance(nested, Mapping):
        flat |= {f"mcp.{key}": value for key, value in nested.items()}
    elif nested is not None:
        flat["mcp"] = nested
    return flat


def _config_text(value: Any) -> str:
    """A value as JSON text. Text that is JSON already stays; any other text is meant as a JSON string."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    try:
        json.loads(value)
    except ValueError:
        return json.dumps(value, ensure_ascii=False)
    return value
