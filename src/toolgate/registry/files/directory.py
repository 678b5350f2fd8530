"""Reads a directory of server files: `*.toml` and `*.json`, one server each.

Never follows a link and never waits on a pipe. One bad file never stops the others: each is a server, a
problem, or ignored with a warning. `reload` decides what happens to the servers.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolgate.errors import InvalidRecord, NotFound
from toolgate.model.servers import ServerRecord
from toolgate.registry.files.documents import DocumentError, parse_document
from toolgate.registry.records.body import printable
from toolgate.registry.records.codec import parse_server, unknown_fields

MAX_FILE_BYTES: Final = 1024 * 1024  # a record has a few kB: a larger file is something else
MAX_FILE_NAME: Final = 128  # characters of the name in a log line
MAX_DEPTH: Final = 16  # generous for directories that people make
_SUFFIXES: Final = (".toml", ".json")
_TEMPORARY_ENDS: Final = ("~", ".swp", ".swo", ".swx", ".tmp", ".bak", ".part")
_CLAIMED_ID = re.compile(r"""["']?server_id["']?\s*[=:]\s*["']([a-z0-9_-]+)["']""")
Fingerprint = frozenset[tuple[str, int, int, int]]
"""Name, inode, size and time of every server file. It stays equal until a file is saved."""


@dataclass(frozen=True, slots=True)
class ServerFile:
    """A valid file and its server."""

    file: str
    """Its path within the directory."""
    record: ServerRecord


@dataclass(frozen=True, slots=True)
class FileProblem:
    """The error in a file, with its line if known."""

    file: str
    message: str
    line: int | None = None
    claimed_id: str | None = None
    """The id of the server that the file seems to define."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class DirectoryScan:
    """The content of a directory. Invariant: `servers` are sorted by file and have unique ids."""

    servers: tuple[ServerFile, ...]
    problems: tuple[FileProblem, ...]
    warnings: tuple[str, ...]


@dataclass(eq=False)
class _Findings:
    """Collects problems and warnings while files are read."""

    strict: bool = False
    problems: list[FileProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def warn_or_fail(self, file: str, message: str) -> None:
        """Report a warning, or a problem if `strict`."""
        if self.strict:
            self.problems.append(FileProblem(file=file, message=message))
        else:
            self.warnings.append(f"{file}: {message}")


def scan_directory(directory: Path, *, recursive: bool = False, strict: bool = False) -> DirectoryScan:
    """Read every file. Raises NotFound if the directory cannot be read. If `strict`, unknown fields,
    duplicate ids and world-writable files are problems, not warnings."""
    findings = _Findings(strict=strict)
    servers: dict[str, ServerFile] = {}
    with _translate_errors(directory):
        if directory.stat().st_mode & stat.S_IWOTH:
            message = "the directory is world-writable: any user can choose what the gateway runs"
            findings.warn_or_fail(str(directory), message)
        files = list(_walk(directory, "", recursive=recursive, findings=findings))
    for file in files:
        text = ""
        try:
            text = _read(directory / file, file, findings)
            record = _parse_server(file, text, findings)
        except DocumentError as exc:
            claim = _CLAIMED_ID.search(text)
            findings.problems.append(FileProblem(file, str(exc), exc.line, claim[1] if claim else None))
            continue
        if earlier := servers.pop(record.server_id, None):
            wins = "" if strict else "; this file wins"
            findings.warn_or_fail(
                file, f"duplicate server `{record.server_id}`, also in {earlier.file}{wins}"
            )
        servers[record.server_id] = ServerFile(file, record)
    return DirectoryScan(tuple(servers.values()), tuple(findings.problems), tuple(findings.warnings))


def fingerprint(directory: Path, *, recursive: bool = False) -> Fingerprint:
    """Return a value that changes with every save. Raises NotFound like `scan_directory`."""
    with _translate_errors(directory):
        files = list(_walk(directory, "", recursive=recursive, findings=_Findings()))
    looks = set()
    for file in files:
        with suppress(FileNotFoundError):
            found = (directory / file).lstat()
            looks.add((file, found.st_ino, found.st_size, found.st_mtime_ns))
    return frozenset(looks)


@contextmanager
def _translate_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise NotFound(
            f"cannot read the registry directory `{exc.filename or directory}`: {exc.strerror}",
            hint="create the directory, or correct `mcp_registry_dir`",
        ) from exc


def _walk(directory: Path, prefix: str, *, recursive: bool, findings: _Findings) -> Iterator[str]:
    """Yield the paths of the files to read, within the directory, sorted by name."""
    with os.scandir(directory) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        file = prefix + entry.name
        is_server_file = entry.name.lower().endswith(_SUFFIXES)
        if entry.is_dir(follow_symlinks=False) and not is_server_file:
            if recursive and not entry.name.startswith(".") and file.count("/") < MAX_DEPTH:
                yield from _walk(directory / entry.name, f"{file}/", recursive=True, findings=findings)
        elif reason := _why_ignored(entry, is_server_file=is_server_file):
            text = printable(file)  # an untrusted name, for a log line
            shown = text if len(text) <= MAX_FILE_NAME else f"{text[: MAX_FILE_NAME // 2]}…"
            findings.warnings.append(f"{shown}: ignored because it is {reason}")
        elif is_server_file:
            yield file


def _why_ignored(entry: os.DirEntry[str], *, is_server_file: bool) -> str | None:
    name = entry.name
    if name.startswith("."):
        return "a hidden file"
    if name.endswith(_TEMPORARY_ENDS) or (name.startswith("#") and name.endswith("#")):
        return "a temporary file"
    if not is_server_file:
        return None
    if entry.is_symlink():
        return "a symbolic link"
    if not entry.is_file(follow_symlinks=False):
        return "not a regular file"
    if len(name) > MAX_FILE_NAME or not name.isprintable():
        return f"named with more than {MAX_FILE_NAME} characters, or with unprintable ones"
    return None


def _parse_server(file: str, text: str, findings: _Findings) -> ServerRecord:
    body = parse_document(text, is_toml=file.lower().endswith(".toml"))
    if "server_id" not in body and isinstance(body.get("mcpServers"), dict):
        raise DocumentError("is a file of another program; run `toolgate servers import` to import it")
    if not findings.strict:
        for field in unknown_fields("server", body):
            findings.warnings.append(f"{file}: unknown field `{field}` is ignored")
    try:
        return parse_server(body, strict=findings.strict)
    except InvalidRecord as exc:
        raise DocumentError(str(exc), find_line(text, exc.data.get("problems", ()))) from exc


def _read(path: Path, file: str, findings: _Findings) -> str:
    """Read a whole file. Raises DocumentError if it changed meanwhile."""
    try:
        # Since it was listed, the name may have become a link or a pipe: neither follow nor wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            before = os.fstat(descriptor)
            data = opened.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(before.st_mode) else b""
            after = os.fstat(descriptor)
    except OSError as exc:
        raise DocumentError(f"cannot be read: {exc.strerror}") from exc
    if len(data) > MAX_FILE_BYTES:
        raise DocumentError(f"has more than {MAX_FILE_BYTES} bytes")
    if before.st_mtime_ns != after.st_mtime_ns or len(data) != after.st_size:
        raise DocumentError("is being written")
    if after.st_mode & stat.S_IWOTH:
        findings.warn_or_fail(file, "the file is world-writable: any user can choose what the gateway runs")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise DocumentError("is not UTF-8", data[: exc.start].count(b"\n") + 1) from exc


def find_line(text: str, problems: Iterable[Mapping[str, str]]) -> int | None:
    """Return the line of the first invalid field whose name occurs only once in the file."""
    for problem in problems:
        name = problem["field"].split("[")[0].rpartition(".")[2]
        named = rf"""(?<![\w-])["']?{re.escape(name)}["']?[ \t]*[=:\]]"""
        if name and len(places := [*re.finditer(named, text)]) == 1:
            return text.count("\n", 0, places[0].start()) + 1
    return None
