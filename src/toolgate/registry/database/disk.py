"""What a file needs beyond its own fsync to be there after a crash.

Files that one process alone may use: a lock beside each, which the kernel drops with the process.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from toolgate.errors import StartRefused


def sync_directory(directory: Path) -> None:
    """Make names that came or went in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_file(path: Path) -> int:
    """The descriptor of an exclusive lock for `path`: closing it gives the lock back, and so does kill -9.

    Raises StartRefused where another process has it.
    """
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
            f"`{path.parent}` is in use by another Toolgate, process {holder}",
            hint="stop that process, or give this one another data directory",
        ) from exc
    # Only for the message above: a full disk is no reason not to start.
    with suppress(OSError):
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor
