"""Clients behind the requests of a link: what they were told and asked, and what they answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from toolgate.upstream.connection.contract import NO_CAPABILITIES, RpcResponse

Json = dict[str, Any]
ACCEPTED = RpcResponse(result=b'{"action":"accept","content":{"n":1}}')


async def accept(_method: str, _params: Json) -> RpcResponse:
    return ACCEPTED


async def never(_method: str, _params: Json) -> RpcResponse:
    await asyncio.Event().wait()
    raise AssertionError("it waits for ever")


@dataclass
class Client:
    """Remembers all it hears."""

    response: Callable[[str, Json], Awaitable[RpcResponse]] = accept
    principal_id: str = "ada"
    capabilities: bytes = b'{"elicitation":{"form":{}},"sampling":{},"roots":{}}'
    log_level: str = ""
    has_session: bool = True
    notified: list[tuple[str, Json]] = field(default_factory=list)
    asked: list[tuple[str, Json]] = field(default_factory=list)
    cut_off: int = 0
    """Questions that were taken back."""

    def notify(self, method: str, params: bytes) -> None:
        self.notified.append((method, msgspec.json.decode(params)))

    async def request(self, method: str, params: bytes) -> RpcResponse:
        members: Json = msgspec.json.decode(params)
        self.asked.append((method, members))
        try:
            return await self.response(method, members)
        except asyncio.CancelledError:
            self.cut_off += 1
            raise


@dataclass
class SilentClient:
    """One that nothing is to be said to."""

    principal_id: str = "ada"
    capabilities: bytes = NO_CAPABILITIES
    log_level: str = ""
    has_session: bool = True

    def notify(self, method: str, params: bytes) -> None:
        raise AssertionError(f"it was told {method}")

    async def request(self, method: str, params: bytes) -> RpcResponse:
        raise AssertionError(f"it was asked {method}")
