"""Nodes: they get everything as it is stored, in one piece, and what they report is taken with care."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import grpc
import grpc.aio
import msgspec
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.definition_samples import tool
from tests.registry.memory_store import MemoryStore
from tests.surfaces.grpc.grpc_world import GrpcWorld, batch_of, open_grpc_world, refusal_of
from tests.surfaces.rest_world import open_rest, secret_of, stdio, task
from toolgate.audit.events import DefinitionChanged
from toolgate.errors import Compacted, InvalidRequest, SessionLimit
from toolgate.model.principals import Principal
from toolgate.model.reports import LOST_AFTER_MS, Definitions, NodeReport, ServerReport
from toolgate.model.revisions import RecordWrite
from toolgate.proto import node_pb2
from toolgate.surfaces.grpc.collection import MAX_BATCH_BYTES, PART_BYTES, watch_records
from toolgate.surfaces.grpc.dispatch import RpcCall, StreamHandler
from toolgate.surfaces.grpc.reports import (
    MAX_DEFINITIONS_BYTES,
    MAX_SERVERS,
    MAX_TEXT,
    REREAD_MS,
    ReportReceiver,
    parse_definitions,
    parse_node_id,
    parse_report,
)

pytestmark = pytest.mark.anyio

SERVICE: Final = "toolgate.v1.NodeService"
NODE: Final = secret_of("node")


async def list_parts(world: GrpcWorld) -> list[Any]:
    request = node_pb2.ListRecordsRequest()
    return [part async for part in world.stream(f"{SERVICE}/ListRecords", request, key=NODE)]


async def report(world: GrpcWorld, **fields: Any) -> list[str]:
    request = node_pb2.ReportRequest(**fields)
    return list((await world.request(f"{SERVICE}/Report", request, key=NODE)).wanted)


async def test_a_node_gets_every_kind_as_it_is_stored() -> None:
    secret = {"secret_id": "session", "hex": "ab" * 32}
    git = stdio("git", stdio={"env": {"API_KEY": "canary"}}, enabled=False)
    async with open_grpc_world() as world:
        await world.rest.seed(server=[git], task=[task("t")], profile=[{"profile_id": "p"}])
        await world.store.write(
            [
                RecordWrite(kind="pin", id="git", body={"server_id": "git"}),
                RecordWrite(kind="secret", id="session", body=secret),
            ],
            actor="test",
        )
        (part,) = await list_parts(world)
        listing = await world.store.list()

    assert (part.epoch, part.revision, part.is_last) == (listing.epoch, listing.revision, True)
    assert [(one.kind, one.id, msgspec.json.decode(one.body)) for one in part.records] == [
        (one.kind, one.id, one.body) for one in listing.records
    ]
    assert {one.kind for one in part.records} == {"server", "task", "profile", "key", "pin", "secret"}


async def test_a_large_listing_comes_in_parts_of_one_revision() -> None:
    async with open_grpc_world() as world:
        writes = [
            RecordWrite(
                kind="task", id=f"t{n}", body=task(f"t{n}") | {"config": {"note": f'"{"x" * 50_000}"'}}
            )
            for n in range(60)
        ]
        await world.store.write(writes, actor="test")
        parts = await list_parts(world)
        listing = await world.store.list()

    assert len(parts) >= 3
    assert max(part.ByteSize() for part in parts) < PART_BYTES + 60_000
    assert {(part.epoch, part.revision) for part in parts} == {(listing.epoch, listing.revision)}
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [one.id for part in parts for one in part.records] == [one.id for one in listing.records]


async def test_a_transaction_of_many_records_comes_as_one_message() -> None:
    async with open_grpc_world() as world:
        start = world.store.revision
        writes = [RecordWrite(kind="task", id=f"t{n}", body=task(f"t{n}")) for n in range(1_000)]
        await world.store.write(writes, actor="test")
        request = node_pb2.WatchRecordsRequest(epoch=world.store.epoch, since_revision=start)
        call = world.stream(f"{SERVICE}/WatchRecords", request, key=NODE)
        batch = batch_of(await call.read())
        call.cancel()

    assert [change.id for change in batch.changes] == [write.id for write in writes]


async def test_a_transaction_too_large_for_a_message_is_followed_by_listing() -> None:
    store, body = MemoryStore(lambda: 0), {"config": {"note": "x" * 250_000}}
    count = MAX_BATCH_BYTES // 250_000 + 1
    await store.write([RecordWrite(kind="task", id=f"t{n}", body=body) for n in range(count)], actor="test")
    async with open_rest() as rest:
        control = replace(rest.control, store=store)
        call = RpcCall(control=control, principal=None, request=node_pb2.WatchRecordsRequest())

        with pytest.raises(Compacted):
            await anext(cast("StreamHandler", watch_records.handler)(call))


# Reports


async def test_a_report_is_kept_under_the_name_of_its_key() -> None:
    async with open_grpc_world() as world:
        await world.rest.seed(server=[stdio("git", enabled=False)])
        git = node_pb2.ServerReport(server_id="git", state="connected", list_state="ready", tools=3)
        await report(
            world,
            node_id="edge-1",
            url="http://10.0.0.7:8080",
            version="0.1.0",
            epoch="e",
            revision=7,
            servers=[git],
        )
        kept = await world.store.reports.list_reports()

    assert kept == [
        NodeReport(
            node_id="node/edge-1",
            url="http://10.0.0.7:8080",
            version="0.1.0",
            epoch="e",
            revision=7,
            at_ms=1_700_000_000_000,
            servers=(ServerReport(server_id="git", state="connected", list_state="ready", tools=3),),
        )
    ]


@pytest.mark.parametrize(
    ("behind", "epoch", "expected"),
    [
        pytest.param(0, None, {"log": "1" * 64}, id="of the pin as it is"),
        pytest.param(1, None, {}, id="of the pin before it was approved again"),
        pytest.param(0, "another", {}, id="of another registry"),
    ],
)
async def test_ups_9_what_a_node_found_to_have_changed_is_recorded(
    behind: int, epoch: str | None, expected: dict[str, str]
) -> None:
    found = {"log": "1" * 64, "push": "short", "never approved": "1" * 64, "never": "1" * 64}
    async with open_grpc_world() as world:
        pin = {"server_id": "git", "tools": {"log": "0" * 64, "push": "0" * 64}}
        await world.rest.seed(server=[stdio("git", enabled=False)], pin=[pin])
        git = node_pb2.ServerReport(server_id="git", changed=found)
        for _ in range(2):
            await report(
                world,
                epoch=epoch or world.store.epoch,
                revision=world.store.revision - behind,
                servers=[git],
            )
        stored = await world.store.get("pin", "git")
        world.rest.control.gateway.audit.flush()
        audited = [event for _, event in world.rest.sink.events if isinstance(event, DefinitionChanged)]

    assert stored is not None
    assert (stored.body.get("changed", {}), stored.body["tools"]) == (expected, pin["tools"])
    assert [(one.server_id, one.tool, one.approved, one.found) for one in audited] == [
        ("git", tool, "0" * 64, digest) for tool, digest in expected.items()
    ]


async def test_definitions_are_asked_for_once_and_found_by_a_caller_that_hears_of_the_report() -> None:
    async with open_grpc_world() as world:
        await world.rest.seed(server=[stdio("git", enabled=False), stdio("fs", enabled=False)])
        servers = [
            node_pb2.ServerReport(server_id="git", state="connected", definitions="d1"),
            node_pb2.ServerReport(server_id="fs", state="connected"),
        ]
        first = await report(world, servers=servers)
        sent = node_pb2.Definitions(server_id="git", digest="d1", tools=[tool(name="read")])
        second = await report(world, servers=servers, definitions=[sent])
        third = await report(world, servers=servers)
        servers[0].definitions = "d2"
        changed = await report(world, servers=servers)
        kept = await world.store.reports.list_definitions()

    assert (first, second, third, changed) == (["git"], [], [], ["git"])
    assert kept == [
        Definitions(server_id="git", digest="d1", tools=(tool(name="read"),), at_ms=1_700_000_000_000)
    ]


async def test_a_replica_that_did_not_take_the_definitions_in_finds_them_all_the_same() -> None:
    async with open_grpc_world() as world:
        await world.rest.seed(server=[stdio("git", enabled=False)])
        await world.store.reports.save_definitions(Definitions(server_id="git", digest="d1"))
        git = node_pb2.ServerReport(server_id="git", state="connected", definitions="d1")

        assert await report(world, servers=[git]) == []


async def test_definitions_that_another_replica_has_replaced_are_asked_for_again() -> None:
    intake, principal = ReportReceiver(), Principal(id="key:edge", role="node")
    git = node_pb2.ServerReport(server_id="git", state="connected", definitions="ours")
    ours = node_pb2.Definitions(server_id="git", digest="ours", tools=[tool()])
    async with open_rest() as rest:
        await rest.seed(server=[stdio("git", enabled=False)])

        async def wanted_at(now_ms: int, *definitions: node_pb2.Definitions) -> list[str]:
            control = replace(rest.control, clock_ms=lambda: now_ms)
            request = node_pb2.ReportRequest(servers=[git], definitions=definitions)
            return list(
                (await intake.receive(RpcCall(control=control, principal=principal, request=request))).wanted
            )

        first = await wanted_at(REREAD_MS, ours)
        await rest.store.reports.save_definitions(Definitions(server_id="git", digest="theirs"))
        soon = await wanted_at(REREAD_MS + 1)
        later = await wanted_at(2 * REREAD_MS)

    assert (first, soon, later) == ([], [], ["git"])


async def test_of_many_servers_only_definitions_that_others_saved_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [f"s{n:02}" for n in range(20)]
    rows: list[str] = []
    async with open_grpc_world() as world:
        await world.rest.seed(server=[stdio(one, enabled=False) for one in ids])
        reports = world.store.reports
        read = reports.list_definitions

        async def counted(server_ids: Collection[str] | None = None) -> Sequence[Definitions]:
            found = await read(server_ids)
            rows.extend(one.server_id for one in found)
            return found

        monkeypatch.setattr(reports, "list_definitions", counted)
        servers = [node_pb2.ServerReport(server_id=one, state="connected", definitions="d") for one in ids]
        await reports.save_definitions(Definitions(server_id="s00", digest="d", at_ms=1))
        wanted = [await report(world, servers=servers)]
        for server_id in ids[1:]:
            sent = node_pb2.Definitions(server_id=server_id, digest="d", tools=[tool()])
            wanted.append(await report(world, servers=servers, definitions=[sent]))
        by_intake = list(rows)

    assert [len(one) for one in wanted] == list(range(19, -1, -1))
    # Once by the intake and once by what shows the servers, each.
    assert Counter(by_intake).most_common(1)[0][1] <= 2


async def test_what_is_stated_of_servers_that_are_not_registered_is_passed_over() -> None:
    async with open_grpc_world() as world:
        ghost = node_pb2.ServerReport(server_id="ghost", state="connected", definitions="d1")
        definitions = node_pb2.Definitions(server_id="ghost", digest="d1", tools=[tool()])

        assert await report(world, servers=[ghost], definitions=[definitions]) == []
        assert await world.store.reports.list_definitions() == []
        assert [one.servers for one in await world.store.reports.list_reports()] == [()]


async def test_a_report_of_more_servers_than_there_can_be_is_refused() -> None:
    servers = [node_pb2.ServerReport(server_id=f"s{n}") for n in range(MAX_SERVERS + 1)]
    async with open_grpc_world() as world:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await report(world, servers=servers)

    assert refusal_of(caught.value) == ("INVALID_ARGUMENT", "invalid_request")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "edge"),
        ("edge", "edge"),
        ("edge/eu-1", "edge/eu-1"),
        ("eu-1", "edge/eu-1"),
        ("edge-2", "edge/edge-2"),
        ("other/eu-1", "edge/other/eu-1"),
        ("edge/", "edge"),
    ],
)
def test_no_node_speaks_for_that_of_another_key(name: str, expected: str) -> None:
    assert parse_node_id(Principal(id="key:edge", role="node"), name) == expected


def test_no_subject_of_a_token_passes_for_another_one_and_its_node() -> None:
    one, other = (Principal(id=f"oidc:{subject}", role="node") for subject in ("edge/eu-1", "edge"))

    assert parse_node_id(one, "") == "oidc:edge%2Feu-1"
    assert parse_node_id(other, "eu-1") == "oidc:edge/eu-1"


@pytest.mark.parametrize("name", ["a b", "/", "a\n", "é", "x" * 200, "../x", "edge//"])
def test_a_node_has_a_name_one_can_read(name: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_node_id(Principal(id="key:edge", role="node"), name)


def test_definitions_are_checked_like_those_of_a_server() -> None:
    sent = node_pb2.Definitions(
        server_id="git",
        digest="d",
        tools=[tool(name="good"), b"not json", tool(name="bad", inputSchema=7)],
        quarantined={"worse": "refused on the node"},
    )
    kept = parse_definitions(sent, 5)

    assert (kept.tools, kept.digest, kept.at_ms) == ((tool(name="good"),), "d", 5)
    assert set(kept.quarantined) == {"#2", "bad", "worse"}


def test_prompts_and_resources_are_checked_like_those_of_a_server() -> None:
    prompt, resource = b'{"name":"p"}', b'{"uri":"a:b","name":"x"}'
    sent = node_pb2.Definitions(
        server_id="git",
        prompts=[prompt, b"{}"],
        resources=[resource, b'{"uri":"/etc"}'],
        templates=[b'{"uriTemplate":"a:{"}'],
    )
    kept = parse_definitions(sent, 5)

    assert (kept.prompts, kept.resources, kept.templates) == ((prompt,), (resource,), ())
    assert set(kept.quarantined) == {"prompt:#2", "resource:/etc", "resource:a:{"}


def test_definitions_of_all_kinds_share_one_limit() -> None:
    large = [tool(name=f"t{n}", _meta={"x": "y" * 900_000}) for n in range(9)]
    sent = node_pb2.Definitions(
        server_id="git", tools=large, prompts=[b'{"name":"p","_meta":{"x":"%b"}}' % (b"y" * 900_000)]
    )
    kept = parse_definitions(sent, 0)

    assert kept.prompts == ()
    assert "prompt:p" in kept.quarantined


def test_definitions_past_the_limit_are_named_and_not_kept() -> None:
    large = [tool(name=f"t{n}", _meta={"x": "y" * 900_000}) for n in range(12)]
    kept = parse_definitions(node_pb2.Definitions(server_id="git", tools=large), 0)

    assert sum(map(len, kept.tools)) <= MAX_DEFINITIONS_BYTES
    assert len(kept.tools) + len(kept.quarantined) == 12
    assert all("too large" in reason for reason in kept.quarantined.values())


def test_sec_1_sec_8_the_words_of_a_node_are_cut_redacted_and_fit_for_one_line() -> None:
    words = f"Bearer abcdefghijklmnop\r\n\x1b[31m{'x' * 1_000}"
    sent = node_pb2.ReportRequest(
        url="https://user:canary@host/", servers=[node_pb2.ServerReport(server_id="git", last_error=words)]
    )
    kept = parse_report(sent, node_id="n", servers={"git"}, at_ms=0)

    assert kept.url == "https://***@host/"
    (server,) = kept.servers
    assert len(server.last_error) <= MAX_TEXT
    assert server.last_error.startswith("Bearer ***")
    assert server.last_error.isprintable()


@given(raw=st.binary(max_size=80))
def test_any_report_that_parses_can_be_kept(raw: bytes) -> None:
    try:
        sent = node_pb2.ServerReport.FromString(raw)
    except DecodeError:
        return
    request = node_pb2.ReportRequest(servers=[sent, sent], revision=2**64 - 1)
    kept = parse_report(request, node_id="n", servers={sent.server_id}, at_ms=0)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=NodeReport) == kept
    assert len(kept.servers) == 1


async def test_a_key_reports_for_no_more_nodes_than_it_may_and_lost_ones_do_not_count() -> None:
    intake, principal = ReportReceiver(max_nodes=3), Principal(id="key:edge", role="node")
    async with open_rest() as rest:

        async def report_at(now_ms: int, name: str) -> None:
            control = replace(rest.control, clock_ms=lambda: now_ms)
            request = node_pb2.ReportRequest(node_id=name)
            await intake.receive(RpcCall(control=control, principal=principal, request=request))

        for name in ("a", "b", "c", "a"):
            await report_at(0, name)
        with pytest.raises(SessionLimit):
            await report_at(LOST_AFTER_MS, "d")
        await report_at(LOST_AFTER_MS + 1, "d")
