"""Applies the directory of server files to the store: at start, on demand, and when files change.

The store keeps the actor of a server's last write. `directory:<file>` means that the directory owns the
server: if the file disappears, so does the server. A server last written by the API stays. Both hold across
restarts and compaction.

If the API changed a server that a file defines, the next reload changes it back. If a file is invalid, its
server keeps the last valid record. `plan_reload` decides this without touching files or store.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, Final

from watchfiles import awatch

from toolgate.errors import Conflict, InvalidRecord, ToolgateError
from toolgate.model.revisions import RecordList, RecordWrite, StoredRecord
from toolgate.registry.files.directory import (
    DirectoryScan,
    FileProblem,
    Fingerprint,
    ServerFile,
    fingerprint,
    scan_directory,
)
from toolgate.registry.records.codec import (
    DiffOperation,
    RecordDiff,
    diff_fields,
    encode_record,
    namespace_of,
)
from toolgate.registry.store.sql_store import Store

ACTOR: Final = "directory"
_ACTOR_PREFIX: Final = f"{ACTOR}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """The effect of a reload or a preview."""

    revision: int
    """The registry revision after the reload, or at the preview."""
    applied: tuple[RecordDiff, ...] = ()
    kept: tuple[str, ...] = ()
    """Servers that keep their last valid record, because their file is invalid now."""
    warnings: tuple[str, ...] = ()
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """The transaction that makes the store match the directory."""

    writes: tuple[RecordWrite, ...]
    report: ReloadReport
    sources: Mapping[str, str]
    """Server id to the file it comes from."""


def source_of(stored: StoredRecord) -> str | None:
    """Return the file that a record was last written from. None if the directory did not write it."""
    return stored.actor.removeprefix(_ACTOR_PREFIX) if stored.actor.startswith(_ACTOR_PREFIX) else None


def plan_reload(scan: DirectoryScan, listing: RecordList, *, sources: Mapping[str, str]) -> ReloadPlan:
    """Plan the reload of a scan.

    `sources` comes from the last plan. It is newer than the actors of records: renaming a file writes
    nothing.
    """
    planner = _Planner(scan, listing, sources)
    planner.keep_last_good()
    planner.drop_clashes()
    writes, diffs = planner.changes()
    report = ReloadReport(
        revision=listing.revision,
        applied=diffs,
        kept=tuple(sorted(planner.kept)),
        warnings=scan.warnings,
        problems=tuple(planner.problems),
    )
    sources = {name: server.file for name, server in planner.defined.items()} | planner.kept
    return ReloadPlan(writes=writes, report=report, sources=sources)


class _Planner:
    """Sorts servers into defined, kept and removed ones."""

    def __init__(self, scan: DirectoryScan, listing: RecordList, sources: Mapping[str, str]) -> None:
        self.stored = {record.id: record for record in listing.records}
        files = {name: source_of(record) for name, record in self.stored.items()}
        self.owned = {name: sources.get(name, file) for name, file in files.items() if file is not None}
        """Servers that the directory owns, with their files."""
        self.defined = {server.record.server_id: server for server in scan.servers}
        """Servers that valid files define."""
        self.kept: dict[str, str] = {}
        """Servers whose file is invalid, with that file."""
        self.problems = list(scan.problems)

    @property
    def removed(self) -> list[str]:
        return [name for name in self.owned if name not in self.defined and name not in self.kept]

    def keep_last_good(self) -> None:
        """Keep servers whose file is invalid. It still overrides an earlier file, as when it was valid."""
        for problem in self.problems:
            # The servers of the invalid file: those it defined before, and the one it seems to define now.
            claimed = problem.claimed_id or PurePath(problem.file).stem
            names = [name for name, file in self.owned.items() if file == problem.file]
            if claimed in self.owned and claimed not in self.defined:
                names.append(claimed)
            for name in names:
                good = self.defined.get(name)
                if good is None or good.file < problem.file:
                    self.defined.pop(name, None)
                    self.kept[name] = problem.file

    def drop_clashes(self) -> None:
        """Mark files as invalid whose namespace another server has: a namespace belongs to one server."""
        while clash := self._first_clash():
            server, other = clash
            record = server.record
            message = f"`tool_namespace`: `{record.tool_namespace}` is already used by server `{other}`"
            self.problems.append(FileProblem(file=server.file, message=message, claimed_id=record.server_id))
            del self.defined[record.server_id]
            if record.server_id in self.owned:
                self.kept[record.server_id] = server.file

    def _first_clash(self) -> tuple[ServerFile, str] | None:
        replaced = {*self.defined, *self.removed}
        taken = {namespace_of(record): name for name, record in self.stored.items() if name not in replaced}
        for name, server in self.defined.items():
            other = taken.setdefault(server.record.tool_namespace, name)
            if other != name:
                return server, other
        return None

    def changes(self) -> tuple[tuple[RecordWrite, ...], tuple[RecordDiff, ...]]:
        after: dict[str, tuple[str, dict[str, Any] | None]] = {
            name: (server.file, encode_record(server.record)) for name, server in self.defined.items()
        } | {name: (self.owned[name], None) for name in self.removed}
        writes, diffs = [], []
        for name, (file, body) in sorted(after.items()):
            before = self.stored[name].body if name in self.stored else None
            if before != body:
                writes.append(RecordWrite(kind="server", id=name, body=body, actor=f"{_ACTOR_PREFIX}{file}"))
                operation: DiffOperation
                operation = "added" if before is None else "removed" if body is None else "changed"
                fields = diff_fields("server", before, body)
                diffs.append(RecordDiff(operation=operation, server_id=name, file=file, fields=fields))
        return tuple(writes), tuple(diffs)


QUIET_S: Final = 0.2  # how long files must be unchanged before they are read: editors save in several steps
LOOK_EVERY_S: Final = 5.0  # how often to look for changes: not every file system notifies of them
ATTEMPTS: Final = 8  # how often to plan again if others keep committing in between
OnApplied = Callable[[ReloadReport, str], None]  # called with the report and the actor of the reload
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class DirectoryLoader:
    """Keeps the store's servers equal to the files."""

    store: Store
    directory: Path
    strict: bool = False
    recursive: bool = False
    on_applied: OnApplied = lambda _report, _by: None
    """Called after every committed reload."""
    look_every_s: float = LOOK_EVERY_S
    _sources: Mapping[str, str] = field(default_factory=dict, init=False)
    _loaded: Fingerprint | None = field(default=None, init=False)
    _logged_lines: frozenset[str] = field(default=frozenset(), init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self.directory = self.directory.expanduser()

    async def preview(self) -> ReloadReport:
        """Return the effect of `reload` without changing anything."""
        return (await self._plan()).report

    async def reload(self, by: str = ACTOR) -> ReloadReport:
        """Apply the directory as one transaction, or raise and change nothing.

        `by`: the actor that requested it; the directory itself by default. Raises NotFound if the directory
        cannot be read, and InvalidRecord if `strict` and a file is invalid.
        """
        async with self._turn:
            before = await self._read_fingerprint()
            try:
                plan = await self._commit()
            except InvalidRecord:
                self._loaded = before  # a retry is pointless until a file changes
                raise
            self._loaded, self._sources = before, plan.sources
        self._warn([*plan.report.warnings, *map(str, plan.report.problems)])
        for change in plan.report.applied:
            _log.info("registry directory: %s", change)
        self.on_applied(plan.report, by)
        return plan.report

    async def watch(self) -> None:
        """Reload whenever the files change, until cancelled."""
        while True:
            await self._reload_if_changed()
            try:
                async for _ in awatch(
                    self.directory,
                    watch_filter=None,
                    recursive=self.recursive,
                    rust_timeout=int(self.look_every_s * 1000),
                    yield_on_timeout=True,
                ):
                    await self._reload_if_changed()
            except OSError as exc:
                self._warn([f"cannot watch `{self.directory}`: {exc}"])
            await asyncio.sleep(self.look_every_s)

    async def _reload_if_changed(self) -> None:
        try:
            if await self._read_fingerprint() != self._loaded:
                await self._settle()
                await self.reload()
        except ToolgateError as exc:
            self._warn([f"servers not changed: {exc}"])

    async def _settle(self) -> None:
        """Wait until the files look the same twice."""
        before, now = None, await self._read_fingerprint()
        while before != now:
            await asyncio.sleep(QUIET_S)
            before, now = now, await self._read_fingerprint()

    async def _read_fingerprint(self) -> Fingerprint:
        return await asyncio.to_thread(fingerprint, self.directory, recursive=self.recursive)

    async def _commit(self) -> ReloadPlan:
        for _ in range(ATTEMPTS):
            plan = await self._plan()
            try:
                revision = await self.store.write(
                    plan.writes, actor=ACTOR, if_store_revision=plan.report.revision
                )
            except Conflict:
                continue
            return replace(plan, report=replace(plan.report, revision=revision))
        raise Conflict(
            "the registry changes too fast to apply the directory of server files",
            hint="run `toolgate reload` again when fewer changes are made",
        )

    async def _plan(self) -> ReloadPlan:
        scan = await asyncio.to_thread(
            scan_directory, self.directory, recursive=self.recursive, strict=self.strict
        )
        plan = plan_reload(scan, await self.store.list("server"), sources=self._sources)
        if self.strict and plan.report.problems:
            problems = [str(problem) for problem in plan.report.problems]
            raise InvalidRecord(
                f"invalid registry directory: {'; '.join(problems)}",
                hint="correct the files, or omit `--strict` to skip invalid files",
                data={"problems": problems},
            )
        return plan

    def _warn(self, lines: Iterable[str]) -> None:
        """Log each line once, not with every reload."""
        now = dict.fromkeys(lines)
        for line in now:
            if line not in self._logged_lines:
                _log.warning("registry directory: %s", line)
        self._logged_lines = frozenset(now)
