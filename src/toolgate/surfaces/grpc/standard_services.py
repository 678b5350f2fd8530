"""`grpc.health.v1.Health`, for load balancers. Whoever is answered here is served; a listener that drains
answers nobody, and ends the watches.

Reflection, by which tools find out what there is to call. Never on a listener beyond loopback.
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
from toolgate.surfaces.grpc.rpc import ANYONE, Rpc, RpcCall

WHOLE: Final = ""
"""The name that stands for all services together."""
MAX_WATCHES: Final = 1_000
"""Anybody may open one: those of strangers must not take the place of all others."""

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


def health_rpcs(health: HealthService) -> tuple[Rpc, ...]:
    """The rows of the service."""
    service = "grpc.health.v1.Health"
    return (
        Rpc(service=service, method="Check", roles=ANYONE, handler=health.check),
        Rpc(service=service, method="List", roles=ANYONE, handler=health.list),
        Rpc(service=service, method="Watch", roles=ANYONE, handler=health.watch),
    )


class ReflectionService:
    """The definitions of the services of one listener."""

    def __init__(self, services: Iterable[str]) -> None:
        self._servicer = reflection.aio.ReflectionServicer((*services, reflection.SERVICE_NAME))

    async def info(
        self, _control: Control, call: RpcCall[AsyncIterator[Message]]
    ) -> AsyncGenerator[Message, None]:
        """What services there are, and how their messages are defined."""
        async with aclosing(self._servicer.ServerReflectionInfo(call.request, None)) as answers:
            async for answer in answers:
                yield answer


def reflection_rpcs(services: Iterable[str]) -> tuple[Rpc, ...]:
    """The row of the service."""
    return (
        Rpc(
            service=reflection.SERVICE_NAME,
            method="ServerReflectionInfo",
            roles=("agent",),
            handler=ReflectionService(services).info,
        ),
    )
