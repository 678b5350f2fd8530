"""What holds for every call, whatever the service: sizes, errors, credentials that lapse, the end."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from tests.surfaces.grpc.grpc_world import (
    DEADLINE_S,
    SERVERS,
    GrpcWorld,
    credential,
    error_data,
    open_grpc_world,
    refusal_of,
    server_message,
)
from tests.surfaces.rest_world import open_rest, secret_of, task
from tests.upstream.certificates import Authority
from toolgate.errors import InvalidRecord, StartRefused
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.control import Control
from toolgate.model.revisions import RecordWrite
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import node_pb2
from toolgate.registry.replication.state import parse_listing
from toolgate.surfaces.grpc.dispatch import MAX_DETAILS, MAX_REQUEST_BYTES, OpenStream, encode_status
from toolgate.surfaces.grpc.server import Tls, open_grpc_server

pytestmark = pytest.mark.anyio

LIST: Final = f"{SERVERS}/ListMcpServers"
WATCH: Final = f"{SERVERS}/WatchMcpServers"
UPSERT: Final = f"{SERVERS}/UpsertMcpServer"
KIB: Final = 1024


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    async with open_rest() as rest:
        yield rest.control


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """How a call fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await exhaust(call)
    return caught.value


async def exhaust(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def refused_answer(response: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await response
    return caught.value


async def test_an_error_has_status_words_hint_and_code() -> None:
    async with open_grpc_world() as world:
        record = server_message("git", budgets=sms.McpBudgets(max_concurrency=9_999))
        request = sms.UpsertMcpServerRequest(record=record)
        exc = await refused_answer(world.request(UPSERT, request))

    assert refusal_of(exc) == ("INVALID_ARGUMENT", "invalid_record")
    assert "`budgets.max_concurrency`" in (exc.details() or "")
    assert "correct the field named in the message" in (exc.details() or "")
    error = error_data(exc)
    assert error["code"] == "invalid_record"
    assert {one["field"] for one in error["data"]["problems"]} == {"budgets.max_concurrency"}


def test_an_error_never_outgrows_what_clients_take_as_metadata() -> None:
    data = {"problems": ["x" * 10_000]}
    _, details, metadata = encode_status(InvalidRecord("`é`" * 5_000, data=data))
    size = sum(len(key) + len(value) for key, value in metadata)

    assert (len(details), size < 8_000) == (MAX_DETAILS, True)


async def test_a_request_past_the_limit_is_refused_and_one_at_it_is_not() -> None:
    async with open_grpc_world() as world:
        path, admin = f"/{LIST}", credential(secret_of("admin"))
        # Past its five bytes of tag and length, field 15: unknown here, and passed over.
        at_limit = b"\x7a\xfb\xff\xff\x01" + bytes(MAX_REQUEST_BYTES - 5)
        fits = await world.channel.unary_unary(path)(at_limit, metadata=admin, timeout=DEADLINE_S)
        exc = await refused_answer(world.channel.unary_unary(path)(at_limit + b"\0", metadata=admin))

    assert len(at_limit) == MAX_REQUEST_BYTES
    assert sms.ListMcpServersResponse.FromString(fits).revision > 0
    assert refusal_of(exc) == ("RESOURCE_EXHAUSTED", "too_large")


async def test_a_report_may_be_larger_than_other_requests_and_no_more_than_its_own_limit() -> None:
    async with open_grpc_world() as world:
        node = secret_of("node")
        report = node_pb2.ReportRequest(definitions=[node_pb2.Definitions(tools=[bytes(5 * KIB * KIB)])])
        await world.request("toolgate.v1.NodeService/Report", report, key=node)
        report.definitions[0].tools.append(bytes(12 * KIB * KIB))
        exc = await refused_answer(world.request("toolgate.v1.NodeService/Report", report, key=node))

    assert refusal_of(exc)[0] == "RESOURCE_EXHAUSTED"


async def test_nothing_is_read_for_a_stranger() -> None:
    async with open_grpc_world(trusts_local=False) as world:
        silent = world.channel.stream_unary(f"/{UPSERT}")()
        world.streams.append(silent)
        exc = await refused_answer(asyncio.wait_for(asyncio.shield(silent), DEADLINE_S))

    assert refusal_of(exc) == ("UNAUTHENTICATED", "unauthenticated")


async def test_a_call_without_a_request_is_refused() -> None:
    async with open_grpc_world() as world:
        call = world.channel.stream_unary(f"/{LIST}")(iter(()))
        exc = await refused_answer(call)

    assert refusal_of(exc) == ("INVALID_ARGUMENT", "parse_error")


async def test_nothing_is_unpacked_so_nothing_small_becomes_huge() -> None:
    async with open_grpc_world() as world:
        request = sms.UpsertMcpServerRequest(record=server_message("git", display_name="x" * 100_000))
        exc = await refused_answer(world.request(UPSERT, request, compression=grpc.Compression.Gzip))

    assert refusal_of(exc)[0] == "UNIMPLEMENTED"


async def test_bytes_that_are_no_message_are_refused() -> None:
    async with open_grpc_world() as world:
        exc = await refused_answer(world.channel.unary_unary(f"/{UPSERT}")(b"\xff\xff\xff"))

    assert refusal_of(exc) == ("INVALID_ARGUMENT", "parse_error")


async def test_an_unknown_rpc_is_unimplemented_for_those_who_may_know() -> None:
    async with open_grpc_world(trusts_local=False) as world:
        nothing = world.channel.unary_unary(f"/{SERVERS}/Nothing")
        known = await refused_answer(nothing(b"", metadata=credential(secret_of("agent"))))
        stranger = await refused_answer(nothing(b""))

    assert refusal_of(known) == ("UNIMPLEMENTED", "method_not_found")
    assert refusal_of(stranger) == ("UNAUTHENTICATED", "unauthenticated")


async def test_what_no_one_foresaw_is_logged_once_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with open_grpc_world() as world:
        object.__setattr__(world.rest.control, "store", BrokenStore())
        with caplog.at_level(logging.ERROR):
            unary = await refused_answer(world.request(LIST, sms.ListMcpServersRequest()))
            stream = await refused(world.stream(WATCH, sms.WatchMcpServersRequest()))

    for exc in (unary, stream):
        assert refusal_of(exc) == ("INTERNAL", "internal")
        assert "canary" not in f"{exc.details()} {error_data(exc)}"
    assert [record.name for record in caplog.records] == ["toolgate.surfaces.grpc.dispatch"] * 2


class BrokenStore:
    """Fails in a way that no store does."""

    revision = 1

    @property
    def epoch(self) -> str:
        raise ZeroDivisionError("canary")


async def test_a_deadline_ends_the_call_on_both_sides() -> None:
    async with open_grpc_world() as world:
        waiting = world.stream(WATCH, sms.WatchMcpServersRequest(), timeout_s=0.2)
        exc = await refused(waiting)
        async with asyncio.timeout(DEADLINE_S):
            while len(world.rest.control.watches):
                await asyncio.sleep(0)

    assert refusal_of(exc)[0] == "DEADLINE_EXCEEDED"


async def test_a_revoked_key_ends_its_streams_and_no_others() -> None:
    async with open_grpc_world() as world:
        streams = {
            role: world.stream(WATCH, sms.WatchMcpServersRequest(), key=secret_of(role))
            for role in ("viewer", "publisher")
        }
        for stream in streams.values():
            await stream.read()
        await world.store.write([RecordWrite(kind="key", id="viewer", body=None)], actor="test")
        exc = await refused(streams["viewer"])
        await world.upsert(server_message("git"))
        received = await streams["publisher"].read()
        streams["publisher"].cancel()

    assert refusal_of(exc) == ("UNAUTHENTICATED", "unauthenticated")
    assert list(received.event.upserts) == ["git"]


async def test_a_key_that_is_revoked_while_a_message_goes_out_ends_its_stream_like_any_other() -> None:
    """The library takes no status for a call in the middle of a message."""
    endings = set()
    async with open_grpc_world() as world:
        identities, state = world.rest.control.identities, parse_listing(await world.store.list())
        for _ in range(20):
            stream = world.stream(WATCH, sms.WatchMcpServersRequest(), key=secret_of("viewer"))
            await stream.read()
            identities.apply({})  # the reader may have the message before the writer knows that it is sent
            endings.add(refusal_of(await refused(stream)))
            identities.apply(state.keys)

    assert endings == {("UNAUTHENTICATED", "unauthenticated")}


class SlowContext:
    """A call whose reader takes its time."""

    def __init__(self) -> None:
        self.is_read = asyncio.Event()
        self.sent: list[bytes] = []

    async def write(self, raw: bytes) -> None:
        await self.is_read.wait()
        self.sent.append(raw)


async def test_a_message_that_goes_out_is_never_interrupted_and_is_the_last() -> None:
    context: Any = SlowContext()

    async def send() -> None:
        async with asyncio.timeout(None) as patience:
            stream = OpenStream(context, patience)
            asyncio.get_running_loop().call_soon(stream.end)
            asyncio.get_running_loop().call_later(0.01, context.is_read.set)
            for raw in (b"first", b"second"):
                await stream.write(raw)
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send(), DEADLINE_S)
    assert context.sent == [b"first"]


async def test_a_stream_that_has_ended_begins_no_message() -> None:
    """The end comes while the message is made: the timeout must not interrupt its write."""
    context: Any = SlowContext()
    context.is_read.set()

    async def send() -> None:
        async with asyncio.timeout(None) as patience:
            stream = OpenStream(context, patience)
            stream.end()
            await stream.write(b"late")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send(), DEADLINE_S)
    assert context.sent == []


async def test_a_stream_may_be_ended_while_it_is_ending() -> None:
    """Its key lapses and the listener closes, at one moment."""
    context: Any = SlowContext()
    loop, ended = asyncio.get_running_loop(), 0

    async def wait() -> None:
        async with asyncio.timeout(None) as patience:
            stream = OpenStream(context, patience)

            def end() -> None:
                nonlocal ended
                stream.end()
                ended += 1

            end()
            loop.call_soon(end)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(wait(), DEADLINE_S)
    assert ended == 2


async def test_a_revoked_key_ends_its_stream_even_where_the_reader_does_not_read() -> None:
    narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 64 * KIB))
    async with (
        open_grpc_world() as world,
        grpc.aio.insecure_channel(world.address, options=narrow) as channel,
    ):
        watch, request = "toolgate.v1.NodeService/WatchRecords", node_pb2.WatchRecordsRequest()
        slow = GrpcWorld(world.rest, world.address, channel).stream(watch, request, key=secret_of("node"))
        await slow.read()
        for n in range(200):  # more than the window takes, and less than makes it lag
            body = task("t") | {"display_name": f"{n}{'x' * 2_000}"}
            await world.store.write([RecordWrite(kind="task", id="t", body=body)], actor="test")
        await world.store.write([RecordWrite(kind="key", id="node", body=None)], actor="test")
        exc = await refused(slow)

    assert refusal_of(exc) == ("UNAUTHENTICATED", "unauthenticated")


async def test_clients_that_hang_up_in_the_middle_leave_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_grpc_world() as world:
        since = world.store.revision

        async def watch() -> None:
            stream = world.stream(WATCH, sms.WatchMcpServersRequest(since_revision=since))
            for _ in range(5):
                await stream.read()
            stream.cancel()

        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            for _ in range(50):
                tasks.create_task(watch())
            for n in range(100):
                record = server_message("git", display_name=str(n), extras=sms.McpServerExtras(enabled=False))
                await world.upsert(record)
        async with asyncio.timeout(DEADLINE_S):
            while len(world.rest.control.watches):
                await asyncio.sleep(0)

    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_key_of_which_role_was_lowered_loses_its_streams() -> None:
    async with open_grpc_world() as world:
        watch = "toolgate.v1.NodeService/WatchRecords"
        stream = world.stream(watch, node_pb2.WatchRecordsRequest(), key=secret_of("node"))
        await stream.read()
        body = {"key_id": "node", "role": "agent", "sha256": hash_key(secret_of("node"))}
        await world.store.write([RecordWrite(kind="key", id="node", body=body)], actor="test")
        exc = await refused(stream)

    assert refusal_of(exc)[0] == "UNAUTHENTICATED"


async def test_closing_tells_every_stream_to_look_elsewhere_and_does_not_wait_for_them() -> None:
    async with open_rest() as rest:
        async with open_grpc_server(rest.control, "127.0.0.1:0") as address:
            channel = grpc.aio.insecure_channel(address)
            world = GrpcWorld(rest, address, channel)
            stream = world.stream(WATCH, sms.WatchMcpServersRequest())
            await stream.read()
        exc = await refused(stream)
        await channel.close()

    assert refusal_of(exc) == ("UNAVAILABLE", "not_ready")


async def test_a_caller_holds_no_more_watches_than_it_may() -> None:
    async with open_grpc_world() as world:
        viewer = secret_of("viewer")
        streams = [world.stream(WATCH, sms.WatchMcpServersRequest(), key=viewer) for _ in range(100)]
        for stream in streams:
            await stream.read()
        exc = await refused(world.stream(WATCH, sms.WatchMcpServersRequest(), key=viewer))
        for stream in streams:
            stream.cancel()

    assert refusal_of(exc) == ("RESOURCE_EXHAUSTED", "session_limit")


async def test_a_port_in_use_is_refused_with_what_to_do(control: Control) -> None:
    async with open_grpc_server(control, "127.0.0.1:0") as address:
        with pytest.raises(StartRefused, match=address):
            async with open_grpc_server(control, address):
                pass


async def test_with_a_certificate_it_speaks_tls_alone(control: Control, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server_context(["127.0.0.1"], days=1)
    pem = (tmp_path / "server.pem").read_bytes()
    check: Final = "/grpc.health.v1.Health/Check"
    secure: Any
    plain: Any
    async with open_grpc_server(control, "127.0.0.1:0", tls=Tls(certificate=pem, private_key=pem)) as address:
        credentials = grpc.ssl_channel_credentials(authority.path.read_bytes())
        async with (
            grpc.aio.secure_channel(address, credentials) as secure,
            grpc.aio.insecure_channel(address) as plain,
        ):
            response = await secure.unary_unary(check)(b"", timeout=DEADLINE_S)
            exc = await refused_answer(plain.unary_unary(check)(b"", timeout=DEADLINE_S))

    assert response == b"\x08\x01"
    assert refusal_of(exc)[0] == "UNAVAILABLE"
