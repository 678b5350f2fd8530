"""One entry put into another program's configuration file, and nothing else there touched.

The file is replaced whole or not at all, a copy of the old one stays next to it, and a file that cannot
be read as plain JSON is refused: rewriting it would lose what we did not understand.
"""

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from toolgate.cli.failure import CommandError

_FIRST_INDENT: Final = re.compile(r"\n([ \t]+)\S")


class MergeResult(NamedTuple):
    """What became of a file. `backup` is None where there was nothing to keep."""

    path: Path
    is_changed: bool
    backup: Path | None = None


class _DuplicateKey(ValueError):
    """A duplicate key: one of the two would be lost."""


def merge_entry(
    path: Path, section: str, name: str, entry: Mapping[str, Any], *, now: datetime
) -> MergeResult:
    """Put `entry` as `name` under `section` of the JSON file at `path`, making the file if need be."""
    # Through links: a user who keeps settings elsewhere wants that file changed, not the link.
    path = path.resolve()
    old_text = _read(path)
    document = _parse(path, old_text)
    servers = document.setdefault(section, {})
    if not isinstance(servers, dict):
        raise _refuse(path, f"`{section}` in it is not an object")
    present = servers.get(name)
    merged = _merge(path, name, present, entry)
    if merged == present:
        return MergeResult(path, is_changed=False)
    servers[name] = merged
    return _replace(path, old_text, _encode(document, old_text), now)


def _merge(path: Path, name: str, present: Any, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Our entry is updated and keeps what its user added; another's is left alone."""
    if present is None:
        return dict(entry)
    if not isinstance(present, dict) or _address(present) != _address(entry):
        raise CommandError(
            f"`{path}` already has a server `{name}` that is not this gateway",
            hint="choose another name with --name",
        )
    return {**present, **entry}


def _address(entry: Mapping[str, Any]) -> str | None:
    """Host and port of the gateway an entry leads to, wherever it keeps the URL."""
    candidates = [entry.get("url"), entry.get("serverUrl"), *(entry.get("args") or [])]
    for one in candidates:
        if isinstance(one, str) and one.startswith(("http://", "https://")):
            return urlsplit(one).netloc
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise _refuse(path, f"it cannot be read: {exc}") from exc


def _parse(path: Path, text: str | None) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    try:
        document = json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    except _DuplicateKey as exc:
        raise _refuse(path, str(exc)) from exc
    except (ValueError, RecursionError) as exc:
        raise _refuse(path, f"it is not plain JSON ({exc}); comments, too, would be lost") from exc
    if not isinstance(document, dict):
        raise _refuse(path, "it does not hold an object")
    return document


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise _DuplicateKey(f"duplicate key `{repeated}`")
    return found


def _reject_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not JSON")


def _encode(document: Mapping[str, Any], old_text: str | None) -> str:
    """The document in the old file's indentation."""
    found = _FIRST_INDENT.search(old_text or "")
    text = json.dumps(document, indent=found[1] if found else 2, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Half a surrogate pair, as `\\ud83d`: it can only be written the way it stood there.
        text = json.dumps(document, indent=found[1] if found else 2)
    return text + "\n"


def _replace(path: Path, old_text: str | None, new_text: str, now: datetime) -> MergeResult:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = None if old_text is None else _back_up(path, now)
        _write_atomically(path, new_text)
    except OSError as exc:
        raise _refuse(path, f"it cannot be written: {exc}") from exc
    return MergeResult(path, is_changed=True, backup=backup)


def _back_up(path: Path, now: datetime) -> Path:
    """A copy with the same bytes and permissions, under a new name."""
    backup = path.with_name(f"{path.name}.{now:%Y%m%d-%H%M%S-%f}.bak")
    content = path.read_bytes()
    with os.fdopen(os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    backup.chmod(stat.S_IMODE(path.stat().st_mode))
    return backup


def _write_atomically(path: Path, text: str) -> None:
    """A file of its own first, then one rename: a crash leaves the old file or the new one."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _refuse(path: Path, why: str) -> CommandError:
    return CommandError(
        f"`{path}` is left as it is: {why}",
        hint="add the entry by hand: the same command without --write prints it",
    )
