"""Open event streams: the legacy GET stream and the modern `subscriptions/listen`. Both only announce."""

from dataclasses import dataclass
from typing import Final

from toolgate.gateway.caller import Caller
from toolgate.gateway.identity import Identities
from toolgate.gateway.subscriptions import Subscription, Subscriptions
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.exchange import Exchange

KEEPALIVE_S: Final = 15.0
_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@dataclass(frozen=True, slots=True)
class Words:
    """What a stream says: once it is open, whenever the list changed, and when the gateway ends it."""

    first: bytes
    changed: bytes
    last: bytes


def encode_event(message: bytes) -> bytes:
    """One JSON-RPC message as a server-sent event."""
    return b"event: message\ndata: %b\n\n" % message


class Streams:
    """The open streams of this door. One lives no longer than the credential it was opened with."""

    def __init__(self, subscriptions: Subscriptions, identities: Identities) -> None:
        self._subscriptions = subscriptions
        self._identities = identities

    async def announce(self, exchange: Exchange, caller: Caller, words: Words) -> None:
        """Serve one stream until the door closes or its credential lapses. A client that leaves ends it."""
        with (
            self._subscriptions.open(caller) as subscription,
            self._identities.until_lapsed(exchange.authorization, subscription.end),
        ):
            await _announce_changes(exchange.responder, subscription, words)

    def close(self) -> None:
        """End them all, each with its last word."""
        self._subscriptions.close()


async def _announce_changes(responder: Responder, subscription: Subscription, words: Words) -> None:
    responder.start(200, _HEADERS)
    await responder.write(words.first)
    while not subscription.is_over:
        if await subscription.wait_changed(KEEPALIVE_S):
            await responder.write(words.changed)
        elif not subscription.is_over:
            await responder.write(b": keep-alive\n\n")
    await responder.write(words.last)
    responder.end()
