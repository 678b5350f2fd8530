"""Files that are locked, replaced as a whole, or made durable, for every package that keeps some.

The kernel drops a lock with its process, so a kill -9 leaves no lock behind. Never decides what a file holds.
"""

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolgate.errors import StartRefused

DRAFT_SUFFIX: Final = ".new"
"""Of files that `replace_file` has not renamed yet. A crash may leave one."""


def sync_directory(directory: Path) -> None:
    """Make created, renamed and deleted names in `directory` durable: a file's own fsync does not."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, *, is_synced: bool = True, keeps_mode: bool = False) -> None:
    """Write a new file, for its owner only, and rename it: a crash leaves the old one or the new one.

    An existing file may be a link, or readable by others: `keeps_mode` keeps that. Without `is_synced`, the
    new one may be incomplete after a power cut. Raises OSError.
    """
    mode = stat.S_IMODE(path.stat().st_mode) if keeps_mode and path.exists() else 0o600
    handle, name = tempfile.mkstemp(DRAFT_SUFFIX, f".{path.name}.", path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if is_synced:
                file.flush()
                os.fsync(handle)
        draft.chmod(mode)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def lock_file(path: Path) -> int:
    """Lock `path` by a file next to it. Returns its descriptor: closing it releases the lock. Raises
    StartRefused if another process holds the lock."""
    lock_path = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StartRefused(f"cannot use `{path.parent}` for data: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StartRefused(
            f"`{path.parent}` is in use by another Toolgate process ({holder})",
            hint="stop that process, or set another data directory",
        ) from exc
    # Only for the message above: a full disk must not prevent a start.
    with suppress(OSError):
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor
