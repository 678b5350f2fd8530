"""Compiled modules on the disk. To load one is to run it, so none is loaded that others could have written.

They lie in a directory of our own that nobody else may enter. Each is named for its module and for its own
content, by which damage is found; it gets its name by a rename, when all of it is on the disk. What is not
ours by its owner, its mode or its kind is removed, never mended.
"""

import hashlib
import os
import platform
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from toolgate.errors import StorageFailed
from toolgate.wasm.engine import CONFIG_DIGEST

_CPUS: Final = Path("/proc/cpuinfo")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER: Final = stat.S_IRWXG | stat.S_IRWXO


class OwnFile(NamedTuple):
    """A file that was found to be ours and as it was written, and how it looked then."""

    path: Path
    status: tuple[int, ...]

    def is_untouched(self) -> bool:
        try:
            return _identity(self.path.lstat()) == self.status
        except OSError:
            return False


class Kept(NamedTuple):
    """One compiled module on the disk."""

    sha256: str
    path: Path
    size: int


class OwnFiles:
    """The files in `directory` that this version of everything has compiled."""

    def __init__(self, directory: Path) -> None:
        self._all = directory.absolute()
        self._directory = self._all / _build()
        self._mark = f".new-{secrets.token_hex(8)}-"
        """Before the names of what this process is at making: those of others are leftovers."""

    def find(self, sha256: str) -> OwnFile | None:
        """That of a module, whole and ours; whatever else has its name is removed."""
        self._prepare()
        for path in self._directory.glob(f"{sha256}.*"):
            found = _verified(path)
            if found is not None:
                return found
            _remove(path)
        return None

    def new_workshop(self) -> Path:
        """A directory to make one in."""
        self._prepare()
        return Path(tempfile.mkdtemp(prefix=self._mark, dir=self._directory))

    def keep(self, compiled: Path, sha256: str) -> OwnFile:
        """Give what was compiled its name."""
        path = self._directory / f"{sha256}.{_digest(compiled)}"
        compiled.rename(path)
        _flush_directory(self._directory)
        found = _verified(path)
        if found is None:
            raise StorageFailed("the compiled module is not on the disk as it was written")
        return found

    def list(self) -> list[Kept]:
        """All that have a name."""
        names = [path.name for path in _entries(self._directory)]
        paths = [self._directory / name for name in names if not name.startswith(".")]
        return [Kept(path.name.partition(".")[0], path, path.lstat().st_size) for path in paths]

    def sweep(self, is_wanted: Callable[[Kept], bool]) -> None:
        """Remove those that are not wanted, what other versions compiled, and what a crash has left."""
        for one in self.list():
            if not is_wanted(one):
                _remove(one.path)
        for path in _entries(self._all):
            if path != self._directory:
                _remove(path)
        for name in [path.name for path in _entries(self._directory)]:
            if name.startswith(".") and not name.startswith(self._mark):
                _remove(self._directory / name)

    def _prepare(self) -> None:
        """Raises StorageFailed where the directory cannot be our own."""
        self._all.parent.mkdir(parents=True, exist_ok=True)
        for directory in (self._all, self._directory):
            if not _is_own_directory(directory):
                _remove(directory)
                directory.mkdir(mode=0o700, exist_ok=True)
            if not _is_own_directory(directory):
                raise StorageFailed(
                    f"`{directory}` is not this user's alone", hint="remove it: it will be made again"
                )


def _build() -> str:
    """What compiled code depends on beside its module: whoever compiled, how, and for which processor."""
    return f"wasmtime-{version('wasmtime')}-{CONFIG_DIGEST}-{_processor()}"


def _processor() -> str:
    try:
        lines = _CPUS.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:8]


def _is_own_directory(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    is_private = not status.st_mode & _OTHERS_ENTER
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and is_private


def _verified(path: Path) -> OwnFile | None:
    """Of a path in our own directory: whether it is a file of ours, with the content it is named for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not _is_own_file(status):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            is_whole = hashlib.file_digest(file, "sha256").hexdigest() == path.name.partition(".")[2]
    finally:
        os.close(descriptor)
    return OwnFile(path, _identity(status)) if is_whole else None


def _is_own_file(status: os.stat_result) -> bool:
    is_private = status.st_nlink == 1 and not status.st_mode & _OTHERS_WRITE
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and is_private


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Whoever changes owner, mode or content changes this."""
    return (status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_size, status.st_ctime_ns)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Whatever it is; what it leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []
