"""What a directory of server files means for the servers in the store, decided without touching either."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from toolgate.model.revisions import Listing, Stored, Write
from toolgate.registry.files.directory import DirectoryScan, FileProblem, ServerFile
from toolgate.registry.records.codec import encode_record, namespace_of
from toolgate.registry.records.diff import RecordDiff, diff_server

ACTOR: Final = "directory"
_ACTOR_PREFIX: Final = f"{ACTOR}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What a reload did, or a preview would do."""

    revision: int
    """Of the registry: after a reload, or at a preview."""
    applied: tuple[RecordDiff, ...] = ()
    kept: tuple[str, ...] = ()
    """Servers that stay as they were last good, because their file is wrong now."""
    warnings: tuple[str, ...] = ()
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """The transaction that makes the store agree with the directory."""

    writes: tuple[Write, ...]
    report: ReloadReport
    sources: Mapping[str, str]
    """Server id to the file it comes from."""


def source_of(stored: Stored) -> str | None:
    """The file a record was last written from, or None when it was not the directory that wrote it."""
    return stored.actor.removeprefix(_ACTOR_PREFIX) if stored.actor.startswith(_ACTOR_PREFIX) else None


def plan_reload(scan: DirectoryScan, listing: Listing, *, sources: Mapping[str, str]) -> ReloadPlan:
    """`sources` is what the last reload found out, where it knows better than the records' own actors:
    a file that was renamed and not changed writes nothing.
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
    return ReloadPlan(writes=writes, report=report, sources=planner.sources)


class _Planner:
    """The sets a plan is made of; each step takes from one and gives to another."""

    def __init__(self, scan: DirectoryScan, listing: Listing, sources: Mapping[str, str]) -> None:
        self.stored = {record.id: record for record in listing.records}
        files = {name: source_of(record) for name, record in self.stored.items()}
        self.owned = {name: sources.get(name, file) for name, file in files.items() if file is not None}
        """The directory's servers, each with its file."""
        self.given = {server.record.server_id: server for server in scan.servers}
        """What the good files say."""
        self.kept: dict[str, str] = {}
        """Servers whose file is wrong, each with that file."""
        self.problems = list(scan.problems)

    @property
    def removed(self) -> list[str]:
        return [name for name in self.owned if name not in self.given and name not in self.kept]

    @property
    def sources(self) -> dict[str, str]:
        return {name: server.file for name, server in self.given.items()} | self.kept

    def keep_last_good(self) -> None:
        """A wrong file outvotes a good one that comes before it, as it did when it was good."""
        for problem in self.problems:
            for name in self._servers_of(problem):
                good = self.given.get(name)
                if good is None or good.file < problem.file:
                    self.given.pop(name, None)
                    self.kept[name] = problem.file

    def _servers_of(self, problem: FileProblem) -> list[str]:
        """The servers a wrong file stands for: those it gave, and the one it still seems to be about."""
        claimed = problem.claimed_id or PurePath(problem.file).stem
        gave = [name for name, file in self.owned.items() if file == problem.file]
        return [*gave, claimed] if claimed in self.owned and claimed not in self.given else gave

    def drop_clashes(self) -> None:
        """A namespace belongs to one server. The file that comes to it later is wrong."""
        while clash := self._first_clash():
            server, other = clash
            record = server.record
            message = f"`tool_namespace`: server `{other}` has `{record.tool_namespace}` already"
            self.problems.append(FileProblem(file=server.file, message=message, claimed_id=record.server_id))
            del self.given[record.server_id]
            if record.server_id in self.owned:
                self.kept[record.server_id] = server.file

    def _first_clash(self) -> tuple[ServerFile, str] | None:
        going = {*self.given, *self.removed}
        taken = {namespace_of(record): name for name, record in self.stored.items() if name not in going}
        for name, server in self.given.items():
            other = taken.setdefault(server.record.tool_namespace, name)
            if other != name:
                return server, other
        return None

    def changes(self) -> tuple[tuple[Write, ...], tuple[RecordDiff, ...]]:
        """The transaction, and how it looks to people."""
        after: dict[str, tuple[str, dict[str, Any] | None]] = {
            name: (server.file, encode_record(server.record)) for name, server in self.given.items()
        } | {name: (self.owned[name], None) for name in self.removed}
        writes, diffs = [], []
        for name, (file, body) in sorted(after.items()):
            before = self.stored[name].body if name in self.stored else None
            if before != body:
                writes.append(Write(kind="server", id=name, body=body, actor=f"{_ACTOR_PREFIX}{file}"))
                diffs.append(diff_server(name, file, before=before, after=body))
        return tuple(writes), tuple(diffs)
