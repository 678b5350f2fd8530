"""Keeps the definitions of servers on disk, so that they are listed at once after a restart.

A file holds the definitions of one server and is named by the SHA-256 of its content. The index maps each
server to its file, its launch, and the time when the server last listed it. Everything here can be listed
again, so damaged files are ignored. The content is checked like a list that a server sends, and never holds
the value of a variable or header.
"""

import asyncio
import hashlib
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, Self

import msgspec

from toolgate.catalog.checks import MAX_DEFINITIONS
from toolgate.catalog.definitions import check_tools
from toolgate.catalog.encoding import clean_instructions
from toolgate.catalog.listings import check_lists
from toolgate.disk import replace_file
from toolgate.model.json_text import UNREADABLE
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import FEATURES, ListKind, Revision, ServerTools
from toolgate.upstream.connection.contract import BackgroundTasks
from toolgate.upstream.pool.health import wall_ms

MAX_SERVERS: Final = 10_000  # as many as MAX_BYTES has room for
MAX_BYTES: Final = 512 * 1024 * 1024
"""All files together: 10,000 servers with 100 tools of 500 bytes each. The oldest entries go first."""
MAX_FILE_BYTES: Final = 17 * 1024 * 1024
"""The bounds of all lists of one server together, and room for reasons."""
FLUSH_S: Final = 2.0
"""Saves within this time are written together. A crash loses them, and they are listed again."""

_INDEX: Final = "index.json"
_LISTS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources", "templates")

_DIGEST: Final = re.compile("[0-9a-f]{64}")

_log: Final = logging.getLogger(__name__)


class _Entry(msgspec.Struct, frozen=True):
    """One server in the index."""

    launch: str
    content: str
    size: int
    verified_ms: int


class _Index(msgspec.Struct):
    version: Literal[1] = 1
    servers: dict[str, _Entry] = {}


class _Content(msgspec.Struct, frozen=True):
    """One file: the lists and instructions as the server sent them."""

    tools: list[msgspec.Raw] = []
    prompts: list[msgspec.Raw] = []
    resources: list[msgspec.Raw] = []
    templates: list[msgspec.Raw] = []
    quarantined: dict[str, str] = {}
    features: list[str] = []
    era: Revision | None = None
    instructions: str = ""


DeclareTools = Callable[[ServerRecord], Awaitable[Sequence[bytes]]]
"""Returns the tools that a server's package declares. Never raises."""


async def declare_nothing(_record: ServerRecord, /) -> Sequence[bytes]:
    """The default: there are no packages."""
    return ()


_decode_index = msgspec.json.Decoder(_Index).decode
_decode_content = msgspec.json.Decoder(_Content).decode


def check_declared_tools(record: ServerRecord, tools: Sequence[bytes]) -> ServerTools:
    """The offer of a server whose package declares these tools, each checked alone."""
    good, quarantined = check_tools(record.server_id, tools)
    features = frozenset({"tools"})
    return ServerTools(record=record, state="ready", tools=good, quarantined=quarantined, features=features)


def compute_launch_digest(record: ServerRecord) -> str:
    """Identifies what a record starts or reaches. Contains only the names of variables and headers."""
    stdio, http, package = record.stdio, record.http, record.package
    runs: list[object] = [record.transport, record.sharing, record.protocol]
    if stdio is not None:
        runs += [stdio.command, stdio.args, sorted(stdio.env), stdio.env_from, stdio.cwd]
    if http is not None:
        oauth = http.oauth
        runs += [http.url, sorted(http.headers), http.auth_ref]
        runs += [None if oauth is None else (oauth.grant, oauth.client_id, oauth.issuer, oauth.scopes)]
    if package is not None:
        runs += [package.version, package.sha256]
    return hashlib.sha256(msgspec.json.encode(runs)).hexdigest()


@dataclass(eq=False)
class KeptDefinitions:
    """The definitions in `directory`, which belongs to this process. Enter it before anything else."""

    directory: Path
    _: KW_ONLY
    clock_ms: Callable[[], int] = wall_ms
    max_servers: int = MAX_SERVERS
    max_bytes: int = MAX_BYTES
    _entries: dict[str, _Entry] = field(default_factory=dict, init=False)
    _saved: dict[str, ServerTools] = field(default_factory=dict, init=False)
    """The offers saved in this run, so that equal lists are not encoded again."""
    _unwritten: dict[str, bytes] = field(default_factory=dict, init=False)
    """Contents that the next flush writes, by digest."""
    _is_flush_due: bool = field(default=False, init=False)
    _background: BackgroundTasks = field(default_factory=BackgroundTasks, init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)
    _is_failing: bool = field(default=False, init=False)

    async def __aenter__(self) -> Self:
        self._entries = await asyncio.to_thread(_load_index, self.directory / _INDEX)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._background.aclose()
        await self.flush()

    def find(self, record: ServerRecord) -> tuple[ServerTools | None, int]:
        """The kept offer of a server, and when it was listed (0: never, it is from its package's manifest).

        None: unknown, or the record now runs something else.
        """
        entry = self._entries.get(record.server_id)
        if entry is None or entry.launch != compute_launch_digest(record):
            return None, 0
        try:
            offer = self._read(record, entry)
        except (OSError, ValueError, *UNREADABLE) as exc:
            _log.warning("the kept definitions of server `%s` cannot be used: %s", record.server_id, exc)
            del self._entries[record.server_id]
            return None, 0
        self._saved[record.server_id] = offer
        return offer, entry.verified_ms

    def _read(self, record: ServerRecord, entry: _Entry) -> ServerTools:
        content = self._unwritten.get(entry.content)
        if content is None:
            content = _read_bounded(self.directory / entry.content)
        if hashlib.sha256(content).hexdigest() != entry.content:
            raise ValueError(f"the content of `{entry.content}` does not match its name")
        kept = _decode_content(content)
        lists = {kind: getattr(kept, kind) for kind in _LISTS}
        if any(len(one) > MAX_DEFINITIONS for one in lists.values()):
            raise ValueError(f"`{entry.content}` lists more than {MAX_DEFINITIONS} of a kind")
        checked = check_lists(
            record.server_id, **{kind: [bytes(raw) for raw in one] for kind, one in lists.items()}
        )
        quarantined = MappingProxyType({**kept.quarantined, **checked.quarantined})
        return ServerTools(
            record=record,
            state="ready",
            features=FEATURES & set(kept.features),
            era=kept.era,
            instructions=clean_instructions(kept.instructions),
            **checked._replace(quarantined=quarantined)._asdict(),
        )

    def save(self, offer: ServerTools, *, is_verified: bool = True) -> int:
        """Keep a server's offer. Returns when it was verified: now, or never (0)."""
        record, verified_ms = offer.record, self.clock_ms() if is_verified else 0
        entry, saved = self._entries.get(record.server_id), self._saved.get(record.server_id)
        if entry is None or saved is None or not _is_same(saved, offer):
            content = _encode(offer)
            if len(content) > MAX_FILE_BYTES:
                return verified_ms
            digest = hashlib.sha256(content).hexdigest()
            self._unwritten[digest] = content
            entry = _Entry(compute_launch_digest(record), digest, len(content), verified_ms)
            self._saved[record.server_id] = offer
        self._entries[record.server_id] = msgspec.structs.replace(entry, verified_ms=verified_ms)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._background.start(self._flush_soon())
        return verified_ms

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_S)
        await self.flush()

    async def flush(self) -> None:
        if not self._is_flush_due:
            return
        contents, self._unwritten, self._is_flush_due = self._unwritten, {}, False
        self._trim()
        try:
            await asyncio.to_thread(self._write, contents, dict(self._entries))
        except OSError as exc:
            if not self._is_failing:
                _log.warning(
                    "the definitions of servers cannot be written to `%s`: %s", self.directory, exc.strerror
                )
            self._is_failing = True
        else:
            self._is_failing = False

    def _write(self, contents: Mapping[str, bytes], entries: Mapping[str, _Entry]) -> None:
        """Write the files, then the index that names them; then remove all other files."""
        directory, used = self.directory, {entry.content for entry in entries.values()}
        with self._writing:  # the thread of a cancelled flush may still run
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Without sync: a file whose content does not match its name is ignored.
            for digest, content in contents.items():
                if digest in used:
                    replace_file(directory / digest, content, is_synced=False)
            index = msgspec.json.encode(_Index(servers=dict(entries)))
            replace_file(directory / _INDEX, index, is_synced=False)
            for path in directory.iterdir():
                if path.name != _INDEX and path.name not in used:
                    path.unlink(missing_ok=True)

    def _trim(self) -> None:
        size = sum(entry.size for entry in self._entries.values())
        for server_id, entry in sorted(self._entries.items(), key=lambda item: item[1].verified_ms):
            if len(self._entries) <= self.max_servers and size <= self.max_bytes:
                return
            size -= entry.size
            del self._entries[server_id]


def _is_same(saved: ServerTools, offer: ServerTools) -> bool:
    """Whether both have the same content. Unchanged lists are the same objects, and compared at once."""
    same = replace(
        offer, record=saved.record, state=saved.state, is_stale=saved.is_stale, detail=saved.detail
    )
    return saved.record.launch == offer.record.launch and saved == same


def _encode(offer: ServerTools) -> bytes:
    content = _Content(
        quarantined=dict(offer.quarantined),
        features=sorted(offer.features),
        era=offer.era,
        instructions=offer.instructions,
        **{kind: [msgspec.Raw(one.raw) for one in getattr(offer, kind).values()] for kind in _LISTS},
    )
    return msgspec.json.encode(content)


def _load_index(path: Path) -> dict[str, _Entry]:
    try:
        index = _decode_index(_read_bounded(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, *UNREADABLE) as exc:
        _log.warning("ignoring `%s`, and listing servers again: %s", path, exc)
        return {}
    # Only a digest can be a file name here, and no path to another directory.
    good = {one: entry for one, entry in index.servers.items() if _DIGEST.fullmatch(entry.content)}
    if len(good) < len(index.servers):
        _log.warning("ignoring servers in `%s` whose file is not named by a digest", path)
    return good


def _read_bounded(path: Path) -> bytes:
    """The content of a regular file. Raises OSError, or ValueError if it is too large."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"`{path.name}` has more than {MAX_FILE_BYTES} bytes")
    return content
