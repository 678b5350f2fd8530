"""Open event streams: of sessions, of `subscriptions/listen`, of the 2024 transport. All share one limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from toolgate.gateway.caller import Caller
from toolgate.gateway.identity import Identities
from toolgate.gateway.subscriptions import Subscription, Subscriptions
from toolgate.surfaces.http.events import EVENT_HEADERS
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.exchange import Exchange

KEEPALIVE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Words:
    """What a stream says: once it is open, whenever the list changed, and when the gateway ends it."""

    first: bytes
    changed: bytes
    last: bytes


class Streams:
    """The open streams of this door. One lives no longer than the credential it was opened with."""

    def __init__(self, subscriptions: Subscriptions, identities: Identities) -> None:
        self._subscriptions = subscriptions
        self._identities = identities

    @contextmanager
    def open(self, exchange: Exchange, caller: Caller) -> Iterator[Subscription]:
        """One of the places for streams. It is over when the door closes or the credential lapses."""
        with (
            self._subscriptions.open(caller) as subscription,
            self._identities.until_lapsed(exchange.authorization, subscription.end),
        ):
            yield subscription

    async def announce(self, exchange: Exchange, caller: Caller, words: Words) -> None:
        """Serve one stream that only announces. A client that leaves ends it."""
        responder = exchange.responder
        with self.open(exchange, caller) as subscription:
            responder.start(200, EVENT_HEADERS)
            await responder.write(words.first)
            await announce_changes(responder, subscription, words.changed)
            await responder.write(words.last)
            responder.end()

    def close(self) -> None:
        """End them all, each with its last word."""
        self._subscriptions.close()


async def announce_changes(responder: Responder, subscription: Subscription, changed: bytes) -> None:
    """Say `changed` whenever the list did, until the stream has to end."""
    while not subscription.is_over:
        if await subscription.wait_changed(KEEPALIVE_S):
            await responder.write(changed)
        elif not subscription.is_over:
            await responder.write(b": keep-alive\n\n")
