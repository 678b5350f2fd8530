"""Who may call what: every RPC against every kind of caller, as a table that must be complete."""

from typing import Any, Final

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.surfaces.grpc.grpc_world import (
    TABLE,
    GrpcWorld,
    credential,
    open_grpc_world,
    refusal_of,
    server_message,
)
from tests.surfaces.rest_world import ROLES, secret_of, stdio, task
from toolgate.gateway.auth.identity import hash_key
from toolgate.proto import mcp_registry_pb2, node_pb2, policy_pb2, task_pb2
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy

pytestmark = pytest.mark.anyio

CALLERS: Final = ("none", "wrong", "expired", "agent", "viewer", "publisher", "admin", "node")
NOT_IN: Final = "UNAUTHENTICATED UNAUTHENTICATED UNAUTHENTICATED"
NO: Final = "PERMISSION_DENIED"
ANYONE: Final = "OK UNAUTHENTICATED UNAUTHENTICATED OK OK OK OK OK"
READ: Final = f"{NOT_IN} {NO} OK OK OK {NO}"
READ_BY_NODES_TOO: Final = f"{NOT_IN} {NO} OK OK OK OK"
PUBLISH: Final = f"{NOT_IN} {NO} {NO} OK OK {NO}"
NOT_HERE: Final = READ.replace("OK", "UNIMPLEMENTED")
GOVERN: Final = f"{NOT_IN} {NO} {NO} {NO} OK {NO}"
NODES: Final = f"{NOT_IN} {NO} {NO} {NO} {NO} OK"
# One column for each caller, in that order. An RPC that is not here fails the test below.
MATRIX: Final = {
    "sms.McpRegistryService/ListMcpServers": READ_BY_NODES_TOO,
    "sms.McpRegistryService/WatchMcpServers": READ_BY_NODES_TOO,
    "sms.McpRegistryService/UpsertMcpServer": GOVERN,
    "sms.McpRegistryService/DeleteMcpServer": GOVERN,
    "sms.TaskService/RegisterTask": PUBLISH,
    "sms.TaskService/ListTasks": READ,
    "sms.TaskService/GetTask": READ,
    "sms.TaskService/UnregisterTask": PUBLISH,
    "sms.TaskService/SubscribeTaskEvents": NOT_HERE,
    "sms.TaskService/ResolveEndpoint": NOT_HERE,
    "sms.TaskService/UpdateTaskStatus": NOT_HERE,
    "sms.TaskService/UpdateTaskResult": NOT_HERE,
    "toolgate.v1.TaskService/ListTasks": READ,
    "toolgate.v1.TaskService/WatchTasks": READ,
    "toolgate.v1.TaskService/UpsertTask": PUBLISH,
    "toolgate.v1.TaskService/DeleteTask": PUBLISH,
    "toolgate.v1.ProfileService/ListProfiles": READ,
    "toolgate.v1.ProfileService/WatchProfiles": READ,
    "toolgate.v1.ProfileService/UpsertProfile": PUBLISH,
    "toolgate.v1.ProfileService/DeleteProfile": PUBLISH,
    "toolgate.v1.PinService/ListPins": READ,
    "toolgate.v1.PinService/WatchPins": READ,
    "toolgate.v1.PinService/UpsertPin": GOVERN,
    "toolgate.v1.PinService/DeletePin": GOVERN,
    "toolgate.v1.NodeService/ListRecords": NODES,
    "toolgate.v1.NodeService/WatchRecords": NODES,
    "toolgate.v1.NodeService/Report": NODES,
    "toolgate.v1.NodeService/ReadArtifact": f"{NOT_IN} {NO} {NO} {NO} {NO} NOT_FOUND",
    "toolgate.v1.NodeService/ReadModule": f"{NOT_IN} {NO} {NO} {NO} {NO} NOT_FOUND",
    "toolgate.v1.NodeService/ClaimInvocations": NODES,
    "toolgate.v1.NodeService/ReportInvocation": NODES,
    "toolgate.v1.NodeService/AskApproval": NODES,
    "toolgate.v1.NodeService/DecideApproval": NODES,
    "toolgate.v1.NodeService/Spend": NODES,
    "toolgate.v1.NodeService/SyncSessions": NODES,
    "toolgate.v1.NodeService/RecordEvents": NODES,
    "grpc.health.v1.Health/Check": ANYONE,
    "grpc.health.v1.Health/List": ANYONE,
    "grpc.health.v1.Health/Watch": ANYONE,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": f"{NOT_IN} OK OK OK OK {NO}",
}
ASKING: Final = node_pb2.AskApprovalRequest(
    new_id="0" * 16,
    principal="key:ada",
    server_id="git",
    tool="push",
    arguments_digest="0" * 64,
    definition="0" * 64,
    arguments=b"{}",
)
REQUESTS: Final[dict[str, Message]] = {
    "sms.McpRegistryService/UpsertMcpServer": sms.UpsertMcpServerRequest(record=server_message("new")),
    "sms.McpRegistryService/DeleteMcpServer": sms.DeleteMcpServerRequest(server_id="git"),
    "sms.TaskService/RegisterTask": task_pb2.RegisterTaskRequest(name="new"),
    "sms.TaskService/UnregisterTask": task_pb2.UnregisterTaskRequest(task_id="review"),
    "toolgate.v1.TaskService/UpsertTask": policy.UpsertTaskRequest(task=policy.Task(task_id="new")),
    "toolgate.v1.TaskService/DeleteTask": policy.DeleteRequest(id="review"),
    "toolgate.v1.ProfileService/UpsertProfile": policy.UpsertProfileRequest(
        profile=policy.Profile(profile_id="new")
    ),
    "toolgate.v1.ProfileService/DeleteProfile": policy.DeleteRequest(id="coding"),
    "toolgate.v1.PinService/UpsertPin": policy.UpsertPinRequest(pin=policy.Pin(server_id="fs")),
    "toolgate.v1.PinService/DeletePin": policy.DeleteRequest(id="git"),
    "toolgate.v1.NodeService/ReadArtifact": node_pb2.ReadArtifactRequest(package_id="git", version="1.0.0"),
    "toolgate.v1.NodeService/ReadModule": node_pb2.ReadModuleRequest(sha256="0" * 64),
    "toolgate.v1.NodeService/RecordEvents": node_pb2.RecordEventsRequest(log="0" * 32),
    "toolgate.v1.NodeService/AskApproval": ASKING,
    "toolgate.v1.NodeService/DecideApproval": node_pb2.DecideApprovalRequest(
        question=ASKING, approval_id="0" * 16
    ),
}
LATE: Final = "tg_late" * 8
SECRETS: Final = {"none": None, "wrong": "tg_wrong", "expired": LATE, "node": secret_of("node")} | {
    role: secret_of(role) for role in ROLES
}
FILES: Final = (mcp_registry_pb2, task_pb2, policy_pb2, node_pb2, health_pb2, reflection_pb2)


def test_adm_1_the_definitions_the_table_and_the_matrix_match() -> None:
    defined = {
        f"{service.full_name}/{method.name}"
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert defined == set(TABLE)
    assert defined == set(MATRIX)


@pytest.mark.requirement("002-069")
@pytest.mark.parametrize("rpc", MATRIX)
async def test_adm_1_every_rpc_answers_every_caller_as_the_matrix_says(rpc: str) -> None:
    found: list[str] = []
    while len(found) < len(CALLERS):
        async with open_grpc_world(trusts_local=False) as world:
            late = {"key_id": "late", "role": "admin", "sha256": hash_key(LATE), "expires_at_s": 1}
            await world.rest.seed(
                server=[stdio("git")],
                task=[task("review")],
                profile=[{"profile_id": "coding"}],
                key=[late],
            )
            await seed_pin(world)
            for caller in CALLERS[len(found) :]:
                found.append(await outcome(world, rpc, SECRETS[caller]))
                if found[-1] == "OK":
                    break  # it may have changed this world

    assert " ".join(found) == MATRIX[rpc]


async def test_adm_7_a_wrong_credential_is_never_anonymous_not_even_where_nothing_is() -> None:
    credentials = ["Bearer wrong", "Bearer ", "Basic YWRtaW46", "bearer", "Bearer a b", "", "admin"]
    paths = [f"/{rpc}" for rpc in TABLE] + ["/sms.McpRegistryService/Nothing", "/", "/x.Y/Z"]
    statuses = set()
    for path in paths:
        # A world of its own: a caller that keeps trying is received to wait.
        async with open_grpc_world(trusts_local=True) as world:
            for credential_ in credentials:
                call = world.channel.unary_stream(path)
                statuses.add(await status_of(call(b"", metadata=(("authorization", credential_),))))

    assert statuses == {"UNAUTHENTICATED"}


async def test_adm_7_two_credentials_are_one_wrong_one() -> None:
    async with open_grpc_world() as world:
        both = (*credential(secret_of("viewer")), *credential(secret_of("admin")))
        call = world.channel.unary_stream("/sms.McpRegistryService/ListMcpServers")(b"", metadata=both)

        assert await status_of(call) == "UNAUTHENTICATED"


async def test_adm_9_nothing_but_the_credential_says_who_calls() -> None:
    async with open_grpc_world(trusts_local=False) as world:
        claims = (("x-user", "admin"), ("x-api-key", secret_of("admin")), ("role", "admin"))
        call = world.channel.unary_stream("/sms.McpRegistryService/ListMcpServers")(b"", metadata=claims)

        assert await status_of(call) == "UNAUTHENTICATED"


async def test_adm_10_a_caller_that_keeps_trying_is_asked_to_wait_and_a_right_key_still_passes() -> None:
    async with open_grpc_world() as world:
        tries = [await outcome(world, "sms.McpRegistryService/ListMcpServers", "tg_wrong") for _ in range(25)]
        right = await outcome(world, "sms.McpRegistryService/ListMcpServers", secret_of("viewer"))

    assert set(tries[:20]) == {"UNAUTHENTICATED"}
    assert set(tries[20:]) == {"RESOURCE_EXHAUSTED"}
    assert right == "OK"


async def test_a_local_caller_without_a_credential_is_the_administrator_where_that_is_trusted() -> None:
    async with open_grpc_world(trusts_local=True) as world:
        assert await outcome(world, "sms.McpRegistryService/UpsertMcpServer", None) == "OK"
        assert await outcome(world, "toolgate.v1.NodeService/ListRecords", None) == "PERMISSION_DENIED"


async def test_trust_in_local_callers_ends_where_others_can_call_too() -> None:
    async with open_grpc_world(trusts_local=True, address="0.0.0.0:0") as world:
        assert await outcome(world, "sms.McpRegistryService/ListMcpServers", None) == "UNAUTHENTICATED"
        assert await outcome(world, "sms.McpRegistryService/ListMcpServers", secret_of("viewer")) == "OK"


async def test_adm_11_reflection_is_off_beyond_loopback() -> None:
    reflect = "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    async with open_grpc_world() as world:
        near = await outcome(world, reflect, secret_of("admin"))
    async with open_grpc_world(address="0.0.0.0:0") as world:
        far = await outcome(world, reflect, secret_of("admin"))

    assert (near, far) == ("OK", "UNIMPLEMENTED")


async def seed_pin(world: GrpcWorld) -> None:
    pin = policy.UpsertPinRequest(pin=policy.Pin(server_id="git"))
    await world.request("toolgate.v1.PinService/UpsertPin", pin, key=secret_of("admin"))


async def outcome(world: GrpcWorld, rpc: str, key: str | None) -> str:
    """`OK` once it answers, be it with the first message of a stream; else the status."""
    request = REQUESTS.get(rpc) or TABLE[rpc].request_type()
    raw = request.SerializeToString()
    metadata = credential(key)
    if TABLE[rpc].descriptor.client_streaming:
        # A stream of one message, sent whole: refused while it is being sent, it would fail otherwise.
        raw = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    if TABLE[rpc].descriptor.server_streaming:
        return await status_of(world.channel.unary_stream(f"/{rpc}")(raw, metadata=metadata))
    try:
        await world.request(rpc, request, key=key)
    except grpc.aio.AioRpcError as exc:
        return refusal_of(exc)[0]
    return "OK"


async def status_of(call: Any) -> str:
    try:
        async for _ in call:
            return "OK"
    except grpc.aio.AioRpcError as exc:
        return refusal_of(exc)[0]
    finally:
        call.cancel()
    return "OK"
