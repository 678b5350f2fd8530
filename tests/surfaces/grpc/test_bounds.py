"""TRY-9: over gRPC, too, a bound key writes within its bounds. Else it learns nothing of what exists."""

from collections.abc import Callable
from typing import Final

import grpc.aio
import pytest
from google.protobuf.message import Message

from tests.surfaces.grpc.grpc_world import TABLE, GrpcWorld, open_grpc_world, server_message
from tests.surfaces.rest_world import stdio, task
from toolgate.gateway.auth.identity import hash_key
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy
from toolgate.proto import task_pb2

pytestmark = pytest.mark.anyio

BOUND: Final = "tg_bound" * 8
CONFIG: Final = {"mcp.enabled": "true", "mcp.default_server_ids": '["theirs"]'}
REACHING: Final = policy.Selection(servers=policy.Names(values=["theirs"]))
WRITES: Final[dict[str, Callable[[str], Message]]] = {
    "sms.McpRegistryService/UpsertMcpServer": lambda one: sms.UpsertMcpServerRequest(
        record=server_message(one)
    ),
    "sms.McpRegistryService/DeleteMcpServer": lambda one: sms.DeleteMcpServerRequest(server_id=one),
    "sms.TaskService/RegisterTask": lambda one: task_pb2.RegisterTaskRequest(name=one, config=CONFIG),
    "sms.TaskService/UnregisterTask": lambda one: task_pb2.UnregisterTaskRequest(task_id=one),
    "toolgate.v1.TaskService/UpsertTask": lambda one: policy.UpsertTaskRequest(
        task=policy.Task(task_id=one, config=CONFIG)
    ),
    "toolgate.v1.TaskService/DeleteTask": lambda one: policy.DeleteRequest(id=one),
    "toolgate.v1.ProfileService/UpsertProfile": lambda one: policy.UpsertProfileRequest(
        profile=policy.Profile(profile_id=one, selection=REACHING)
    ),
    "toolgate.v1.ProfileService/DeleteProfile": lambda one: policy.DeleteRequest(id=one),
    "toolgate.v1.PinService/UpsertPin": lambda one: policy.UpsertPinRequest(pin=policy.Pin(server_id=one)),
    "toolgate.v1.PinService/DeletePin": lambda one: policy.DeleteRequest(id=one),
}


def test_the_table_has_every_rpc_that_writes_for_people() -> None:
    assert WRITES.keys() == {
        name for name, rpc in TABLE.items() if {"admin", "publisher"} & set(rpc.roles or ())
    }


async def test_try_9_outside_of_its_bounds_a_key_writes_nothing_and_learns_nothing() -> None:
    async with open_grpc_world(trusts_local=False) as world:
        ceiling = {"servers": ["mine"]}
        await world.rest.seed(
            server=[stdio("mine"), stdio("theirs")],
            task=[task("theirs", default_server_ids=["theirs"])],
            profile=[{"profile_id": "theirs", "servers": ["theirs"]}],
            pin=[{"server_id": "theirs", "tools": {}}],
            key=[{"key_id": "bound", "role": "admin", "sha256": hash_key(BOUND), "ceiling": ceiling}],
        )
        revision = world.store.revision
        refused = {rpc: [await notified(world, rpc, one) for one in ("theirs", "absent")] for rpc in WRITES}

        assert [rpc for rpc, (there, missing) in refused.items() if there != missing] == []
        assert {status for both in refused.values() for status, _ in both} == {
            "PERMISSION_DENIED",
            "NOT_FOUND",
        }
        assert world.store.revision == revision


async def notified(world: GrpcWorld, rpc: str, record_id: str) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.request(rpc, WRITES[rpc](record_id), key=BOUND)
    return refused.value.code().name, str(refused.value.details()).replace(record_id, "@")
