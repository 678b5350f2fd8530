"""Audit logs of nodes: taken in pieces, each event once, under no other name than the node's key allows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, refusal_of
from tests.surfaces.rest_world import secret_of
from toolgate.audit.events import CallRecorded
from toolgate.audit.index.index import open_sqlite_index
from toolgate.audit.log.files import encode_line
from toolgate.proto import node_pb2
from toolgate.surfaces.grpc.coordination import MAX_EVENTS

pytestmark = pytest.mark.anyio

RPC: Final = "toolgate.v1.NodeService/RecordEvents"
NODE: Final = secret_of("node")
LOG: Final = "ab" * 16


@asynccontextmanager
async def world_with_index(directory: Path) -> AsyncIterator[GrpcWorld]:
    async with (
        open_sqlite_index(directory / "audit.db") as index,
        open_grpc_world(audit_index=index) as world,
    ):
        yield world


def line(seq: int) -> bytes:
    call = CallRecorded(at_ms=seq, door="mcp", principal="key:ada", tool="git__log", outcome="ok")
    return encode_line(seq, call).rstrip()


async def send(world: GrpcWorld, **fields: Any) -> int:
    request = node_pb2.RecordEventsRequest(**{"log": LOG, "node_id": "east"} | fields)
    return int((await world.request(RPC, request, key=NODE)).taken)


async def seen(world: GrpcWorld) -> list[tuple[str, int]]:
    found = await world.rest.get("/admin/api/audit", key=secret_of("viewer"))
    return [(one["node"], one["seq"]) for one in found["events"]]


async def test_a_log_is_taken_in_pieces_each_event_once(tmp_path: Path) -> None:
    async with world_with_index(tmp_path) as world:
        taken = [
            await send(world),
            await send(world, upto=2, events=[line(1), line(2)]),
            await send(world, upto=2, events=[line(1), line(2)]),
            await send(world, after=2, upto=4, events=[line(3), line(4)]),
            await send(world, after=9, upto=10, events=[line(10)]),
            await send(world),
        ]

        assert taken == [0, 2, 2, 4, 4, 4]
        assert await seen(world) == [("node/east", number) for number in (4, 3, 2, 1)]


async def test_a_node_writes_into_logs_under_its_own_key_only(tmp_path: Path) -> None:
    async with world_with_index(tmp_path) as world:
        await send(world, node_id="other/west", upto=1, events=[line(1)])
        await send(world, node_id="", upto=1, events=[line(1)])

        assert await seen(world) == [("node", 1), ("node/other/west", 1)]


async def test_lines_that_are_no_events_of_the_piece_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [line(9), b"\xff", b'{"seq":2,"type":"later"}', line(3), line(3), line(1)]
    async with world_with_index(tmp_path) as world:
        taken = await send(world, upto=5, events=[line(1), *odd, line(4)])

        assert taken == 5
        assert [number for _, number in await seen(world)] == [4, 3, 1]
    assert "node `node/east` sent 5 invalid audit events" in caplog.messages


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"log": ""}, id="no log"),
        pytest.param({"log": "a/b"}, id="no name of a log"),
        pytest.param({"log": "a" * 65}, id="a long name"),
        pytest.param({"node_id": "a b"}, id="no name of a node"),
        pytest.param({"after": 2, "upto": 1}, id="backwards"),
        pytest.param({"upto": 2**60}, id="a number beyond all logs"),
        pytest.param({"upto": 1, "events": [b"{}"] * (MAX_EVENTS + 1)}, id="too many"),
    ],
)
async def test_what_is_no_piece_of_a_log_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with world_with_index(tmp_path) as world:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await send(world, **fields)

        assert refusal_of(refused.value) == ("INVALID_ARGUMENT", "invalid_request")
        assert await seen(world) == []
