"""Negotiates the protocol revision on any transport: `server/discover`, then the `initialize` handshake.

The revision is a property of the server, and only positive evidence makes it stateless: a discovery that
lists our stateless version. Silence is no evidence, because a slow starter may still respond. So once the
server has read the probe and kept silent for `PROBE_TIMEOUT_S`, the handshake is sent as well, the probe
stays open, and the first real response decides. While the probe is unread, nothing follows it: a server of
both revisions that finds both messages responds to the probe, and the handshake then binds it to a session.
Knows no pipes or HTTP, opens and closes nothing, and sets no deadline for the whole start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from toolgate.model.json_text import UNREADABLE
from toolgate.model.protocol import LEGACY_VERSIONS, MODERN_VERSION
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
"""Sends one request with exactly these params, within seconds; raises as `ServerConnection.request`."""
NotificationSender = Callable[[str, Params], Awaitable[None]]
WaitUntilRead = Callable[[], Awaitable[None]]
"""Returns once the server has read everything that was sent to it."""

UNSUPPORTED_VERSION: Final = -32022  # its code in MCP 2026-07-28
_ALL_VERSIONS: Final = (MODERN_VERSION, *LEGACY_VERSIONS)


class _DiscoverResult(msgspec.Struct, rename="camel"):
    supported_versions: list[str]
    capabilities: Params = {}
    instructions: str | None = None


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: Params = {}
    instructions: str | None = None


class _SupportedVersions(msgspec.Struct):
    supported: list[str]


async def negotiate(
    send: RequestSender,
    notify: NotificationSender,
    *,
    known_revision: Revision | None = None,
    capabilities: bytes = SHARED_CAPABILITIES,
    wait_until_read: WaitUntilRead | None = None,
    probe_timeout_s: float = PROBE_TIMEOUT_S,
) -> ServerInfo:
    """Find out what the server is. Raises StartFailed for a foreign revision, and what `send` raises.

    `capabilities` are the client capabilities in a handshake. `wait_until_read` is None for transports that
    deliver a request before they wait for its response. The server may keep silent for `probe_timeout_s`.
    """
    handshake = partial(_initialize, send, notify, capabilities)
    if known_revision == "legacy":
        # If the server rejects it, it may have become stateless since: probe once.
        return await _initialize_or(handshake(), lambda: _discover(send))
    probe = asyncio.ensure_future(_discover(send))
    try:
        if wait_until_read is not None:
            await _wait_for_reader(probe, wait_until_read)
        await asyncio.wait({probe}, timeout=probe_timeout_s)
        if not probe.done():
            return await _initialize_while_probing(probe, handshake)
        return probe.result() or await _initialize_or(handshake(), lambda: _discover(send))
    finally:
        await _discard(probe)


async def _wait_for_reader(probe: asyncio.Future[ServerInfo | None], wait_until_read: WaitUntilRead) -> None:
    await asyncio.sleep(0)  # the task that sends the probe has not run yet
    reading = asyncio.ensure_future(wait_until_read())
    waiting: set[asyncio.Future[Any]] = {probe, reading}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _discard(reading)


async def _initialize_or(
    handshake: Awaitable[ServerInfo], fallback: Callable[[], Awaitable[ServerInfo | None]]
) -> ServerInfo:
    try:
        return await handshake
    except StartFailed:
        info = await fallback()
        if info is None:
            raise
        return info


async def _initialize_while_probing(
    probe: asyncio.Future[ServerInfo | None], handshake: Callable[[], Awaitable[ServerInfo]]
) -> ServerInfo:
    """Send the handshake while the probe waits for its response, which wins if it is stateless.

    A slow stateless server responds to the probe first, and then rejects the handshake or ignores it.
    """
    initializing = asyncio.ensure_future(handshake())
    waiting: set[asyncio.Future[Any]] = {probe, initializing}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        info = probe.result() if probe.done() else None
        return info or await _initialize_or(initializing, lambda: probe)
    finally:
        await _discard(initializing)


async def _discover(send: RequestSender) -> ServerInfo | None:
    """The server if it is stateless; None if its response is any other evidence. Raises StartFailed."""
    response = await send("server/discover", {"_meta": OWN_META}, START_TIMEOUT_S)
    error = parse_error(response.error)
    versions = _decode(error.data, _SupportedVersions) if error.code == UNSUPPORTED_VERSION else None
    if versions is not None:
        _require_common_version(_ALL_VERSIONS, versions.supported)
    if versions is not None and MODERN_VERSION in versions.supported:
        # Rejected, but supported: send it again (SEP-2575).
        response = await send("server/discover", {"_meta": OWN_META}, START_TIMEOUT_S)
    found = None if response.result is None else _decode(response.result, _DiscoverResult)
    if found is None:
        return None
    _require_common_version(_ALL_VERSIONS, found.supported_versions)
    if MODERN_VERSION not in found.supported_versions:
        return None
    return ServerInfo(
        revision="modern",
        version=MODERN_VERSION,
        capabilities=found.capabilities,
        instructions=found.instructions or "",
    )


async def _initialize(send: RequestSender, notify: NotificationSender, capabilities: bytes) -> ServerInfo:
    """The server as a session-based one. Raises StartFailed if it rejects the handshake."""
    params: Params = {
        "protocolVersion": msgspec.Raw(msgspec.json.encode(LEGACY_VERSIONS[0])),
        "capabilities": msgspec.Raw(capabilities),
        "clientInfo": msgspec.Raw(CLIENT_INFO),
    }
    response = await send("initialize", params, START_TIMEOUT_S)
    if response.result is None:
        error = parse_error(response.error)
        raise StartFailed(f"it rejected `initialize`: {error.message[:200] or error.code}")
    found = _decode(response.result, _InitializeResult)
    if found is None:
        raise StartFailed("its response to `initialize` is not an initialize result")
    _require_common_version(LEGACY_VERSIONS, [found.protocol_version])
    await notify("notifications/initialized", {})
    return ServerInfo(
        revision="legacy",
        version=found.protocol_version,
        capabilities=found.capabilities,
        instructions=found.instructions or "",
    )


def _require_common_version(ours: Collection[str], theirs: Sequence[str]) -> None:
    if not any(version in ours for version in theirs):
        named = ", ".join(f"`{version[:40]}`" for version in theirs[:8])
        raise StartFailed(f"it speaks {named or 'no protocol version'}, and this gateway does not")


def _decode(raw: bytes | msgspec.Raw, shape: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(raw, type=shape)
    except UNREADABLE:
        return None


async def _discard(task: asyncio.Future[Any]) -> None:
    """Cancel a request whose response no longer matters, without leaving an unread exception behind."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
