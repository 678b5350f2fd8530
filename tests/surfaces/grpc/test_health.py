"""What load balancers and tools ask: which services there are, and whether they serve."""

from typing import Any, Final

import grpc
import grpc.aio
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListRequest
from grpc_reflection.v1alpha import reflection_pb2

from tests.surfaces.grpc.grpc_world import DEADLINE_S, open_grpc_world, refusal_of
from toolgate.errors import SessionLimit
from toolgate.surfaces.grpc.dispatch import RpcCall
from toolgate.surfaces.grpc.server import MAX_WATCHES, HealthService

pytestmark = pytest.mark.anyio

SERVICES: Final = {
    "sms.McpRegistryService",
    "sms.TaskService",
    "toolgate.v1.NodeService",
    "toolgate.v1.PinService",
    "toolgate.v1.ProfileService",
    "toolgate.v1.TaskService",
}


async def test_every_service_is_healthy_and_so_is_the_whole_without_a_credential() -> None:
    async with open_grpc_world(trusts_local=False) as world:
        listed = await world.request("grpc.health.v1.Health/List", HealthListRequest())
        checked = [
            await world.request("grpc.health.v1.Health/Check", HealthCheckRequest(service=name))
            for name in ("", *SERVICES)
        ]

    assert set(listed.statuses) == {"", *SERVICES}
    statuses = {one.status for one in (*listed.statuses.values(), *checked)}
    assert statuses == {HealthCheckResponse.SERVING}


async def test_a_service_that_is_not_there_is_not_found_and_a_watch_says_it_is_unknown() -> None:
    request = HealthCheckRequest(service="toolgate.v1.Nothing")
    async with open_grpc_world() as world:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.request("grpc.health.v1.Health/Check", request)
        watched = await world.stream("grpc.health.v1.Health/Watch", request).read()

    assert refusal_of(caught.value) == ("NOT_FOUND", "not_found")
    assert watched.status == HealthCheckResponse.SERVICE_UNKNOWN


async def test_strangers_hold_no_more_watches_than_there_is_room_for() -> None:
    control: Any = None  # health asks it nothing
    health = HealthService(SERVICES)
    call = RpcCall(control=control, principal=None, request=HealthCheckRequest())
    watches = [health.watch(call) for _ in range(MAX_WATCHES)]
    for watch in watches:
        await anext(watch)

    with pytest.raises(SessionLimit):
        await anext(health.watch(call))
    await watches[0].aclose()
    assert await anext(health.watch(call)) is not None


async def test_reflection_names_every_service_and_how_it_is_defined() -> None:
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="sms.McpRegistryService"),
    ]
    async with open_grpc_world() as world:
        call = world.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        listed, described = [response async for response in call(iter(requests), timeout=DEADLINE_S)]

    names = {one.name for one in listed.list_services_response.service}
    assert names == SERVICES | {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    (definition,) = described.file_descriptor_response.file_descriptor_proto
    assert b"McpRegistryService" in definition
