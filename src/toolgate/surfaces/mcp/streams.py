"""Open event streams: the legacy GET stream and the modern `subscriptions/listen`. Both only announce."""

import asyncio
from typing import Final

from toolgate.gateway.subscriptions import Subscription
from toolgate.surfaces.http.messages import Responder

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
    responder: Responder,
    subscription: Subscription,
    *,
    first: bytes,
    changed: bytes,
    closing: asyncio.Event,
    last: bytes,
) -> None:
    """Send `first`, then `changed` whenever the list did, until the door closes; then `last`.

    A client that leaves cancels this.
    """
    responder.start(200, _HEADERS)
    await responder.write(first)
    end = asyncio.create_task(closing.wait())
    try:
        while not end.done():
            if await _wait_changed(subscription, end):
                await responder.write(changed)
            elif not end.done():
                await responder.write(b": keep-alive\n\n")
    finally:
        end.cancel()
    await responder.write(last)
    responder.end()


async def _wait_changed(subscription: Subscription, end: "asyncio.Task[bool]") -> bool:
    """Whether the list changed before the end or the next keep-alive."""
    change = asyncio.create_task(subscription.changed.wait())
    try:
        await asyncio.wait({change, end}, timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        change.cancel()
    if not subscription.changed.is_set():
        return False
    subscription.changed.clear()
    return True
