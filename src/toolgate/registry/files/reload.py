"""The directory of server files, applied to the store: at start, on demand, and as files change.

Who owns a server is told by the actor of its last write, which the store keeps with the record:
`directory:<file>` is the directory's. So a file that goes away takes its server with it, and what was last
written over the API stays; both hold across a restart, and after the change log was compacted.

A file says what its server is. If the API has changed that server since, the next reload changes it back.
A file that is wrong changes nothing: its server stays as it was last good.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from watchfiles import awatch

from toolgate.errors import Conflict, InvalidRecord, ToolgateError
from toolgate.registry.files.directory import Fingerprint, fingerprint, scan_directory
from toolgate.registry.reload_plan import ACTOR, ReloadPlan, ReloadReport, plan_reload
from toolgate.registry.store.contract import Store

QUIET_S: Final = 0.2
"""Files are read once nothing was saved for this long: editors save in several steps."""
LOOK_EVERY_S: Final = 5.0
"""How often to look without being told of a change: not every file system tells."""
ATTEMPTS: Final = 8
"""How often a plan is made again when others keep committing in between."""

OnApplied = Callable[[ReloadReport, str], None]
"""Told what was done, and who asked for it."""

_log = logging.getLogger(__name__)


def _unheard(_report: ReloadReport, _by: str) -> None:
    """For a directory that nobody takes note of."""


class DirectoryLoader:
    """Keeps the store's servers as the files say."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        *,
        strict: bool = False,
        recursive: bool = False,
        on_applied: OnApplied = _unheard,
    ) -> None:
        """`on_applied` is told of every reload that was committed."""
        self._store = store
        self._on_applied = on_applied
        self._directory = directory.expanduser()
        self._strict = strict
        self._recursive = recursive
        self._sources: Mapping[str, str] = {}
        self._loaded: Fingerprint | None = None
        self._told: frozenset[str] = frozenset()
        self._turn = asyncio.Lock()

    async def preview(self) -> ReloadReport:
        """What `reload` would do. Changes nothing."""
        return (await self._plan()).report

    async def reload(self, by: str = ACTOR) -> ReloadReport:
        """Apply the directory as one transaction, or raise and leave everything as it is.

        `by`: who asked for it; else it was the files. Raises NotFound when the directory cannot be read, and
        InvalidRecord where `strict` and a file is wrong.
        """
        async with self._turn:
            looked = await self._look()
            try:
                plan = await self._commit()
            except InvalidRecord:
                self._loaded = looked  # trying again is pointless until a file changes
                raise
            self._loaded, self._sources = looked, plan.sources
        self._tell([*plan.report.warnings, *map(str, plan.report.problems)])
        for change in plan.report.applied:
            _log.info("registry directory: %s", change)
        self._on_applied(plan.report, by)
        return plan.report

    async def watch(self) -> None:
        """Reload whenever the files change, until cancelled."""
        while True:
            await self._reload_if_changed()
            try:
                async for _ in awatch(
                    self._directory,
                    watch_filter=None,
                    recursive=self._recursive,
                    rust_timeout=int(LOOK_EVERY_S * 1000),
                    yield_on_timeout=True,
                ):
                    await self._reload_if_changed()
            except OSError as exc:
                self._tell([f"cannot watch `{self._directory}`: {exc}"])
            await asyncio.sleep(LOOK_EVERY_S)

    async def _reload_if_changed(self) -> None:
        try:
            if await self._look() != self._loaded:
                await self._settle()
                await self.reload()
        except ToolgateError as exc:
            self._tell([f"the servers stay as they are: {exc}"])

    async def _settle(self) -> None:
        """Wait until the files look the same twice."""
        before, now = None, await self._look()
        while before != now:
            await asyncio.sleep(QUIET_S)
            before, now = now, await self._look()

    async def _look(self) -> Fingerprint:
        return await asyncio.to_thread(fingerprint, self._directory, recursive=self._recursive)

    async def _commit(self) -> ReloadPlan:
        for _ in range(ATTEMPTS):
            plan = await self._plan()
            try:
                revision = await self._store.write(
                    plan.writes, actor=ACTOR, if_store_revision=plan.report.revision
                )
            except Conflict:
                continue
            return replace(plan, report=replace(plan.report, revision=revision))
        raise Conflict("the registry changes too fast to apply the directory to it")

    async def _plan(self) -> ReloadPlan:
        scan = await asyncio.to_thread(
            scan_directory, self._directory, recursive=self._recursive, strict=self._strict
        )
        plan = plan_reload(scan, await self._store.list("server"), sources=self._sources)
        if self._strict and plan.report.problems:
            problems = [str(problem) for problem in plan.report.problems]
            raise InvalidRecord(
                f"the registry directory is refused: {'; '.join(problems)}",
                hint="correct the files, or leave `--strict` away to go on without the wrong ones",
                data={"problems": problems},
            )
        return plan

    def _tell(self, lines: Iterable[str]) -> None:
        """Log each line when it is new, not again with every reload."""
        now = dict.fromkeys(lines)
        for line in now:
            if line not in self._told:
                _log.warning("registry directory: %s", line)
        self._told = frozenset(now)
