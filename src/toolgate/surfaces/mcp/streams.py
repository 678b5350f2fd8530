"""Open event streams: of sessions, of `subscriptions/listen`, of the 2024 transport. All share one limit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.subscriptions.listeners import Changes, Subscription, Subscriptions
from toolgate.gateway.subscriptions.resources import Watch
from toolgate.model.protocol import LIST_CHANGED
from toolgate.surfaces.http.events import EVENT_HEADERS, KEEPALIVE, KEEPALIVE_S
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.mcp.exchange import Exchange

Encode = Callable[[Changes], bytes]
"""What a stream says of changes; nothing where its client does not want to hear of them."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a stream says: once it is open, whenever something changed, and when the gateway ends it."""

    first: bytes
    changed: Encode
    last: bytes


class Streams:
    """The open streams of this door. One lives no longer than the credential it was opened with."""

    def __init__(self, subscriptions: Subscriptions, identities: Identities) -> None:
        self._subscriptions = subscriptions
        self._identities = identities

    @contextmanager
    def open(
        self, exchange: Exchange, caller: Caller, *, watch: Watch | None = None
    ) -> Iterator[Subscription]:
        """One of the places for streams. It is over when the door closes or the credential lapses."""
        with (
            self._subscriptions.open(caller, watch=watch) as subscription,
            self._identities.until_lapsed(exchange.authorization, subscription.end),
        ):
            yield subscription

    async def announce(
        self, exchange: Exchange, caller: Caller, words: Words, *, watch: Watch | None = None
    ) -> None:
        """Serve one stream that only announces. A client that leaves ends it."""
        responder = exchange.responder
        with self.open(exchange, caller, watch=watch) as subscription:
            responder.start(200, EVENT_HEADERS)
            await responder.write(words.first)
            await announce_changes(responder, subscription, words.changed)
            await responder.write(words.last)
            responder.end()

    def close(self) -> None:
        """End them all, each with its last word."""
        self._subscriptions.close()


async def announce_changes(responder: Responder, subscription: Subscription, encode: Encode) -> None:
    """Say what changed whenever something did, until the stream has to end."""
    while not subscription.is_over:
        changes = await subscription.wait(KEEPALIVE_S)
        if changes.lists or changes.uris:
            await responder.write(encode(changes))
        elif not subscription.is_over:
            await responder.write(KEEPALIVE)


def methods_of(changes: Changes) -> list[str]:
    """The notifications that tell of changed lists, each once."""
    capabilities = ("resources" if kind == "templates" else kind for kind in changes.lists)
    return list(dict.fromkeys(LIST_CHANGED[one] for one in capabilities))
