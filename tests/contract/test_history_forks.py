"""TRY-3: a registry whose history goes back. No follower serves other records than its control plane does.

A failover to a standby that lacks acknowledged commits, and a copy that is put back, both take the log to an
earlier revision of the same epoch. What is written then has the revisions of what was lost.
"""

import asyncio
import itertools
import random
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal, Protocol

import pytest
from psycopg import sql

from tests.contract.node_service import KEY
from tests.contract.stores import DEADLINE_S, schema_url
from tests.memory_audit import MemorySink
from tests.postgres import shared_server
from tests.scenarios.ports import own_address
from tests.scenarios.soak import rounds
from tests.scenarios.wires import Wire, open_wire
from tests.surfaces.rest_world import open_control_plane
from tests.upstream.memory_link import MemoryNet, pool_of
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import StorageUnavailable
from toolgate.gateway.auth.identity import Identities, hash_key
from toolgate.gateway.gateway import Gateway
from toolgate.model.principals import Key
from toolgate.model.reports import Definitions, NodeReport
from toolgate.model.revisions import ChangeBatch, RecordList, RecordWrite
from toolgate.model.tools import Snapshot
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.replication.connection import (
    ControlAddress,
    GrpcControlConnection,
    open_control_connection,
)
from toolgate.registry.replication.state import RegistryState, parse_listing, watch_registry
from toolgate.registry.replication.sync import HistoryPosition, NodeSync, SyncLimits
from toolgate.registry.store import StoreLimits
from toolgate.registry.store.engines import open_sqlite_store
from toolgate.registry.store.postgresql import open_postgres_store
from toolgate.registry.store.sql_store import Store
from toolgate.surfaces.grpc.server import open_grpc_server
from toolgate.telemetry import Metrics

pytestmark = pytest.mark.anyio

FORKS: Final = rounds(suite=5, soak=100)
"""Of each engine: together 200 in a soak."""
PATIENCE: Final = SyncLimits(
    backoff_s=0.02,
    backoff_max_s=0.2,
    resume_max_s=0.1,
    relist_spread_s=0.05,
    poll_min_s=0.2,
    poll_max_s=0.4,
    settle_s=0.2,
    behind_s=0.5,
)
POLL_S: Final = 0.1
TASK_IDS: Final = ("a", "b", "c", "d")
Fate = Literal["running", "paused", "cut"]


class Registry(Protocol):
    """The database under one or more control planes. It can be taken back to an earlier state."""

    @property
    def stores(self) -> Sequence[Store]:
        """Of each control plane, the one that is open now."""

    @property
    def addresses(self) -> Sequence[str]:
        """Where each listens for nodes."""

    async def save(self) -> None:
        """Remember the state of now."""

    async def go_back(self) -> None:
        """To the state that was saved last."""


@asynccontextmanager
async def serving(store: Store, address: str) -> AsyncIterator[None]:
    """A control plane over `store`, for nodes. It is stopped without waiting for nodes that stand still."""
    async with pool_of(MemoryNet()) as pool:
        gateway = Gateway(
            pool, AuditLog(MemorySink()), metrics=Metrics(), limits=ScopeLimits(), snapshot=Snapshot()
        )
        identities = Identities(admin_key=None, trusts_local=False, clock_s=lambda: 0.0)
        identities.apply({"n": Key(key_id="n", sha256=hash_key(KEY), role="node")})
        async with (
            open_control_plane(store, gateway, identities) as control,
            open_grpc_server(control, address, drain_s=POLL_S),
        ):
            yield


class PostgresRegistry:
    """Two control planes on one PostgreSQL, whose tables become those of a standby that lags behind."""

    def __init__(self, url: str, stores: Sequence[Store], addresses: Sequence[str]) -> None:
        self._schema = url.rpartition("%3D")[2]
        self.stores = stores
        self.addresses = addresses
        self._tables = [
            str(name)
            for (name,) in shared_server().execute(
                sql.SQL(
                    "SELECT table_name FROM information_schema.tables WHERE table_schema = {} "
                    "AND table_name IN ('head', 'records', 'changes', 'digests')"
                ).format(sql.Literal(self._schema))
            )
        ]

    async def save(self) -> None:
        copies = [
            f"CREATE TABLE {self._schema}_saved.{table} AS TABLE {self._schema}.{table}"
            for table in self._tables
        ]
        saved = f"{self._schema}_saved"
        await self._run(f"DROP SCHEMA IF EXISTS {saved} CASCADE", f"CREATE SCHEMA {saved}", *copies)

    async def go_back(self) -> None:
        swaps = itertools.chain.from_iterable(
            (
                f"DELETE FROM {self._schema}.{table}",
                f"INSERT INTO {self._schema}.{table} SELECT * FROM {self._schema}_saved.{table}",
            )
            for table in self._tables
        )
        await self._run("BEGIN", *swaps, "COMMIT")
        # Every connection to the old primary is gone.
        await self._run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'toolgate' AND pid <> pg_backend_pid()"
        )

    async def _run(self, *statements: str) -> None:
        await asyncio.to_thread(shared_server().execute, "; ".join(statements))


@asynccontextmanager
async def open_postgres(directory: Path) -> AsyncIterator[Registry]:
    url = schema_url(directory)
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(
                open_postgres_store(url, lambda: 0, limits=StoreLimits(poll_s=POLL_S))
            )
            for _ in range(2)
        ]
        addresses = [own_address(), own_address()]
        for store, address in zip(stores, addresses, strict=True):
            await stack.enter_async_context(serving(store, address))
        yield PostgresRegistry(url, stores, addresses)


class SqliteRegistry:
    """One control plane on a file. It is stopped while the file is copied, and while a copy is put back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copy = path.with_name("copy.db")
        self.addresses = (own_address(),)
        self.stores: list[Store] = []
        self._open = AsyncExitStack()

    async def start(self) -> None:
        store = await self._open.enter_async_context(open_sqlite_store(self._path, lambda: 0))
        await self._open.enter_async_context(serving(store, self.addresses[0]))
        self.stores = [store]

    async def stop(self) -> None:
        await self._open.aclose()

    async def save(self) -> None:
        await self.stop()
        shutil.copy(self._path, self._copy)
        await self.start()

    async def go_back(self) -> None:
        await self.stop()
        shutil.copy(self._copy, self._path)
        await self.start()


@asynccontextmanager
async def open_sqlite(directory: Path) -> AsyncIterator[Registry]:
    registry = SqliteRegistry(directory / "registry.db")
    await registry.start()
    try:
        yield registry
    finally:
        await registry.stop()


class Pausable:
    """A link whose node is still, as by SIGSTOP: nothing it was sent is looked at until it goes on."""

    def __init__(self, link: GrpcControlConnection) -> None:
        self._link = link
        self.going = asyncio.Event()
        self.going.set()

    async def list_records(self) -> RecordList:
        listing = await self._link.list_records()
        await self.going.wait()
        return listing

    async def newest(self) -> HistoryPosition:
        found = await self._link.newest()
        await self.going.wait()
        return found

    @asynccontextmanager
    async def watch_records(self, since: HistoryPosition) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
        async with self._link.watch_records(since) as batches:
            yield self._held(batches)

    async def report(self, report: NodeReport, definitions: Sequence[Definitions]) -> Sequence[str]:
        return await self._link.report(report, definitions)

    async def _held(self, batches: AsyncIterator[ChangeBatch]) -> AsyncIterator[ChangeBatch]:
        async for batch in batches:
            await self.going.wait()
            yield batch


class Node:
    """A follower: its state, and what can happen to it."""

    def __init__(
        self, link: GrpcControlConnection, wires: Sequence[Wire], jitter: Callable[[], float]
    ) -> None:
        self._link = Pausable(link)
        self._wires = wires
        self.state: RegistryState | None = None
        self.sync = NodeSync(self._link, apply=self._apply, limits=PATIENCE, jitter=jitter)

    def suffer(self, fate: Fate) -> None:
        if fate == "paused":
            self._link.going.clear()
        for wire in self._wires if fate == "cut" else ():
            wire.hold()

    def recover(self) -> None:
        self._link.going.set()
        for wire in self._wires:
            wire.cut()
            wire.release()

    def _apply(self, state: RegistryState) -> None:
        self.state = state


@asynccontextmanager
async def following(registry: Registry, jitter: Callable[[], float]) -> AsyncIterator[Node]:
    """A node that reaches every control plane of `registry` over wires of its own."""
    async with AsyncExitStack() as stack:
        wires = [stack.enter_context(open_wire(target)) for target in registry.addresses]
        address = ControlAddress(targets=tuple(wire.address for wire in wires), key=KEY)
        link = await stack.enter_async_context(open_control_connection(address, jitter=jitter))
        node = Node(link, wires, jitter)
        task = asyncio.ensure_future(node.sync.run())
        try:
            yield node
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def written(store: Store, number: int, task_id: str) -> None:
    body = {"task_id": task_id, "display_name": str(number)}
    while True:
        with suppress(StorageUnavailable):
            await store.write([RecordWrite(kind="task", id=task_id, body=body)], actor="ada")
            return
        await asyncio.sleep(0.02)


async def listed(store: Store) -> RegistryState:
    while True:
        with suppress(StorageUnavailable):
            return parse_listing(await store.list())
        await asyncio.sleep(0.02)


async def agree(nodes: Sequence[Node], registry: Registry, story: str) -> None:
    """Passes once every node has the records of the registry."""
    expected = await listed(registry.stores[0])
    try:
        async with asyncio.timeout(60):
            while any(node.state != expected for node in nodes):
                await asyncio.sleep(0.01)
    except TimeoutError:
        for node in nodes:
            assert node.state == expected, f"{story}: {node.sync.status}"
        raise


OPEN: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Registry]]]] = {
    "postgresql": open_postgres,
    "sqlite": open_sqlite,
}


@pytest.mark.soak
@pytest.mark.parametrize("engine", OPEN)
async def test_try_3_no_follower_keeps_records_of_a_history_that_was_taken_back(
    engine: str, tmp_path: Path
) -> None:
    rng = random.Random(3)
    numbers = itertools.count()
    async with asyncio.timeout(DEADLINE_S * FORKS), AsyncExitStack() as stack:
        registry = await stack.enter_async_context(OPEN[engine](tmp_path))
        nodes = [await stack.enter_async_context(following(registry, rng.random)) for _ in range(3)]

        async def write(times: int) -> None:
            for _ in range(times):
                await written(rng.choice(registry.stores), next(numbers), rng.choice(TASK_IDS))

        for number in range(FORKS):
            await write(2)
            await registry.save()
            lost, after = rng.randint(1, 4), rng.randint(0, 6)
            if number % 2 == 0:
                after = lost  # the revisions come out equal
            fates: list[Fate] = [rng.choice(("running", "paused", "cut")) for _ in nodes]
            await write(lost)
            await agree(nodes, registry, f"before fork {number}")
            for node, fate in zip(nodes, fates, strict=True):
                node.suffer(fate)
            await registry.go_back()
            await write(after)
            for node in nodes:
                node.recover()
            await agree(nodes, registry, f"fork {number}: {lost} lost, {after} written, {fates}")


async def test_try_3_a_control_plane_reads_again_what_its_database_lost(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE_S), open_postgres(tmp_path) as registry:
        one, other = registry.stores
        states: list[RegistryState] = []
        seen = states.append

        async def follow() -> None:
            async for state in watch_registry(other):
                seen(state)

        task = asyncio.ensure_future(follow())
        await written(one, 0, "a")
        await registry.save()
        await written(one, 1, "a")
        while not states or states[-1].revision < 2:
            await asyncio.sleep(0.01)
        await registry.go_back()
        await written(one, 2, "a")
        expected = await listed(one)
        async with asyncio.timeout(60):
            while states[-1] != expected:
                await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    assert states[-1].tasks["a"].display_name == "2"
