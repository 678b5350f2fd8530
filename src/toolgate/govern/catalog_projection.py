"""What the catalog's rows of one server are made of, and how one knows that they were made already.

Three things make rows: what the server is (its package, or how it is reached), what people wrote about it,
and what it lists. Each has a digest, and the three together are what the table keeps beside the rows.

Keeps the catalog right: its rows follow what is registered, installed, listed, renamed and removed.

Rows are made one package at a time, so that nobody waits for long, and only where what they are made of
changed: a second run finds nothing to do, wherever the first one ended. Replicas that share a database make
the same rows, and read what the others made. What is found by words follows the rows.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Self

from toolgate.catalog.rows import CatalogQuality, DeclaredTool, make_rows
from toolgate.catalog.search.index import make_entry
from toolgate.errors import InvalidRecord, NotFound, ToolgateError
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.search.index import HybridIndex
from toolgate.model.packages import CatalogRow, Package
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ServerTools
from toolgate.packages.artifacts import ArtifactStore
from toolgate.packages.manifest import parse_manifest
from toolgate.registry.records.codec import parse_record
from toolgate.registry.store.contract import Store
from toolgate.registry.store.side_tables import keep_times

_FORMAT: Final = "1"
"""Of rows: with another one, all are made anew."""
_UNLISTED: Final = "-"


class RowDigests(NamedTuple):
    """Digests of what rows were made of."""

    origin: str
    words: str
    listed: str
    """Of the tools that were listed; `-` where none were."""

    def __str__(self) -> str:
        return ":".join((_FORMAT, *self))

    @classmethod
    def parse(cls, text: str) -> "RowDigests | None":
        """None: made by another version of this program."""
        form, _, rest = text.partition(":")
        parts = rest.split(":")
        return cls(*parts) if form == _FORMAT and len(parts) == len(cls._fields) else None


@dataclass(frozen=True)
class RowInputs:
    """All that is known of one server."""

    record: ServerRecord
    package: Package | None
    """None: it runs from no package."""
    offer: ServerTools

    @property
    def is_listed(self) -> bool:
        return self.offer.state == "ready" or bool(self.offer.tools)

    @cached_property
    def made_from(self) -> RowDigests:
        return RowDigests(self._origin, self._words, self._listed)

    @property
    def _origin(self) -> str:
        """Tools that were listed earlier are of use as long as this stays the same."""
        if self.package is None:
            return _digest(self.record.launch)
        if self.package.attached:
            return _digest((self.record.launch, self.package.sha256))
        return _digest(self.package.sha256)

    @property
    def _words(self) -> str:
        record = self.record
        return _digest((record.display_name, record.category, record.tags, self.package))

    @property
    def _listed(self) -> str:
        if not self.is_listed:
            return _UNLISTED
        return _digest([(name, tool.digest) for name, tool in self.offer.tools.items()])

    def is_unchanged_since(self, before: RowDigests | None) -> bool:
        """Whether rows that were made from `before` are what would be made now."""
        if before is None:
            return False
        # What it listed in an earlier life still holds while nobody has asked it again.
        return before == (self.made_from if self.is_listed else self.made_from._replace(listed=before.listed))

    def make_rows(
        self,
        declared: Sequence[DeclaredTool],
        *,
        earlier: Sequence[CatalogRow] = (),
        at_ms: int,
    ) -> tuple[CatalogRow, ...]:
        """The rows. `earlier` are those of the same origin, of use until the server is listed again."""
        offer = self.offer if self.is_listed else None
        rows = make_rows(self.package, declared, record=self.record, offer=offer, at_ms=at_ms)
        if self.is_listed or not earlier:
            return rows
        said = self._placeholder(at_ms)
        return tuple(_replace_texts(row, said) for row in earlier)

    def _placeholder(self, at_ms: int) -> CatalogRow:
        """The row of a package of which nothing but its words is known."""
        package = None if self.package is None else replace(self.package, source="legacy")
        (row,) = make_rows(package, (), record=self.record, offer=None, at_ms=at_ms)
        return row


def _replace_texts(row: CatalogRow, said: CatalogRow) -> CatalogRow:
    """What a tool was known as, with what is written about its package now."""
    return replace(
        row,
        package_name=said.package_name,
        package_description=said.package_description,
        category=said.category,
        tags=said.tags,
        schema_version=said.schema_version,
        updated_at_ms=said.updated_at_ms,
    )


def _digest(value: object) -> str:
    # Values all through, whose texts are the same in every process.
    return hashlib.sha256(repr(value).encode("utf-8", "backslashreplace")).hexdigest()[:32]


SERVED_S: Final = 10.0
"""How long a change may take to be served, before its rows are made of what was served before."""
RETRY_S: Final = 5.0
_SERVERS_AT_ONCE: Final = 100
"""Looked at before others have their turn."""

_log = logging.getLogger(__name__)


class _RowSource(NamedTuple):
    """What the rows of a server were last held against."""

    offer: ServerTools
    package: Package | None


class CatalogProjection:
    """The catalog as it is now. Enter it once the registry is applied; while it is entered, it is kept."""

    def __init__(
        self,
        store: Store,
        gateway: Gateway,
        *,
        searching: HybridIndex,
        clock_ms: Callable[[], int],
        artifacts: ArtifactStore | None = None,
        quality: CatalogQuality | None = None,
    ) -> None:
        """`artifacts`: where the manifests of packages are. None: there are no packages."""
        self.searching = searching
        self.quality = quality or CatalogQuality()
        """Of the rows as they are now, and whether those of the fallback are shown."""
        self._store = store
        self._gateway = gateway
        self._clock_ms = clock_ms
        self._artifacts = artifacts
        self._rows: dict[str, tuple[CatalogRow, ...]] = {}
        self._made_from: dict[str, str] = {}
        self._seen: dict[str, _RowSource] = {}
        self._failing: set[str] = set()
        self._packages: Mapping[str, Package] = MappingProxyType({})
        self._packages_revision = -1
        self._count = 0
        # Held while rows change, in the table, here and where they are found by words.
        self._turn = asyncio.Lock()
        self._indexed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """The rows that the table has are shown from here on. To be found by words takes them longer."""
        self._made_from = await self._store.catalog.made_from()
        self._rows = _by_package(await self._store.catalog.rows())
        for package_id, rows in self._rows.items():
            self.quality.put(package_id, rows)
        self._count += 1
        for follow in (self._follow_gateway, self._follow_table):
            self._tasks.append(asyncio.create_task(follow()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What is shown

    @property
    def rows(self) -> Mapping[str, tuple[CatalogRow, ...]]:
        """By package, those of the fallback included. The same rows as long as `count` is the same."""
        return self._rows

    def shown_rows(self) -> dict[str, tuple[CatalogRow, ...]]:
        """A copy of the rows that callers may see, by package: without the fallback where that has ended."""
        return self.quality.select(self._rows)

    @property
    def count(self) -> int:
        """Rises with every change of the rows."""
        return self._count

    @property
    def packages(self) -> Mapping[str, Package]:
        """Those that are installed."""
        return self._packages

    def server_ids(self) -> Sequence[str]:
        """All that have a place in the catalog, sorted."""
        return sorted(self._gateway.snapshot.servers)

    @property
    def is_indexed(self) -> bool:
        """Whether all that the table had at the start is found by words."""
        return self._indexed.is_set()

    async def indexed(self) -> None:
        """Returns once all that the table had at the start is found by words."""
        await self._indexed.wait()

    # What is made

    async def refresh_package(self, package_id: str) -> None:
        """A package was installed, upgraded or removed: returns when the catalog shows it so."""
        try:
            async with asyncio.timeout(SERVED_S):
                await self._gateway.wait_for_revision(self._store.revision)
        except TimeoutError:
            _log.warning("the catalog shows `%s` as it was: its change is not served yet", package_id)
        await self.make(package_id)

    async def make(self, server_id: str) -> bool:
        """Make the rows of one server, if they are not made of what there is; whether that changed them."""
        async with self._turn:
            await self._read_packages()
            offer = self._gateway.snapshot.servers.get(server_id)
            if offer is None:
                return await self._remove(server_id)
            return await self._make(server_id, offer)

    async def _make(self, server_id: str, offer: ServerTools) -> bool:
        package = self._packages.get(server_id)
        sha256 = _sha256(offer)
        # One that only describes its server goes with a record that names no package.
        is_run = package is not None and (None if package.attached else package.sha256) == sha256
        if not is_run and sha256 and self._gateway.snapshot.revision != self._packages_revision:
            return False  # one of the two is of another revision, and the other on its way
        inputs = RowInputs(offer.record, package if is_run else None, offer)
        before = RowDigests.parse(self._made_from.get(server_id, ""))
        is_changed = not inputs.is_unchanged_since(before) and await self._replace(inputs, before)
        self._seen[server_id] = _RowSource(offer, package)
        return is_changed

    async def _replace(self, inputs: RowInputs, before: RowDigests | None) -> bool:
        server_id, made_from = inputs.record.server_id, inputs.made_from
        earlier = self._rows.get(server_id, ())
        is_same_origin = before is not None and before.origin == made_from.origin
        if is_same_origin and before is not None and not inputs.is_listed:
            made_from = made_from._replace(listed=before.listed)
        rows = await asyncio.to_thread(
            _make_rows,
            inputs,
            await self._declared(inputs.package),
            shown=earlier,
            of_use=earlier if is_same_origin else (),
            at_ms=self._clock_ms(),
        )
        is_changed = await self._store.catalog.replace(server_id, rows, made_from=str(made_from))
        await self._show(server_id, rows, str(made_from))
        return is_changed

    async def _declared(self, package: Package | None) -> Sequence[DeclaredTool]:
        """What the manifest of a package says of its tools."""
        if package is None or self._artifacts is None:
            return ()
        try:
            content = await self._artifacts.manifest(package.package_id, package.version)
            return (await asyncio.to_thread(parse_manifest, content)).tools
        except (NotFound, InvalidRecord) as exc:
            _log.warning("`%s` is in the catalog without its manifest: %s", package.package_id, exc)
            return ()

    async def _remove(self, server_id: str) -> bool:
        """Unless it is registered, and only not served here yet."""
        if await self._store.get("server", server_id) is not None:
            return False
        is_changed = await self._store.catalog.remove(server_id)
        await self._hide(server_id)
        return is_changed

    async def _show(self, server_id: str, rows: tuple[CatalogRow, ...], made_from: str) -> None:
        self._made_from[server_id] = made_from
        if self._rows.get(server_id) != rows:
            # Found by words first: what is shown is found from then on.
            await asyncio.to_thread(self._index, server_id, rows)
            self._rows[server_id] = rows
            self.quality.put(server_id, rows)
            self._count += 1

    def _index(self, server_id: str, rows: Sequence[CatalogRow]) -> None:
        self.searching.put(server_id, [make_entry(row) for row in rows])

    async def _hide(self, server_id: str) -> None:
        self._made_from.pop(server_id, None)
        self._seen.pop(server_id, None)
        if server_id in self._rows:
            await asyncio.to_thread(self.searching.drop, server_id)
            del self._rows[server_id]
            self.quality.drop(server_id)
            self._count += 1

    # What is followed

    async def _follow_gateway(self) -> None:
        for server_id in list(self._rows):
            async with self._turn:
                await asyncio.to_thread(self._index, server_id, self._rows.get(server_id, ()))
        self._indexed.set()
        while True:
            serial = self._gateway.snapshot.serial
            if await self._rebuild_changed_rows():
                await self._gateway.wait_for_swap(serial)
            else:
                await asyncio.sleep(RETRY_S)

    async def _rebuild_changed_rows(self) -> bool:
        """Make the rows of all servers that changed, and of none that did not; whether all could be made."""
        servers = self._gateway.snapshot.servers
        failed: set[str] = set()
        gone = [server_id for server_id in self._made_from if server_id not in servers]
        for place, server_id in enumerate((*servers, *gone)):
            if place % _SERVERS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._is_known(server_id, servers.get(server_id)):
                continue
            try:
                await self.make(server_id)
            except ToolgateError as exc:
                failed.add(server_id)
                if server_id not in self._failing:
                    _log.warning("the catalog shows `%s` as it was, trying again: %s", server_id, exc)
            except Exception:
                # What nobody was prepared for in one package must not keep the others out.
                failed.add(server_id)
                _log.exception("the catalog shows `%s` as it was, trying again", server_id)
        self._failing = failed
        return not failed

    def _is_known(self, server_id: str, offer: ServerTools | None) -> bool:
        seen = self._seen.get(server_id)
        return (
            seen is not None
            and seen.offer is offer
            and seen.package is self._packages.get(server_id)
            and self._packages_revision == self._store.revision
        )

    async def _read_packages(self) -> None:
        revision = self._store.revision
        if self._packages_revision == revision:
            return
        listing = await self._store.list("package")
        found: dict[str, Package] = {}
        for stored in listing.records:
            try:
                package = parse_record("package", stored.id, stored.body, strict=False)
            except InvalidRecord as exc:
                _log.warning("package `%s` is left out, it is not valid: %s", stored.id, exc)
                continue
            assert isinstance(package, Package)
            known = self._packages.get(stored.id)
            found[stored.id] = known if known is not None and known == package else package
        self._packages, self._packages_revision = MappingProxyType(found), revision

    async def _follow_table(self) -> None:
        """Take over what other replicas make."""
        seen = 0
        while True:
            try:
                seen = await self._store.catalog.changed(seen)
                await self._read_table()
            except ToolgateError as exc:
                _log.warning("the catalog cannot be read, trying again: %s", exc)
                await asyncio.sleep(RETRY_S)

    async def _read_table(self) -> None:
        async with self._turn:
            stored = await self._store.catalog.made_from()
            for server_id, made_from in stored.items():
                if self._made_from.get(server_id) != made_from:
                    rows = await self._store.catalog.rows(server_id)
                    await self._show(server_id, tuple(rows), made_from)
            for server_id in self._made_from.keys() - stored.keys():
                await self._hide(server_id)


def _sha256(offer: ServerTools) -> str | None:
    return None if offer.record.package is None else offer.record.package.sha256


def _make_rows(
    inputs: RowInputs,
    declared: Sequence[DeclaredTool],
    *,
    shown: Sequence[CatalogRow],
    of_use: Sequence[CatalogRow],
    at_ms: int,
) -> tuple[CatalogRow, ...]:
    """The rows as they are to be, those that say what is `shown` already with their times."""
    rows = inputs.make_rows(declared, earlier=of_use, at_ms=at_ms)
    return tuple(keep_times(rows, {row.tool_name: row for row in shown}).values())


def _by_package(rows: Iterable[CatalogRow]) -> dict[str, tuple[CatalogRow, ...]]:
    """`rows`, which are sorted."""
    return {package_id: tuple(group) for package_id, group in groupby(rows, lambda row: row.package_id)}
