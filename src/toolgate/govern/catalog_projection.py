"""The catalog as a projection: rows that follow registered servers, installed packages and listed tools.

Three inputs make the rows of a server: its origin (its package, or its address), its description in the
record or manifest, and the tools it lists. The table keeps a digest of each input next to the rows, so rows
are made again only if an input changed. A run that was interrupted continues where it stopped. Replicas that
share a database make the same rows, and read each other's. Search follows the rows. Never blocks long: it
makes the rows of one package at a time.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import groupby
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from toolgate.catalog.rows import CatalogQuality, make_rows
from toolgate.catalog.word_search import make_entry
from toolgate.errors import InvalidRecord, NotFound, ToolgateError
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.search import HybridIndex
from toolgate.model.packages import CatalogRow, Package
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.packages.artifacts import ArtifactStore
from toolgate.packages.manifest import parse_manifest
from toolgate.registry.records.codec import parse_record
from toolgate.registry.store.side_tables import keep_times
from toolgate.registry.store.sql_store import Store

SERVED_S: Final = 10.0
"""How long to wait until the gateway serves a change. After it, rows are made from the earlier state."""
RETRY_S: Final = 5.0  # between attempts to make or read rows; a choice: databases restart in seconds
_SERVERS_PER_TURN: Final = 100  # checked before yielding to other tasks
_FORMAT: Final = "1"
"""The version of the rows' format: a new one makes all rows again."""

_log = logging.getLogger(__name__)


class RowDigests(NamedTuple):
    origin: str
    """While it stays the same, tools that were listed earlier stay valid."""
    words: str
    listed: str
    """Digest of the tools that the server listed; `-` if it listed none."""

    def __str__(self) -> str:
        return ":".join((_FORMAT, *self))

    @classmethod
    def parse(cls, text: str) -> "RowDigests | None":
        """The digests in `text`. None: another version of Toolgate made the rows."""
        form, _, rest = text.partition(":")
        parts = rest.split(":")
        return cls(*parts) if form == _FORMAT and len(parts) == len(cls._fields) else None


class RowInputs(NamedTuple):
    offer: ServerTools
    package: Package | None
    """None: the server does not run from a package."""

    @property
    def is_listed(self) -> bool:
        return self.offer.state == "ready" or bool(self.offer.tools)

    def digests(self) -> RowDigests:
        record, package = self.offer.record, self.package
        origin: object = record.launch
        if package is not None:
            origin = (record.launch, package.sha256) if package.attached else package.sha256
        tools = [(name, tool.digest) for name, tool in self.offer.tools.items()]
        return RowDigests(
            _digest(origin),
            words=_digest((record.display_name, record.category, record.tags, package)),
            listed=_digest(tools) if self.is_listed else "-",
        )

    def make_rows(
        self, declared: Sequence[ToolDefinition], *, earlier: Sequence[CatalogRow], at_ms: int
    ) -> Sequence[CatalogRow]:
        """The rows. `earlier`: rows of the same origin, valid until the server lists its tools again."""
        record, offer = self.offer.record, self.offer if self.is_listed else None
        if offer is not None or not earlier:
            return make_rows(self.package, declared, record=record, offer=offer, at_ms=at_ms)
        # The package's current description, from a row without tools.
        package = None if self.package is None else replace(self.package, source="legacy")
        (texts,) = make_rows(package, (), record=record, offer=None, at_ms=at_ms)
        return [
            replace(
                row,
                package_name=texts.package_name,
                package_description=texts.package_description,
                category=texts.category,
                tags=texts.tags,
                schema_version=texts.schema_version,
                updated_at_ms=texts.updated_at_ms,
            )
            for row in earlier
        ]


def _digest(value: object) -> str:
    # The value consists of plain values, whose text is the same in every process.
    return hashlib.sha256(repr(value).encode("utf-8", "backslashreplace")).hexdigest()[:32]


@dataclass(eq=False, repr=False)
class CatalogProjection:
    """The current catalog. Enter it after the registry is applied; it follows changes until it is exited."""

    store: Store
    gateway: Gateway
    _: KW_ONLY
    searching: HybridIndex
    clock_ms: Callable[[], int]
    artifacts: ArtifactStore
    quality: CatalogQuality = field(default_factory=CatalogQuality)
    """The quality of the current rows, and whether fallback rows are shown."""
    retry_s: float = RETRY_S
    rows: dict[str, tuple[CatalogRow, ...]] = field(default_factory=dict, init=False)
    """The rows by package, including fallback rows. Read only; `count` increases with every change."""
    count: int = field(default=0, init=False)
    packages: Mapping[str, Package] = field(default_factory=lambda: MappingProxyType({}), init=False)
    """The installed packages."""
    indexed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set once search finds all rows that the table had at the start."""

    def __post_init__(self) -> None:
        self._made_from: dict[str, str] = {}
        self._seen: dict[str, RowInputs] = {}
        """The offer and the package that the rows of each server were last compared with."""
        self._failing: set[str] = set()
        self._packages_revision = -1
        # Held while rows change, in the table, in memory and in the search index.
        self._lock = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Read the table's rows. The catalog shows them at once; search needs longer to index them."""
        self._made_from = await self.store.catalog.made_from()
        for package_id, group in groupby(await self.store.catalog.rows(), lambda row: row.package_id):
            rows = self.rows[package_id] = tuple(group)
            self.quality.put(package_id, rows)
        self.count += 1
        self._tasks = [asyncio.create_task(one) for one in (self._follow_gateway(), self._follow_table())]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def refresh_package(self, package_id: str) -> None:
        """Returns once the catalog shows an install, upgrade or removal of a package."""
        try:
            async with asyncio.timeout(SERVED_S):
                await self.gateway.wait_for_revision(self.store.revision)
        except TimeoutError:
            _log.warning("the catalog may be outdated: `%s` changed and is not served so far", package_id)
        await self.make(package_id)

    async def make(self, server_id: str) -> bool:
        """Make the rows of one server if an input changed. Returns whether the rows changed."""
        async with self._lock:
            await self._read_packages()
            if (offer := self.gateway.snapshot.servers.get(server_id)) is not None:
                return await self._make(server_id, offer)
            if await self.store.get("server", server_id) is not None:
                return False  # registered, but this process does not serve it so far
            is_changed = await self.store.catalog.remove(server_id)
            await self._hide(server_id)
            return is_changed

    async def _make(self, server_id: str, offer: ServerTools) -> bool:
        package, ref = self.packages.get(server_id), offer.record.package
        sha256 = None if ref is None else ref.sha256
        # A package that only describes its server belongs to a record that names no package.
        is_run = package is not None and (None if package.attached else package.sha256) == sha256
        if not is_run and sha256 and self.gateway.snapshot.revision != self._packages_revision:
            return False  # one of the two has another revision, and the other will arrive
        inputs = RowInputs(offer, package if is_run else None)
        before, now = RowDigests.parse(self._made_from.get(server_id, "")), inputs.digests()
        if before is not None and not inputs.is_listed and before.origin == now.origin:
            now = now._replace(listed=before.listed)  # an earlier list stays valid until the next one
        is_changed = now != before and await self._replace(inputs, before, now)
        self._seen[server_id] = RowInputs(offer, package)
        return is_changed

    async def _replace(self, inputs: RowInputs, before: RowDigests | None, now: RowDigests) -> bool:
        server_id = inputs.offer.record.server_id
        shown = self.rows.get(server_id, ())
        rows = await asyncio.to_thread(
            inputs.make_rows,
            await self._read_declared(inputs.package),
            earlier=shown if before is not None and before.origin == now.origin else (),
            at_ms=self.clock_ms(),
        )
        # Unchanged rows keep their times.
        kept = tuple(keep_times(rows, {row.tool_name: row for row in shown}).values())
        is_changed = await self.store.catalog.replace(server_id, kept, made_from=str(now))
        await self._show(server_id, kept, str(now))
        return is_changed

    async def _read_declared(self, package: Package | None) -> Sequence[ToolDefinition]:
        if package is None:
            return ()
        try:
            content = await self.artifacts.manifest(package.package_id, package.version)
            return (await asyncio.to_thread(parse_manifest, content)).tools
        except (NotFound, InvalidRecord) as exc:
            _log.warning("the catalog lists package `%s` without its manifest: %s", package.package_id, exc)
            return ()

    async def _show(self, server_id: str, rows: tuple[CatalogRow, ...], made_from: str) -> None:
        self._made_from[server_id] = made_from
        if self.rows.get(server_id) != rows:
            # Search comes first: rows that are shown can be found.
            await asyncio.to_thread(self._index, server_id, rows)
            self.rows[server_id] = rows
            self.quality.put(server_id, rows)
            self.count += 1

    def _index(self, server_id: str, rows: Sequence[CatalogRow]) -> None:
        self.searching.put(server_id, [make_entry(row) for row in rows])

    async def _hide(self, server_id: str) -> None:
        self._made_from.pop(server_id, None)
        self._seen.pop(server_id, None)
        if server_id in self.rows:
            await asyncio.to_thread(self.searching.drop, server_id)
            del self.rows[server_id]
            self.quality.drop(server_id)
            self.count += 1

    async def _follow_gateway(self) -> None:
        for server_id in list(self.rows):
            async with self._lock:
                await asyncio.to_thread(self._index, server_id, self.rows.get(server_id, ()))
        self.indexed.set()
        while True:
            serial = self.gateway.snapshot.serial
            if await self._make_changed_rows():
                await self.gateway.wait_for_swap(serial)
            else:
                await asyncio.sleep(self.retry_s)

    async def _make_changed_rows(self) -> bool:
        """Make the rows of all changed servers. Returns whether all succeeded."""
        servers = self.gateway.snapshot.servers
        failed: set[str] = set()
        gone = [server_id for server_id in self._made_from if server_id not in servers]
        for place, server_id in enumerate((*servers, *gone)):
            if place % _SERVERS_PER_TURN == 0:
                await asyncio.sleep(0)
            if self._is_current(server_id, servers.get(server_id)):
                continue
            try:
                await self.make(server_id)
            except Exception as exc:  # a bug in the rows of one package must not affect the others
                failed.add(server_id)
                if not isinstance(exc, ToolgateError):
                    _log.exception("cannot update `%s` in the catalog; retrying", server_id)
                elif server_id not in self._failing:
                    _log.warning("cannot update `%s` in the catalog; retrying: %s", server_id, exc)
        self._failing = failed
        return not failed

    def _is_current(self, server_id: str, offer: ServerTools | None) -> bool:
        seen = self._seen.get(server_id)
        return (
            seen is not None
            and seen.offer is offer
            and seen.package is self.packages.get(server_id)
            and self._packages_revision == self.store.revision
        )

    async def _read_packages(self) -> None:
        revision = self.store.revision
        if self._packages_revision == revision:
            return
        found = {}
        for stored in (await self.store.list("package")).records:
            try:
                package = parse_record("package", stored.id, stored.body, strict=False)
            except InvalidRecord as exc:
                _log.warning("the catalog leaves out package `%s`, which is invalid: %s", stored.id, exc)
                continue
            assert isinstance(package, Package)
            known = self.packages.get(stored.id, package)
            found[stored.id] = known if known == package else package
        self.packages, self._packages_revision = MappingProxyType(found), revision

    async def _follow_table(self) -> None:
        """Read the rows that other replicas make."""
        seen = 0
        while True:
            try:
                seen = await self.store.catalog.changed(seen)
                await self._read_table()
            except ToolgateError as exc:
                _log.warning("cannot read the catalog; retrying: %s", exc)
                await asyncio.sleep(self.retry_s)

    async def _read_table(self) -> None:
        async with self._lock:
            stored = await self.store.catalog.made_from()
            for server_id, made_from in stored.items():
                if self._made_from.get(server_id) != made_from:
                    await self._show(server_id, tuple(await self.store.catalog.rows(server_id)), made_from)
            for server_id in self._made_from.keys() - stored.keys():
                await self._hide(server_id)
