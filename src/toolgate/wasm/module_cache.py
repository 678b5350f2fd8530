"""A node's cache of compiled modules: fetches, checks by hash and compiles them once; removes unused ones.

Loading a compiled module means running it, so no file that another user could have written is ever loaded.
The cache is a private directory of this user. Each file's name has its module's hash and its own, which shows
damage. A file gets its name by a rename, after it is durable. A file with another owner, mode or type is
removed, never repaired.
"""

import asyncio
import hashlib
import itertools
import logging
import os
import platform
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import KW_ONLY, InitVar, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple, Self

from toolgate.disk import sync_directory
from toolgate.errors import InvalidModule, StorageFailed, StorageUnavailable, ToolgateError
from toolgate.model.names import parse_sha256
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.wasm.compiler import CONFIG_DIGEST
from toolgate.wasm.compiling import compile_module

FetchModule = Callable[[str], AsyncGenerator[bytes, None]]
"""Reads the module with a hash. Raises only ToolgateErrors."""
NamedModules = Callable[[], Collection[str] | None]
"""The hashes that records name. None: unknown so far."""

SWEEP_EVERY_S: Final = 60.0  # a tenth of UNUSED_S; a sweep lists one directory
UNUSED_S: Final = 600.0  # how long a module stays without a record that names it; a choice
IN_USE_S: Final = 120.0  # how long a module stays at least after it was opened: enough time to load it
# Beyond these limits, the least recently used modules are removed. Choices: 256 modules of 8 MiB each.
MAX_FILES: Final = 256
MAX_BYTES: Final = 2 * 1024 * 1024 * 1024
REFUSED_S: Final = 60.0  # the pause before a module that does not compile is tried again
FETCH_DEADLINE_S: Final = 120.0  # 32 MiB at 2.2 Mbit/s
MAX_MAKING: Final = 4  # modules at once: one compiles while the others are fetched

_log: Final = logging.getLogger(__name__)
_CPUS: Final = Path("/proc/cpuinfo")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER: Final = stat.S_IRWXG | stat.S_IRWXO


class VerifiedFile(NamedTuple):
    """A verified file of this user, and its status at the time of the check."""

    path: Path
    status: tuple[int, ...]

    def is_untouched(self) -> bool:
        try:
            return _identity(self.path.lstat()) == self.status
        except OSError:
            return False


class CompiledFile(NamedTuple):
    sha256: str
    path: Path
    size: int


class CompiledFiles:
    """The files in `directory` that this build compiled for this processor."""

    def __init__(self, directory: Path) -> None:
        self._all = directory.absolute()
        self._directory = self._all / _build_id()
        self._mark = f".new-{secrets.token_hex(8)}-"
        """The prefix of this process's work directories: other prefixes are leftovers."""

    def find(self, sha256: str) -> VerifiedFile | None:
        """Find the verified file of a module. Removes any other file with its name."""
        self._prepare()
        for path in self._directory.glob(f"{sha256}.*"):
            found = _verify_file(path)
            if found is not None:
                return found
            _remove(path)
        return None

    def make_work_directory(self) -> Path:
        self._prepare()
        return Path(tempfile.mkdtemp(prefix=self._mark, dir=self._directory))

    def keep(self, compiled: Path, sha256: str) -> VerifiedFile:
        with compiled.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        path = self._directory / f"{sha256}.{digest}"
        compiled.rename(path)
        sync_directory(self._directory)
        found = _verify_file(path)
        if found is None:
            raise StorageFailed("the compiled module was damaged while it was stored")
        return found

    def list(self) -> list[CompiledFile]:
        paths = [path for path in _list_directory(self._directory) if path.name[0] != "."]
        return [CompiledFile(path.name.partition(".")[0], path, path.lstat().st_size) for path in paths]

    def sweep(self, is_wanted: Callable[[CompiledFile], bool]) -> None:
        """Remove unwanted files, those of other builds, and leftovers of crashes."""
        for one in self.list():
            if not is_wanted(one):
                _remove(one.path)
        for path in _list_directory(self._all):
            if path != self._directory:
                _remove(path)
        for path in _list_directory(self._directory):
            name = path.name
            if name.startswith(".") and not name.startswith(self._mark):
                _remove(path)

    def _prepare(self) -> None:
        """Make the private directory. Raises StorageFailed if another user may access it."""
        self._all.parent.mkdir(parents=True, exist_ok=True)
        for directory in (self._all, self._directory):
            if not _is_own_directory(directory):
                _remove(directory)
                directory.mkdir(mode=0o700, exist_ok=True)
            if not _is_own_directory(directory):
                raise StorageFailed(
                    f"other users may access `{directory}`", hint="remove it; the node creates it again"
                )


def _build_id() -> str:
    """An id of everything that compiled code depends on but its module: compiler, options and processor."""
    try:
        lines = _CPUS.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    processor = hashlib.sha256(f"{platform.machine()} {features}".encode()).hexdigest()[:8]
    return f"wasmtime-{version('wasmtime')}-{CONFIG_DIGEST}-{processor}"


def _is_own_directory(path: Path) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    is_private = not status.st_mode & _OTHERS_ENTER
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and is_private


def _verify_file(path: Path) -> VerifiedFile | None:
    """Verify a file's owner and mode, and that its content has the hash in its name."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        is_private = status.st_nlink == 1 and not status.st_mode & _OTHERS_WRITE
        if not (stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and is_private):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            is_whole = hashlib.file_digest(file, "sha256").hexdigest() == path.name.partition(".")[2]
    finally:
        os.close(descriptor)
    return VerifiedFile(path, _identity(status)) if is_whole else None


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """A value that changes with owner, mode or content."""
    return (status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_size, status.st_ctime_ns)


def _remove(path: Path) -> None:
    """Remove a file, directory or link; never a link's target."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _list_directory(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


@dataclass(eq=False)
class CompiledModules:
    """The compiled modules in a directory that no other process uses. A context manager that sweeps."""

    directory: InitVar[Path]
    fetch: FetchModule
    _: KW_ONLY
    named: NamedModules
    clock_s: Callable[[], float] = time.monotonic
    max_files: int = MAX_FILES
    max_bytes: int = MAX_BYTES
    _found: dict[str, VerifiedFile] = field(default_factory=dict, init=False)
    _making: dict[str, asyncio.Task[VerifiedFile | ToolgateError]] = field(default_factory=dict, init=False)
    _refused: dict[str, tuple[float, InvalidModule]] = field(default_factory=dict, init=False)
    """When each failed module may be tried again, and its error."""
    _opened_s: dict[str, float] = field(default_factory=dict, init=False)
    _wanted_s: dict[str, float] = field(default_factory=dict, init=False)
    """The last time when a record named a module, or it was opened."""
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_MAKING), init=False)
    _sweeper: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self, directory: Path) -> None:
        self._files = CompiledFiles(directory)

    async def __aenter__(self) -> Self:
        async def keep_sweeping() -> None:
            while True:
                await asyncio.sleep(SWEEP_EVERY_S)
                await self.sweep()

        self._sweeper = asyncio.get_running_loop().create_task(keep_sweeping())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        tasks = [*self._making.values(), *([self._sweeper] if self._sweeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def open(self, sha256: str) -> Path:
        """The compiled file of a module, to load soon. The work continues if the caller gives up."""
        sha256 = parse_sha256(sha256)
        self._opened_s[sha256] = self._wanted_s[sha256] = self.clock_s()
        found = self._found.get(sha256)
        if found is None or not found.is_untouched():
            self._found.pop(sha256, None)
            making = self._making.get(sha256)  # shared by all callers
            if making is None:
                making = self._making[sha256] = asyncio.get_running_loop().create_task(self._make(sha256))
                making.add_done_callback(lambda _: self._making.pop(sha256))
            made = await asyncio.shield(making)
            if isinstance(made, ToolgateError):
                raise made.with_traceback(None)
            found = self._found[sha256] = made
        return found.path

    async def sweep(self) -> None:
        """Remove modules unused for a while, modules over the limits, and leftovers."""
        named, now_s = self.named(), self.clock_s()
        if named is None:
            return
        self._wanted_s |= dict.fromkeys([*named, *self._making], now_s)
        self._wanted_s = {one: at_s for one, at_s in self._wanted_s.items() if now_s - at_s < UNUSED_S}
        self._opened_s = {one: at_s for one, at_s in self._opened_s.items() if one in self._wanted_s}
        self._refused = {one: refusal for one, refusal in self._refused.items() if refusal[0] > now_s}
        try:
            kept = await asyncio.to_thread(self._sweep_files, now_s)
        except OSError as exc:
            _log.warning("cannot remove unused compiled modules: %s", exc.strerror)
        else:
            self._found = {one: found for one, found in self._found.items() if one in kept}

    def _sweep_files(self, now_s: float) -> frozenset[str]:
        wanted = [one for one in self._files.list() if one.sha256 in self._wanted_s]
        wanted.sort(key=lambda one: -self._opened_s.get(one.sha256, 0.0))
        totals = itertools.accumulate(one.size for one in wanted)
        within = zip(wanted[: self.max_files], totals, strict=False)
        kept = frozenset(one.sha256 for one, total in within if total <= self.max_bytes)
        # Checked last, because a module may have been opened since.
        self._files.sweep(
            lambda one: one.sha256 in kept or now_s - self._opened_s.get(one.sha256, -IN_USE_S) < IN_USE_S
        )
        return kept

    async def _make(self, sha256: str) -> VerifiedFile | ToolgateError:
        """Find a module, or fetch, check and compile it. Returns the error if that fails."""
        until_s, refusal = self._refused.get(sha256, (0.0, None))
        if refusal is not None and self.clock_s() < until_s:
            return refusal
        try:
            async with self._places:
                found = await asyncio.to_thread(self._files.find, sha256)
                return found or await self._compile(sha256)
        except InvalidModule as exc:
            self._refused[sha256] = (self.clock_s() + REFUSED_S, exc)
            return exc
        except ToolgateError as exc:
            return exc
        except OSError as exc:
            return StorageFailed(f"cannot compile the module: {(exc.strerror or str(exc)).lower()}")

    async def _compile(self, sha256: str) -> VerifiedFile:
        directory = await asyncio.to_thread(self._files.make_work_directory)
        try:
            source, target = directory / "module.wasm", directory / "compiled"
            await self._download(sha256, source)
            await compile_module(source, target)
            return await asyncio.to_thread(self._files.keep, target, sha256)
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _download(self, sha256: str, path: Path) -> None:
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("xb") as file:
                async with asyncio.timeout(FETCH_DEADLINE_S), aclosing(self.fetch(sha256)) as pieces:
                    async for piece in pieces:
                        size += len(piece)
                        if size > MAX_MODULE_BYTES:
                            raise InvalidModule(f"the module has more than {MAX_MODULE_BYTES} bytes")
                        digest.update(piece)
                        await asyncio.to_thread(file.write, piece)
        except TimeoutError as exc:
            raise StorageUnavailable(f"cannot fetch the module within {FETCH_DEADLINE_S:g} s") from exc
        if digest.hexdigest() != sha256:
            raise StorageFailed("the fetched module has another hash")
