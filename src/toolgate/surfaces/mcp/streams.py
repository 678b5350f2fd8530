"""Open event streams: of sessions, of `subscriptions/listen`, of the 2024 transport. All share one limit.

Event ids that say what a client has seen, so that any node can tell it what it missed meanwhile.

Nothing is kept for a stream that broke: an id is a picture of the lists as they were when it was sent. It
only decides what the client is told has changed, so it need not be signed.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.subscriptions.listeners import (
    SIGNATURE_BYTES,
    ListenerUpdate,
    ListSignatures,
    Subscription,
    Subscriptions,
)
from toolgate.gateway.subscriptions.resources import ResourceWatch
from toolgate.model.protocol import LIST_CHANGED, UPDATED
from toolgate.model.tools import ListKind
from toolgate.surfaces.http.messages import Responder
from toolgate.surfaces.http.responder import EVENT_HEADERS, KEEPALIVE, KEEPALIVE_S, encode_event
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.responses import encode_notification

Encode = Callable[[ListenerUpdate], bytes]
"""What a stream says of changes; nothing where its client does not want to hear of them."""


@dataclass(frozen=True, slots=True)
class StreamMessages:
    """What a stream says: once it is open, whenever something changed, and when the gateway ends it."""

    first: bytes
    changed: Encode
    last: bytes


class ClientStreams:
    """The open streams of this door. One lives no longer than the credential it was opened with."""

    def __init__(self, subscriptions: Subscriptions, identities: Identities) -> None:
        self._subscriptions = subscriptions
        self._identities = identities

    @contextmanager
    def open(
        self, exchange: McpExchange, caller: Caller, *, watch: ResourceWatch | None = None
    ) -> Iterator[Subscription]:
        """One of the places for streams. It is over when the door closes or the credential lapses."""
        with (
            self._subscriptions.open(caller, watch=watch) as subscription,
            self._identities.hold_credential(exchange.authorization, subscription.end),
        ):
            yield subscription

    async def announce(
        self,
        exchange: McpExchange,
        caller: Caller,
        words: StreamMessages,
        *,
        watch: ResourceWatch | None = None,
    ) -> None:
        """Serve one stream that only announces. A client that leaves ends it."""
        responder = exchange.responder
        with self.open(exchange, caller, watch=watch) as subscription:
            responder.start(200, EVENT_HEADERS)
            await responder.write(words.first)
            await send_changes(responder, subscription, words.changed)
            await responder.write(words.last)
            responder.end()

    def close(self) -> None:
        """End them all, each with its last word."""
        self._subscriptions.close()


async def send_changes(responder: Responder, subscription: Subscription, encode: Encode) -> None:
    """Say what changed whenever something did, until the stream has to end."""
    while not subscription.is_over:
        changes = await subscription.wait(KEEPALIVE_S)
        if changes.lists or changes.uris:
            await responder.write(encode(changes))
        elif not subscription.is_over:
            await responder.write(KEEPALIVE)


def list_changed_methods(changes: ListenerUpdate) -> list[str]:
    """The notifications that tell of changed lists, each once."""
    capabilities = ("resources" if kind == "templates" else kind for kind in changes.lists)
    return list(dict.fromkeys(LIST_CHANGED[one] for one in capabilities))


_KINDS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources", "templates")
_UNSEEN: Final = bytes(SIGNATURE_BYTES)


def encode_picture(picture: ListSignatures) -> bytes:
    """The id of an event that is sent while the lists look like this."""
    return base64.urlsafe_b64encode(b"".join(picture.get(kind, _UNSEEN) for kind in _KINDS))


def parse_picture(event_id: bytes) -> ListSignatures:
    """What a client has seen that saw this event last. With an id that is none of ours, it saw nothing."""
    try:
        seen = base64.b64decode(event_id, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        seen = b""
    if len(seen) != SIGNATURE_BYTES * len(_KINDS):
        return {}
    parts = (seen[start : start + SIGNATURE_BYTES] for start in range(0, len(seen), SIGNATURE_BYTES))
    return {kind: part for kind, part in zip(_KINDS, parts, strict=True) if part != _UNSEEN}


def encode_first_event(picture: ListSignatures) -> bytes:
    """An event that says nothing and has an id, so that even a stream that saw no other can be resumed."""
    return b"id: %b\ndata: \n\n" % encode_picture(picture)


def make_change_encoder(subscription: Subscription) -> Callable[[ListenerUpdate], bytes]:
    """What a session's stream says of changes."""

    def encode(changes: ListenerUpdate) -> bytes:
        messages = [encode_notification(method, b"{}") for method in list_changed_methods(changes)]
        messages += [encode_notification(UPDATED, msgspec.json.encode({"uri": uri})) for uri in changes.uris]
        # The id stands with the last word: a stream that breaks before it has not said everything.
        last = encode_event(messages.pop(), event_id=encode_picture(subscription.seen))
        return b"".join(map(encode_event, messages)) + last

    return encode
