"""What a file needs beyond its own fsync to be there after a crash."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make names that came or went in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
