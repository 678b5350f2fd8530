"""Every link to control keeps the same promises: the one in memory that tests use, and gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from tests.contract.node_service import KEY, Context, NodeService, serving
from tests.memory_audit import MemorySink
from tests.registry.control_play import MemoryControl
from tests.registry.memory_store import MemoryStore
from tests.scenarios.soak import rounds
from tests.scenarios.wires import open_wire
from tests.surfaces.rest_world import open_control_plane
from tests.upstream.certificates import Authority
from tests.upstream.memory_link import MemoryNet, pool_of
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import Compacted, ControlUnavailable, Unauthenticated
from toolgate.gateway.auth.identity import Identities, hash_key
from toolgate.gateway.gateway import Gateway
from toolgate.model.principals import Key
from toolgate.model.reports import Definitions, NodeReport, ServerReport
from toolgate.model.revisions import ChangeBatch, RecordWrite
from toolgate.model.tools import Snapshot
from toolgate.policy.scope import ScopeLimits
from toolgate.proto import node_pb2
from toolgate.registry.replication.connection import (
    ControlAddress,
    GrpcControlConnection,
    is_plaintext,
    load_system_authorities,
    open_control_connection,
)
from toolgate.registry.replication.state import RegistryState, parse_listing
from toolgate.registry.replication.sync import ControlConnection, HistoryPosition, NodeSync, SyncLimits
from toolgate.surfaces.grpc.server import open_grpc_server
from toolgate.telemetry import Metrics

pytestmark = pytest.mark.anyio

DEADLINE_S: Final = 240


@asynccontextmanager
async def open_memory(store: MemoryStore) -> AsyncIterator[ControlConnection]:
    yield MemoryControl(store)


@asynccontextmanager
async def open_grpc(store: MemoryStore) -> AsyncIterator[ControlConnection]:
    async with serving(NodeService(store)) as target, opened(target) as link:
        yield link


@asynccontextmanager
async def open_control(store: MemoryStore) -> AsyncIterator[ControlConnection]:
    """gRPC to the real thing."""
    async with pool_of(MemoryNet()) as pool:
        gateway = Gateway(
            pool, AuditLog(MemorySink()), metrics=Metrics(), limits=ScopeLimits(), snapshot=Snapshot()
        )
        identities = Identities(admin_key=None, trusts_local=False, clock_s=lambda: 0.0)
        identities.apply({"n": Key(key_id="n", sha256=hash_key(KEY), role="node")})
        async with (
            open_control_plane(store, gateway, identities) as control,
            open_grpc_server(control, "127.0.0.1:0") as target,
            opened(target) as link,
        ):
            yield link


def opened(
    *targets: str, key: str | None = KEY, **limits: int
) -> AbstractAsyncContextManager[GrpcControlConnection]:
    return open_control_connection(ControlAddress(targets=targets, key=key), jitter=lambda: 0.0, **limits)


OpenLink = Callable[[MemoryStore], AbstractAsyncContextManager[ControlConnection]]
LINKS: Final[dict[str, OpenLink]] = {"memory": open_memory, "grpc": open_grpc, "control": open_control}


@pytest.fixture(params=LINKS)
def open_link(request: pytest.FixtureRequest) -> OpenLink:
    return LINKS[request.param]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 0, epoch="e")


def task(task_id: str, **config: str) -> RecordWrite:
    return RecordWrite(kind="task", id=task_id, body={"task_id": task_id, "config": config})


async def seed(store: MemoryStore, *task_ids: str) -> None:
    await store.write([task(one) for one in task_ids], actor="ada")


def shown(batch: ChangeBatch) -> tuple[int, list[tuple[str, str, object]]]:
    return batch.revision, [(change.kind, change.id, change.after) for change in batch.changes]


async def test_a_listing_is_whole_and_of_one_revision(open_link: OpenLink, store: MemoryStore) -> None:
    await seed(store, "a", "b", "c", "d", "e")
    async with asyncio.timeout(DEADLINE_S), open_link(store) as link:
        listing = await link.list_records()

        assert (await link.newest())[:2] == ("e", 1)
    assert parse_listing(listing) == parse_listing(await store.list())
    assert (listing.epoch, listing.revision, len(listing.records)) == ("e", 1, 5)


async def test_an_empty_registry_is_listed_too(open_link: OpenLink, store: MemoryStore) -> None:
    async with asyncio.timeout(DEADLINE_S), open_link(store) as link:
        assert (await link.list_records()).records == ()
        assert (await link.newest())[:2] == ("e", 0)


async def test_a_watch_replays_bookmarks_and_goes_on_live_one_batch_a_transaction(
    open_link: OpenLink, store: MemoryStore
) -> None:
    await seed(store, "a")
    await seed(store, "b", "c")
    async with (
        asyncio.timeout(DEADLINE_S),
        open_link(store) as link,
        link.watch_records(HistoryPosition("e", 1)) as batches,
    ):
        replayed, bookmark = shown(await anext(batches)), shown(await anext(batches))
        await store.write([task("d", colour="red"), RecordWrite(kind="task", id="a", body=None)], actor="ada")
        live = shown(await anext(batches))

    empty: dict[str, object] = {"config": {}}
    assert replayed == (
        2,
        [("task", "b", {"task_id": "b", **empty}), ("task", "c", {"task_id": "c", **empty})],
    )
    assert bookmark == (2, [])
    assert live == (3, [("task", "d", {"task_id": "d", "config": {"colour": "red"}}), ("task", "a", None)])


async def test_wat_3_a_watch_from_before_the_log_or_of_another_epoch_says_to_list_again(
    open_link: OpenLink, store: MemoryStore
) -> None:
    await seed(store, "a")
    await seed(store, "b")
    await store.compact(keep_revisions=0, keep_ms=0)
    async with asyncio.timeout(DEADLINE_S), open_link(store) as link:
        for epoch, since in (("e", 1), ("another", 2)):
            with pytest.raises(Compacted):
                async with link.watch_records(HistoryPosition(epoch, since)) as batches:
                    await anext(batches)


@pytest.mark.parametrize("kind", ["memory", "control"])
async def test_wat_12_a_watch_is_resumed_only_in_the_history_it_saw(kind: str, store: MemoryStore) -> None:
    await seed(store, "a")
    await seed(store, "b")
    async with asyncio.timeout(DEADLINE_S), LINKS[kind](store) as link:
        position = await link.newest()
        listing = await link.list_records()
        async with link.watch_records(position) as batches:
            bookmark = await anext(batches)
        with pytest.raises(Compacted):
            async with link.watch_records(HistoryPosition("e", 2, "0" * 64)) as batches:
                await anext(batches)

    assert position == HistoryPosition("e", 2, store.digest)
    assert (listing.digest, bookmark.digest) == (store.digest, store.digest)


async def test_a_report_arrives_and_control_says_what_it_wants(
    open_link: OpenLink, store: MemoryStore
) -> None:
    report = NodeReport(node_id="n", servers=(ServerReport(server_id="fs", state="connected", tools=2),))
    async with asyncio.timeout(DEADLINE_S), open_link(store) as link:
        assert list(await link.report(report, ())) == []


async def test_a_closed_store_ends_the_watch_with_an_error_that_passes(
    open_link: OpenLink, store: MemoryStore
) -> None:
    async def watch_to_the_end(link: ControlConnection) -> None:
        async with link.watch_records(HistoryPosition("e", 0)) as batches:
            async for _ in batches:
                await store.aclose()
        raise ControlUnavailable("it just ended")

    async with asyncio.timeout(DEADLINE_S), open_link(store) as link:
        with pytest.raises(ControlUnavailable):
            await watch_to_the_end(link)


# gRPC alone


async def test_a_report_says_everything_over_the_line(store: MemoryStore) -> None:
    service = NodeService(store)
    service.wanted = ("fs",)
    server = ServerReport(
        server_id="fs",
        state="degraded",
        list_state="list_failed",
        since_ms=5,
        last_error="gone",
        restarts=2,
        tools=3,
        quarantined=1,
        calls=9,
        is_stale=True,
        definitions="d1",
    )
    report = NodeReport(
        node_id="n1",
        url="http://n1",
        version="1",
        epoch="e",
        revision=7,
        is_degraded=True,
        servers=(server,),
    )
    known = Definitions(server_id="fs", digest="d1", tools=(b'{"name":"x"}',), quarantined={"y": "bad"})
    async with asyncio.timeout(DEADLINE_S), serving(service) as target, opened(target) as link:
        wanted = [list(await link.report(report, ())), list(await link.report(report, (known,)))]

    assert wanted == [["fs"], []]
    assert service.reports[1] == node_pb2.ReportRequest(
        node_id="n1",
        url="http://n1",
        version="1",
        epoch="e",
        revision=7,
        is_degraded=True,
        servers=[
            node_pb2.ServerReport(
                server_id="fs",
                state="degraded",
                list_state="list_failed",
                since_ms=5,
                last_error="gone",
                restarts=2,
                tools=3,
                quarantined=1,
                calls=9,
                is_stale=True,
                definitions="d1",
            )
        ],
        definitions=[
            node_pb2.Definitions(
                server_id="fs", digest="d1", tools=[b'{"name":"x"}'], quarantined={"y": "bad"}
            )
        ],
    )


async def test_a_wrong_key_is_named_as_the_cause_and_no_secret_is_repeated(store: MemoryStore) -> None:
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(NodeService(store)) as target,
        opened(target, key="tg_wrong") as link,
    ):
        with pytest.raises(Unauthenticated, match="unknown, revoked or expired") as refused:
            await link.list_records()

    assert "abcdefghijkl" not in str(refused.value)
    assert "control_key_file" in refused.value.hint


async def test_a_refused_connection_names_its_target(store: MemoryStore) -> None:
    async with serving(NodeService(store)) as target:
        pass
    async with asyncio.timeout(DEADLINE_S), opened(target) as link:
        with pytest.raises(ControlUnavailable, match=target):
            await link.list_records()
        with pytest.raises(ControlUnavailable, match=target):
            await link.newest()
        with pytest.raises(ControlUnavailable, match=target):
            await link.report(NodeReport(node_id="n"), ())


async def test_records_that_are_no_json_are_left_out_and_the_others_served(store: MemoryStore) -> None:
    """REP-6"""
    service = NodeService(store)
    await seed(store, "good")
    service.extra_records = [
        node_pb2.Record(kind="task", id="bad", body=b"\xff{"),
        node_pb2.Record(kind="profile", id="bad", body=b"[]"),
        node_pb2.Record(kind="weather", id="new", body=b'{"is":"new"}'),
    ]
    async with asyncio.timeout(DEADLINE_S), serving(service) as target, opened(target) as link:
        state = parse_listing(await link.list_records())

    assert (sorted(state.tasks), sorted(state.profiles)) == (["good"], [])


async def test_a_node_turns_from_a_replica_that_is_gone_to_the_next(store: MemoryStore) -> None:
    states, ready = list[RegistryState](), asyncio.Event()
    one, two = NodeService(store), NodeService(store)
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as first_alone, AsyncExitStack() as stack:
        first = await first_alone.enter_async_context(serving(one))
        second = await stack.enter_async_context(serving(two))
        link = await stack.enter_async_context(opened(first, second))
        sync = NodeSync(link, apply=states.append, on_contact=ready.set, jitter=lambda: 0.1)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(sync.run())
            await ready.wait()
            lists = (one.lists, two.lists)
            await first_alone.aclose()
            await seed(store, "late")
            while not states[-1].tasks:
                await asyncio.sleep(0.01)
            following.cancel()

    assert lists == (1, 0)
    assert states[-1] == parse_listing(await store.list())
    assert (two.lists, two.watches, sync.status.relists) == (0, 1, 0)


@pytest.mark.soak
async def test_wat_2_a_line_that_is_reset_every_few_events_costs_nothing_but_time(store: MemoryStore) -> None:
    states, ready = list[RegistryState](), asyncio.Event()
    cuts = 0
    async with asyncio.timeout(10 * DEADLINE_S), AsyncExitStack() as stack:
        target = await stack.enter_async_context(serving(NodeService(store)))
        wire = stack.enter_context(open_wire(target))
        link = await stack.enter_async_context(opened(wire.address))
        limits = SyncLimits(backoff_s=0.01, backoff_max_s=0.05)
        sync = NodeSync(link, apply=states.append, on_contact=ready.set, limits=limits)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(sync.run())
            await ready.wait()
            for n in range(rounds(suite=100, soak=5_000)):
                await store.write([task(f"t{n % 7}", n=str(n)), task(f"u{n % 3}")], actor="ada")
                if n % 5 == 4:
                    await store.write([RecordWrite(kind="task", id=f"t{n % 7}", body=None)], actor="ada")
                if n % 9 == 8:
                    while states[-1].revision < store.revision - 3:
                        await asyncio.sleep(0.001)
                    cuts += await asyncio.to_thread(wire.cut)
            while states[-1].revision < store.revision:
                await asyncio.sleep(0.001)
            following.cancel()

    assert states[-1] == parse_listing(await store.list())
    revisions = [state.revision for state in states]
    assert revisions == sorted(set(revisions))  # a list after cuts passes over some; none comes twice
    assert cuts > 5
    assert sync.status.relists == 0


class Misspeaking(NodeService):
    """Says these parts of a listing, whatever is in the store."""

    def __init__(self, store: MemoryStore, *parts: node_pb2.ListRecordsResponse) -> None:
        super().__init__(store)
        self._parts = parts

    async def list_records(
        self, _request: node_pb2.ListRecordsRequest, _context: Context
    ) -> AsyncIterator[node_pb2.ListRecordsResponse]:
        for part in self._parts:
            yield part


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        pytest.param([("e", 1, False)], "is incomplete", id="no last part"),
        pytest.param([("e", 1, False), ("e", 2, True)], "mixed two listings", id="two revisions"),
        pytest.param([("e", 1, False), ("f", 1, True)], "mixed two listings", id="two epochs"),
        pytest.param([], "is incomplete", id="nothing"),
    ],
)
async def test_part_of_a_listing_is_none(
    store: MemoryStore, parts: list[tuple[str, int, bool]], problem: str
) -> None:
    rpc = [
        node_pb2.ListRecordsResponse(epoch=epoch, revision=revision, is_last=is_last)
        for epoch, revision, is_last in parts
    ]
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(Misspeaking(store, *rpc)) as target,
        opened(target) as link,
    ):
        with pytest.raises(ControlUnavailable, match=problem):
            await link.list_records()


async def test_a_listing_without_end_is_given_up(store: MemoryStore) -> None:
    await seed(store, *(f"t{n}" for n in range(100)))
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(NodeService(store)) as target,
        opened(target, max_listing_bytes=1_000) as link,
    ):
        with pytest.raises(ControlUnavailable, match="lists more than 1000 bytes"):
            await link.list_records()


class Hanging(NodeService):
    """Takes reports, and never answers them."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.asked = asyncio.Event()

    async def report(self, _request: node_pb2.ReportRequest, _context: Context) -> node_pb2.ReportResponse:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_what_is_under_way_on_a_line_that_is_given_up_fails_and_is_not_cancelled(
    store: MemoryStore,
) -> None:
    service = Hanging(store)
    async with asyncio.timeout(DEADLINE_S), serving(service) as target, opened(target) as link:
        reporting = asyncio.ensure_future(link.report(NodeReport(node_id="n"), ()))
        await service.asked.wait()
        await link.aclose()
        with pytest.raises(ControlUnavailable, match="was closed"):
            await reporting

        assert (await link.newest())[:2] == ("e", 0)


async def test_a_call_of_our_own_that_is_cancelled_is_cancelled(store: MemoryStore) -> None:
    service = Hanging(store)
    async with asyncio.timeout(DEADLINE_S), serving(service) as target, opened(target) as link:
        reporting = asyncio.ensure_future(link.report(NodeReport(node_id="n"), ()))
        await service.asked.wait()
        reporting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reporting


async def test_a_line_with_an_authority_is_encrypted_and_the_other_end_must_prove_itself(
    store: MemoryStore, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path), Authority(_made(tmp_path / "stranger"))
    authority.server_context(["127.0.0.1"], days=1)
    pem = (tmp_path / "server.pem").read_bytes()
    credentials = grpc.ssl_server_credentials([(pem, pem)])
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(NodeService(store), credentials=credentials) as target,
    ):
        trusting = ControlAddress(targets=(target,), key=KEY, ca=authority.path.read_bytes())
        doubting = ControlAddress(targets=(target,), key=KEY, ca=stranger.path.read_bytes())
        async with open_control_connection(trusting) as link:
            assert (await link.newest())[:2] == ("e", 0)
        async with open_control_connection(doubting) as link:
            with pytest.raises(ControlUnavailable):
                await link.newest()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param(ControlAddress(targets=("[::1]:1",)), True, id="this machine"),
        pytest.param(ControlAddress(targets=("[::1]:1",), ca=b"PEM"), False, id="an authority is named"),
        pytest.param(ControlAddress(targets=("control:1",)), False, id="another machine"),
        pytest.param(ControlAddress(targets=("control:1",), allows_plaintext=True), True, id="a mesh"),
    ],
)
def test_sec_only_this_machine_is_spoken_to_in_plain_text(address: ControlAddress, expected: bool) -> None:
    assert is_plaintext(address.targets[0], address) is expected


async def test_without_an_authority_of_its_own_a_line_trusts_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))

    assert load_system_authorities() == authority.path.read_bytes()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
