"""Reflection, by which tools find out what there is to call. Never on a listener beyond loopback."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing

from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection

from toolgate.govern.control import Control
from toolgate.surfaces.grpc.rpc import Call, Rpc


class Reflection:
    """The definitions of the services of one listener."""

    def __init__(self, services: Iterable[str]) -> None:
        self._servicer = reflection.aio.ReflectionServicer((*services, reflection.SERVICE_NAME))

    async def info(
        self, _control: Control, call: Call[AsyncIterator[Message]]
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
            handler=Reflection(services).info,
        ),
    )
