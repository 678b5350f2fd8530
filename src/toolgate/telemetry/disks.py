"""Whether a disk is full, so that a failure is called that and not damage."""

import errno
import os
from pathlib import Path
from typing import Final

NEARLY_NONE: Final = 64 * 1024
"""Bytes. SQLite calls what it cannot write on a full disk an I/O error, too."""
HINT: Final = "free space there and start again: nothing in the directory is damaged by this"


def describe_full_disk(path: Path, exc: BaseException | None = None) -> str | None:
    """What to say where the disk of `path`, whose use failed with `exc`, is full; None where it is not."""
    is_told = isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)
    if not is_told and not _has_no_room(path.parent):
        return None
    return f"the disk is full: no room for `{path}`"


def _has_no_room(directory: Path) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < NEARLY_NONE
