"""Compiled modules as this node runs them: fetched, checked by hash, compiled once, removed when unused."""

import asyncio
import hashlib
import itertools
import logging
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from pathlib import Path
from typing import Final, Self

from toolgate.errors import InvalidModule, StorageFailed, StorageUnavailable, ToolgateError
from toolgate.model.names import parse_sha256
from toolgate.model.workloads import MAX_MODULE_BYTES
from toolgate.wasm.compiling import compile_module
from toolgate.wasm.own_files import Kept, OwnFile, OwnFiles

FetchModule = Callable[[str], AsyncGenerator[bytes, None]]
"""Reads the module of a hash. What it raises is a ToolgateError."""
Named = Callable[[], Collection[str] | None]
"""The hashes that some record names. None: not known yet."""

SWEEP_EVERY_S: Final = 60.0
UNUSED_S: Final = 600.0
"""When what no record names may go."""
IN_USE_S: Final = 120.0
"""How long after it was asked for one stays in any case: whoever asked has loaded it by then."""
MAX_FILES: Final = 256
MAX_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Past these, the ones that were used longest ago go."""
REFUSED_S: Final = 60.0
"""How long a module that cannot be compiled is not tried again."""
FETCH_DEADLINE_S: Final = 120.0
MAX_MAKING: Final = 4
"""At once, of which one compiles and the others are fetched."""

_log: Final = logging.getLogger(__name__)


class CompiledModules:
    """Those in `directory`, which is this process's own. Within its block, it also clears up."""

    def __init__(
        self,
        directory: Path,
        fetch: FetchModule,
        *,
        named: Named,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = OwnFiles(directory)
        self._fetch = fetch
        self._named = named
        self._clock_s = clock_s
        self._found: dict[str, OwnFile] = {}
        self._making: dict[str, asyncio.Task[OwnFile | ToolgateError]] = {}
        self._refused: dict[str, tuple[float, InvalidModule]] = {}
        """Until when, and why."""
        self._opened_s: dict[str, float] = {}
        self._wanted_s: dict[str, float] = {}
        """When some record last named a module, or somebody asked for it."""
        self._places = asyncio.Semaphore(MAX_MAKING)
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sweeper = asyncio.get_running_loop().create_task(self._keep_sweeping())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        tasks = [*self._making.values(), *([self._sweeper] if self._sweeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def open(self, sha256: str) -> Path:
        """The compiled file of a module, to be loaded soon. Raises InvalidModule, or why it cannot be had.

        Whoever waits may give up: the work goes on, and the next one finds it done.
        """
        sha256 = parse_sha256(sha256)
        self._opened_s[sha256] = self._wanted_s[sha256] = self._clock_s()
        found = self._found.get(sha256)
        if found is None or not found.is_untouched():
            self._found.pop(sha256, None)
            made = await asyncio.shield(self._begin(sha256))
            if isinstance(made, ToolgateError):
                raise made.with_traceback(None)
            found = self._found[sha256] = made
        return found.path

    async def sweep(self) -> None:
        """Remove what has had no use for a while, what is too much, and what others have left."""
        named, now_s = self._named(), self._clock_s()
        if named is None:
            return
        self._wanted_s |= dict.fromkeys([*named, *self._making], now_s)
        self._wanted_s = {one: at_s for one, at_s in self._wanted_s.items() if now_s - at_s < UNUSED_S}
        self._opened_s = {one: at_s for one, at_s in self._opened_s.items() if one in self._wanted_s}
        self._refused = {one: refusal for one, refusal in self._refused.items() if refusal[0] > now_s}
        try:
            kept = await asyncio.to_thread(self._sweep_files, now_s)
        except OSError as exc:
            _log.warning("unused compiled modules were not removed: %s", exc.strerror)
        else:
            self._found = {one: found for one, found in self._found.items() if one in kept}

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            await self.sweep()

    def _sweep_files(self, now_s: float) -> frozenset[str]:
        wanted = [one for one in self._files.list() if one.sha256 in self._wanted_s]
        used_first = sorted(wanted, key=lambda one: -self._opened_s.get(one.sha256, 0.0))
        kept = _within_limits(used_first)
        # Asked at the last moment: somebody may have opened one since.
        self._files.sweep(lambda one: one.sha256 in kept or self._is_in_use(one.sha256, now_s))
        return kept

    def _is_in_use(self, sha256: str, now_s: float) -> bool:
        return now_s - self._opened_s.get(sha256, -IN_USE_S) < IN_USE_S

    def _begin(self, sha256: str) -> asyncio.Task[OwnFile | ToolgateError]:
        """The one task that makes this file, for all who want it."""
        task = self._making.get(sha256)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._make(sha256))
            self._making[sha256] = task
            task.add_done_callback(lambda _: self._making.pop(sha256))
        return task

    async def _make(self, sha256: str) -> OwnFile | ToolgateError:
        """Find it, or fetch, check and compile it. What is wrong, if that fails."""
        until_s, refusal = self._refused.get(sha256, (0.0, None))
        if refusal is not None and self._clock_s() < until_s:
            return refusal
        try:
            async with self._places:
                found = await asyncio.to_thread(self._files.find, sha256)
                return found or await self._compile(sha256)
        except InvalidModule as exc:
            self._refused[sha256] = (self._clock_s() + REFUSED_S, exc)
            return exc
        except ToolgateError as exc:
            return exc
        except OSError as exc:
            return StorageFailed(f"the module cannot be compiled: {(exc.strerror or str(exc)).lower()}")

    async def _compile(self, sha256: str) -> OwnFile:
        workshop = await asyncio.to_thread(self._files.new_workshop)
        try:
            source, target = workshop / "module.wasm", workshop / "compiled"
            await self._download(sha256, source)
            await compile_module(source, target)
            return await asyncio.to_thread(self._files.keep, target, sha256)
        finally:
            await asyncio.to_thread(shutil.rmtree, workshop, ignore_errors=True)

    async def _download(self, sha256: str, path: Path) -> None:
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("xb") as file:
                async with asyncio.timeout(FETCH_DEADLINE_S), aclosing(self._fetch(sha256)) as pieces:
                    async for piece in pieces:
                        size += len(piece)
                        if size > MAX_MODULE_BYTES:
                            raise InvalidModule(f"it has more than {MAX_MODULE_BYTES} bytes")
                        digest.update(piece)
                        await asyncio.to_thread(file.write, piece)
        except TimeoutError as exc:
            raise StorageUnavailable(f"the module was not there within {FETCH_DEADLINE_S:g} s") from exc
        if digest.hexdigest() != sha256:
            raise StorageFailed("what was fetched is not the module that was asked for: its hash differs")


def _within_limits(files: list[Kept]) -> frozenset[str]:
    """As many of the first as may be."""
    sizes = itertools.accumulate(one.size for one in files)
    within = zip(files[:MAX_FILES], sizes, strict=False)
    return frozenset(one.sha256 for one, total in within if total <= MAX_BYTES)
