"""A directory of server files, read as it stands: `*.toml` and `*.json`, one server a file.

Reading never follows a link, never waits on a pipe, and never fails because of one file: each file
is a server, a problem, or passed over with a warning. What becomes of the servers is not decided here.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolgate.errors import InvalidRecord, NotFound
from toolgate.model.servers import ServerRecord
from toolgate.registry.files.toml import parse_toml
from toolgate.registry.records.body import printable
from toolgate.registry.records.codec import parse_server, unknown_fields

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_FILE_NAME: Final = 128
MAX_DEPTH: Final = 16

_SUFFIXES: Final = (".toml", ".json")
_TEMPORARY_ENDS: Final = ("~", ".swp", ".swo", ".swx", ".tmp", ".bak", ".part")
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_CLAIMED_ID = re.compile(r"""["']?server_id["']?\s*[=:]\s*["']([a-z0-9_-]+)["']""")

Fingerprint = frozenset[tuple[str, int, int, int]]
"""Name, inode, size and time of every file that counts: two equal ones mean nothing was saved between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    """A good file."""

    file: str
    """Its path within the directory."""
    record: ServerRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """What is wrong with a file, and where, as far as it is known."""

    file: str
    message: str
    line: int | None = None
    claimed_id: str | None = None
    """The server the file seems to be about."""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryScan:
    """What a directory says. Invariant: `servers` are sorted by file, and no two have the same id."""

    servers: tuple[ServerFile, ...]
    problems: tuple[FileProblem, ...]
    warnings: tuple[str, ...]


class _Findings:
    """What is said about files while they are read."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.problems: list[FileProblem] = []
        self.warnings: list[str] = []

    def warn(self, file: str, message: str) -> None:
        self.warnings.append(f"{file}: {message}")

    def warn_or_fail(self, file: str, message: str) -> None:
        """Something one can live with, unless one asked to be strict."""
        if self.strict:
            self.problems.append(FileProblem(file=file, message=message))
        else:
            self.warn(file, message)


def scan_directory(directory: Path, *, recursive: bool = False, strict: bool = False) -> DirectoryScan:
    """Read every file. Raises NotFound when the directory itself cannot be read.

    Where `strict`, unknown fields, duplicate ids, and files that anybody may write, are problems and not
    warnings.
    """
    findings = _Findings(strict=strict)
    servers: dict[str, ServerFile] = {}
    with _translate_errors(directory):
        if directory.stat().st_mode & stat.S_IWOTH:
            findings.warn_or_fail(
                str(directory), "anybody may write here, and so choose what the gateway runs"
            )
        files = list(_walk(directory, "", recursive=recursive, findings=findings))
    for file in files:
        try:
            record = _load(directory, file, findings)
        except _InvalidFile as exc:
            findings.problems.append(exc.problem)
            continue
        if earlier := servers.pop(record.server_id, None):
            wins = "" if strict else "; this file wins"
            findings.warn_or_fail(
                file, f"duplicate server `{record.server_id}`, also in {earlier.file}{wins}"
            )
        servers[record.server_id] = ServerFile(file=file, record=record)
    return DirectoryScan(
        servers=tuple(servers.values()),
        problems=tuple(findings.problems),
        warnings=tuple(findings.warnings),
    )


def fingerprint(directory: Path, *, recursive: bool = False) -> Fingerprint:
    """What the files look like from outside. Raises NotFound like `scan_directory`."""
    with _translate_errors(directory):
        files = list(_walk(directory, "", recursive=recursive, findings=_Findings(strict=False)))
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
            hint="create it, or correct `mcp_registry_dir`",
        ) from exc


def _walk(directory: Path, prefix: str, *, recursive: bool, findings: _Findings) -> Iterator[str]:
    """The files to read, in order of their names, each as its path within the directory."""
    with os.scandir(directory) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        file = prefix + entry.name
        is_meant = entry.name.lower().endswith(_SUFFIXES)
        if entry.is_dir(follow_symlinks=False) and not is_meant:
            if recursive and not entry.name.startswith(".") and file.count("/") < MAX_DEPTH:
                yield from _walk(directory / entry.name, f"{file}/", recursive=True, findings=findings)
        elif reason := _why_ignored(entry, is_meant=is_meant):
            findings.warn(_printable_name(file), f"ignored, it is {reason}")
        elif is_meant:
            yield file


def _why_ignored(entry: os.DirEntry[str], *, is_meant: bool) -> str | None:
    name = entry.name
    if name.startswith("."):
        return "a hidden file"
    if name.endswith(_TEMPORARY_ENDS) or (name.startswith("#") and name.endswith("#")):
        return "a temporary file"
    if not is_meant:
        return None
    if entry.is_symlink():
        return "a symbolic link"
    if not entry.is_file(follow_symlinks=False):
        return "not a regular file"
    if len(name) > MAX_FILE_NAME or not name.isprintable():
        return f"named with more than {MAX_FILE_NAME} characters, or with some that cannot be seen"
    return None


def _printable_name(file: str) -> str:
    """A name that may be anything, fit for a log line."""
    text = printable(file)
    return text if len(text) <= MAX_FILE_NAME else f"{text[: MAX_FILE_NAME // 2]}…"


class _InvalidFile(Exception):
    """A file that gives no server."""

    def __init__(self, problem: FileProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _load(directory: Path, file: str, findings: _Findings) -> ServerRecord:
    text = _read(directory / file, file, findings)
    body = _parse(file, text)
    if "server_id" not in body and isinstance(body.get("mcpServers"), dict):
        raise _invalid_file(
            file, "", "is another program's; register its servers with `toolgate servers import`"
        )
    if not findings.strict:
        for field in unknown_fields("server", body):
            findings.warn(file, f"`{field}` is not a known field, it is passed over")
    try:
        return parse_server(body, strict=findings.strict)
    except InvalidRecord as exc:
        line = find_line(text, exc.data.get("problems", ()))
        raise _invalid_file(file, text, str(exc), line=line) from exc


def _read(path: Path, file: str, findings: _Findings) -> str:
    """A whole file, and only if it held still while it was read."""
    try:
        # A name may have become a link or a pipe since it was listed: follow neither, wait for neither.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            before = os.fstat(descriptor)
            data = opened.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(before.st_mode) else b""
            after = os.fstat(descriptor)
    except OSError as exc:
        raise _invalid_file(file, "", f"cannot be read: {exc.strerror}") from exc
    if len(data) > MAX_FILE_BYTES:
        raise _invalid_file(file, "", f"has more than {MAX_FILE_BYTES} bytes")
    if before.st_mtime_ns != after.st_mtime_ns or len(data) != after.st_size:
        raise _invalid_file(file, "", "is being written")
    if after.st_mode & stat.S_IWOTH:
        findings.warn_or_fail(file, "anybody may write to this file, and so choose what the gateway runs")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data[: exc.start].count(b"\n") + 1
        raise _invalid_file(file, "", "is not UTF-8", line=line) from exc


def _parse(file: str, text: str) -> Mapping[str, Any]:
    try:
        if file.lower().endswith(".toml"):
            return parse_toml(text)
        body = json.loads(text, object_pairs_hook=_reject_duplicates, parse_constant=_refuse_constant)
    except json.JSONDecodeError as exc:
        raise _invalid_file(file, text, f"is not JSON: {exc.msg}", line=exc.lineno) from exc
    except tomllib.TOMLDecodeError as exc:
        place = _TOML_LINE.search(str(exc))
        message = _TOML_LINE.sub("", str(exc)).strip()
        raise _invalid_file(
            file, text, f"is not TOML: {message}", line=int(place[1]) if place else None
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise _invalid_file(file, text, f"cannot be parsed: {exc}") from exc
    if not isinstance(body, dict):
        raise _invalid_file(file, text, "does not hold one object", line=1)
    return body


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member stands in one object twice")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not JSON")


def _invalid_file(file: str, text: str, message: str, *, line: int | None = None) -> _InvalidFile:
    claim = _CLAIMED_ID.search(text)
    return _InvalidFile(
        FileProblem(file=file, message=message, line=line, claimed_id=claim[1] if claim else None)
    )


def find_line(text: str, problems: Iterable[Mapping[str, str]]) -> int | None:
    """The line of the first field at fault whose name stands in the file only once."""
    for problem in problems:
        name = problem["field"].split("[")[0].rpartition(".")[2]
        places = (
            [*re.finditer(rf"""(?<![\w-])["']?{re.escape(name)}["']?[ \t]*[=:\]]""", text)] if name else []
        )
        if len(places) == 1:
            return text.count("\n", 0, places[0].start()) + 1
    return None
