"""The SQL under the store: tables, the statements of transactions, and the engines that run them.

- `tables.py`, `statements.py`  the same for every engine
- `transactions.py`  runs transactions on threads, for the event loop
- `sqlite.py`, `postgresql.py`  the engines; PostgreSQL is loaded only when it is used

The store, the tables next to it and the audit index use it. It never decides what is written. It also has
durable directories and locked files without SQL, which nodes use, too. The kernel drops a lock with its
process, so a kill -9 leaves no lock behind.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from toolgate.errors import StartRefused


def sync_directory(directory: Path) -> None:
    """Make created, renamed and deleted names in `directory` durable: a file's own fsync does not."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
