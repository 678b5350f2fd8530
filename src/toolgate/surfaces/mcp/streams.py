"""Open event streams: the legacy GET stream and the modern `subscriptions/listen`. Both only announce."""

import asyncio
from collections.abc import Callable
from typing import Final

from toolgate.gateway.subscriptions import Subscription
from toolgate.surfaces.guard import Receive, Send
from toolgate.surfaces.mcp.exchange import Exchange

KEEPALIVE_S: Final = 15.0
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


def encode_event(message: bytes) -> bytes:
    """One JSON-RPC message as a server-sent event."""
    return b"event: message\ndata: %b\n\n" % message


async def announce_changes(
    exchange: Exchange,
    subscription: Subscription,
    *,
    first: bytes,
    changed: bytes,
    closing: asyncio.Event,
    last: Callable[[], bytes],
) -> None:
    """Send `first`, then `changed` whenever the list did, until the client leaves or the door closes."""
    send = exchange.send
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await _send_part(send, first)
    ends = (asyncio.create_task(_left(exchange.receive)), asyncio.create_task(closing.wait()))
    try:
        while not any(end.done() for end in ends):
            if await _wait_changed(subscription, ends):
                await _send_part(send, changed)
            elif not any(end.done() for end in ends):
                await _send_part(send, b": keep-alive\n\n")
        if not ends[0].done():
            await send({"type": "http.response.body", "body": last(), "more_body": False})
    finally:
        for end in ends:
            end.cancel()


async def _wait_changed(subscription: Subscription, ends: tuple["asyncio.Task[object]", ...]) -> bool:
    """Whether the list changed before something ended or the keep-alive fell due."""
    change = asyncio.create_task(subscription.changed.wait())
    try:
        await asyncio.wait({change, *ends}, timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        change.cancel()
    if not subscription.changed.is_set():
        return False
    subscription.changed.clear()
    return True


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
