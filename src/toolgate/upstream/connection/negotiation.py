"""Which era a server speaks: `server/discover` first, then the `initialize` handshake. For any transport.

The era is a property of the server, and only positive evidence makes it modern: a discovery that lists
our modern version. Silence is no evidence, because a slow starter has not answered *yet*; so once the
server has read the probe and kept silent for `PROBE_TIMEOUT_S`, the handshake is sent as well, the probe
stays open, and the first real answer decides. While the probe is unread nothing follows it: a server of both
revisions that finds both messages answers the probe, and is then bound to a session by the handshake.
Nothing here knows pipes or HTTP, opens or closes anything, or sets a deadline for the whole start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from toolgate.model.json_text import UNREADABLE
from toolgate.model.protocol import LEGACY_VERSIONS, MODERN_VERSION, SERVER_INFO_KEY
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    PROBE_TIMEOUT_S,
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    Params,
    RpcResponse,
    ServerInfo,
    StartFailed,
)
from toolgate.upstream.connection.messages import CLIENT_INFO, OWN_META, parse_error

_T = TypeVar("_T")

RequestSender = Callable[[str, Params, float], Awaitable[RpcResponse]]
"""Sends one request with exactly these params and waits so many seconds; raises as `Link.request` does."""
NotificationSender = Callable[[str, Params], Awaitable[None]]
WaitUntilRead = Callable[[], Awaitable[None]]
"""Returns once the server has read what was sent to it."""

UNSUPPORTED_VERSION: Final = -32022
_ALL_VERSIONS: Final = (MODERN_VERSION, *LEGACY_VERSIONS)

_NEWEST_LEGACY: Final = msgspec.Raw(msgspec.json.encode(LEGACY_VERSIONS[0]))
_Shake = Callable[[], Awaitable[ServerInfo]]


class _Discovery(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: Params = {}
    instructions: str | None = None
    meta: Params | None = msgspec.field(default=None, name="_meta")


class _Handshake(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: Params = {}
    server_info: msgspec.Raw = msgspec.Raw(b"{}")
    instructions: str | None = None


class _Versions(msgspec.Struct):
    supported: list[str]


async def _assume_read() -> None:
    """For transports that deliver a request before they wait for its answer."""


async def negotiate(
    ask: RequestSender,
    notify: NotificationSender,
    *,
    known_era: Revision | None = None,
    capabilities: bytes = SHARED_CAPABILITIES,
    was_read: WaitUntilRead = _assume_read,
) -> ServerInfo:
    """What the server is. Raises StartFailed when it is nothing we speak, and whatever `ask` raises.

    `capabilities` is what a handshake says that clients can do.
    """
    handshake = partial(_handshake, ask, notify, capabilities)
    if known_era == "legacy":
        return await _handshake_or_probe(ask, handshake)
    probe = asyncio.ensure_future(_discover(ask))
    try:
        await _wait_until_read(probe, was_read)
        await asyncio.wait({probe}, timeout=PROBE_TIMEOUT_S)
        if not probe.done():
            return await _handshake_while_probing(probe, handshake)
        return probe.result() or await _handshake_or_probe(ask, handshake)
    finally:
        await _discard(probe)


async def _wait_until_read(probe: asyncio.Future[ServerInfo | None], was_read: WaitUntilRead) -> None:
    """Returns once the server has read the probe, or answered it."""
    await asyncio.sleep(0)  # the probe is sent by a task that has not run yet
    reading = asyncio.ensure_future(was_read())
    asked: set[asyncio.Future[Any]] = {probe, reading}
    try:
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _discard(reading)


async def _handshake_or_probe(ask: RequestSender, handshake: _Shake) -> ServerInfo:
    """The handshake; where it is refused, the server may have become modern since: ask once."""
    try:
        return await handshake()
    except StartFailed:
        hello = await _discover(ask)
        if hello is None:
            raise
        return hello


async def _handshake_while_probing(probe: asyncio.Future[ServerInfo | None], shake: _Shake) -> ServerInfo:
    """The handshake while a probe is still unanswered: the late answer to the probe wins if it is modern.

    A modern server that was only slow answers both in order, and refuses the handshake or ignores it.
    """
    handshake = asyncio.ensure_future(shake())
    asked: set[asyncio.Future[Any]] = {probe, handshake}
    try:
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        hello = probe.result() if probe.done() else None
        if hello is not None:
            return hello
        try:
            return await handshake
        except StartFailed:
            hello = await probe
            if hello is None:
                raise
            return hello
    finally:
        await _discard(handshake)


async def _discover(ask: RequestSender) -> ServerInfo | None:
    """The server as a modern one; None when its answer is any other evidence."""
    reply = await ask("server/discover", {"_meta": OWN_META}, START_TIMEOUT_S)
    if MODERN_VERSION in _offered(reply):  # refused, and offered all the same: ask again (SEP-2575)
        reply = await ask("server/discover", {"_meta": OWN_META}, START_TIMEOUT_S)
    if reply.result is None:
        return None
    found = _decode(reply.result, _Discovery)
    if found is None:
        return None
    _require_one_of(_ALL_VERSIONS, found.supported_versions)
    if MODERN_VERSION not in found.supported_versions:
        return None
    return ServerInfo(
        era="modern",
        version=MODERN_VERSION,
        capabilities=found.capabilities,
        server_info=bytes((found.meta or {}).get(SERVER_INFO_KEY, b"{}")),
        instructions=found.instructions or "",
    )


def _offered(reply: RpcResponse) -> list[str]:
    """The versions a server names that refuses ours. Raises StartFailed when we speak none of them."""
    error = parse_error(reply.error)
    versions = _decode(error.data, _Versions) if error.code == UNSUPPORTED_VERSION else None
    if versions is None:
        return []
    _require_one_of(_ALL_VERSIONS, versions.supported)
    return versions.supported


async def _handshake(ask: RequestSender, notify: NotificationSender, capabilities: bytes) -> ServerInfo:
    """The server as a legacy one. Raises StartFailed when it refuses."""
    params: Params = {
        "protocolVersion": _NEWEST_LEGACY,
        "capabilities": msgspec.Raw(capabilities),
        "clientInfo": msgspec.Raw(CLIENT_INFO),
    }
    reply = await ask("initialize", params, START_TIMEOUT_S)
    if reply.result is None:
        error = parse_error(reply.error)
        raise StartFailed(f"it refused `initialize`: {error.message[:200] or error.code}")
    answer = _decode(reply.result, _Handshake)
    if answer is None:
        raise StartFailed("its answer to `initialize` is not one")
    _require_one_of(LEGACY_VERSIONS, [answer.protocol_version])
    await notify("notifications/initialized", {})
    return ServerInfo(
        era="legacy",
        version=answer.protocol_version,
        capabilities=answer.capabilities,
        server_info=bytes(answer.server_info),
        instructions=answer.instructions or "",
    )


def _require_one_of(ours: Collection[str], theirs: Sequence[str]) -> None:
    """Refuse a server that names its versions, and none of them is ours."""
    if not any(version in ours for version in theirs):
        named = ", ".join(f"`{version[:40]}`" for version in theirs[:8])
        raise StartFailed(f"it speaks {named or 'no protocol version'}, and this gateway does not")


def _decode(raw: bytes | msgspec.Raw, shape: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(raw, type=shape)
    except UNREADABLE:
        return None


async def _discard(task: asyncio.Future[Any]) -> None:
    """End a question whose answer no longer matters, without leaving an unread failure behind."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
