"""`grpc.health.v1.Health`, for load balancers. Whoever is answered here is served; a listener that drains
answers nobody, and ends the watches.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from google.protobuf.message import Message
from grpc_health.v1.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)

from toolgate.errors import NotFound, SessionLimit
from toolgate.govern.control import Control
from toolgate.surfaces.grpc.rpc import ANYONE, Call, Rpc

WHOLE: Final = ""
"""The name that stands for all services together."""
MAX_WATCHES: Final = 1_000
"""Anybody may open one: those of strangers must not take the place of all others."""

_SERVING: Final[Message] = HealthCheckResponse(status=HealthCheckResponse.SERVING)
_UNKNOWN: Final[Message] = HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)


class Health:
    """The health of the services of one listener."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset((WHOLE, *services))
        self._watches = 0

    async def check(self, _control: Control, call: Call[HealthCheckRequest]) -> Message:
        """Whether a service, or with no name all of them, can be called."""
        if call.request.service not in self._services:
            raise NotFound("there is no such service")
        return _SERVING

    async def list(self, _control: Control, _call: Call[HealthListRequest]) -> Message:
        """As `Check`, for every service."""
        answer: Message = HealthListResponse(statuses=dict.fromkeys(self._services, _SERVING))
        return answer

    async def watch(self, _control: Control, call: Call[HealthCheckRequest]) -> AsyncGenerator[Message, None]:
        """As `Check`, and then nothing until the service is gone and the stream with it."""
        if self._watches >= MAX_WATCHES:
            raise SessionLimit(f"{MAX_WATCHES} watches of health are open, as many as may be")
        self._watches += 1
        try:
            yield _SERVING if call.request.service in self._services else _UNKNOWN
            await asyncio.Event().wait()
        finally:
            self._watches -= 1


def health_rpcs(health: Health) -> tuple[Rpc, ...]:
    """The rows of the service."""
    service = "grpc.health.v1.Health"
    return (
        Rpc(service=service, method="Check", roles=ANYONE, handler=health.check),
        Rpc(service=service, method="List", roles=ANYONE, handler=health.list),
        Rpc(service=service, method="Watch", roles=ANYONE, handler=health.watch),
    )
