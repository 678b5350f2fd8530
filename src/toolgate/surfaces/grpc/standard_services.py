"""The services that gRPC itself defines: health, for load balancers, and reflection.

A listener that drains ends the watches of its health. Reflection is never served beyond loopback.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Final

from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from grpc_reflection.v1alpha import reflection

from toolgate.errors import NotFound, SessionLimit
from toolgate.govern.control import Control
from toolgate.surfaces.grpc.rpc import Rpc, RpcCall, rpc

WHOLE: Final = ""
"""The name of all services together."""
MAX_WATCHES: Final = 1_000
"""Anyone may open one: watches without a credential must not take the place of all others."""

_SERVING: Final[Message] = HealthCheckResponse(status=HealthCheckResponse.SERVING)
_UNKNOWN: Final[Message] = HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)


class HealthService:
    """The health of the services of one listener."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset((WHOLE, *services))
        self._watches = 0

    async def check(self, _control: Control, call: RpcCall[HealthCheckRequest]) -> Message:
        """Whether a service, or with no name all of them, can be called."""
        if call.request.service not in self._services:
            raise NotFound("there is no such service")
        return _SERVING

    async def list(self, _control: Control, _call: RpcCall[HealthListRequest]) -> Message:
        """As `Check`, for every service."""
        answer: Message = HealthListResponse(statuses=dict.fromkeys(self._services, _SERVING))
        return answer

    async def watch(
        self, _control: Control, call: RpcCall[HealthCheckRequest]
    ) -> AsyncGenerator[Message, None]:
        """As `Check`, and then nothing until the service is gone and the stream with it."""
        if self._watches >= MAX_WATCHES:
            raise SessionLimit(f"{MAX_WATCHES} watches of health are open, as many as may be")
        self._watches += 1
        try:
            yield _SERVING if call.request.service in self._services else _UNKNOWN
            await asyncio.Event().wait()
        finally:
            self._watches -= 1


def health_rpcs(services: Iterable[str]) -> tuple[Rpc, ...]:
    """The rows of the service, over the health of `services`."""
    health, service = HealthService(services), "grpc.health.v1.Health"
    return (
        rpc(service, "Check")(health.check),
        rpc(service, "List")(health.list),
        rpc(service, "Watch")(health.watch),
    )


def reflection_rpc(services: Iterable[str]) -> Rpc:
    """How tools find out what RPCs there are."""
    servicer = reflection.aio.ReflectionServicer((*services, reflection.SERVICE_NAME))

    @rpc(reflection.SERVICE_NAME, "ServerReflectionInfo", "agent")
    async def list_definitions(
        _control: Control, call: RpcCall[AsyncIterator[Message]]
    ) -> AsyncGenerator[Message, None]:
        """What services there are, and how their messages are defined."""
        async with aclosing(servicer.ServerReflectionInfo(call.request, None)) as answers:
            async for answer in answers:
                yield answer

    return list_definitions
