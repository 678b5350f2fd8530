"""Open event streams: of sessions, of `subscriptions/listen`, of the 2024 transport. All share one limit.

Nothing is kept for a broken stream: an event id holds the signatures of the lists as they were, so any node
can notify a client of what it missed. It only decides which changes are notified, so it is not signed.
"""

import base64
import binascii
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from toolgate.surfaces.http.responder import KEEPALIVE, KEEPALIVE_S, encode_event
from toolgate.surfaces.mcp.exchange import McpExchange
from toolgate.surfaces.mcp.responses import encode_notification

ChangeEncoder = Callable[[ListenerUpdate], bytes]
"""Encodes changes as events; empty if the client did not subscribe to them."""


class ClientStreams:
    """The open streams of this endpoint. None outlives the credential that opened it."""

    def __init__(self, subscriptions: Subscriptions, identities: Identities) -> None:
        self._subscriptions = subscriptions
        self._identities = identities

    @contextmanager
    def open(
        self, exchange: McpExchange, caller: Caller, *, watch: ResourceWatch | None = None
    ) -> Iterator[Subscription]:
        """Open a stream, if there is room. It ends when the endpoint closes or the credential expires."""
        with (
            self._subscriptions.open(caller, watch=watch) as subscription,
            self._identities.hold_credential(exchange.authorization, subscription.end),
        ):
            yield subscription

    def close(self) -> None:
        """End all streams, each with its last event."""
        self._subscriptions.close()


async def send_changes(responder: Responder, subscription: Subscription, encode: ChangeEncoder) -> None:
    """Send what changes until the stream has to end."""
    while not subscription.is_over:
        changes = await subscription.wait(KEEPALIVE_S)
        if changes.lists or changes.uris:
            await responder.write(encode(changes))
        elif not subscription.is_over:
            await responder.write(KEEPALIVE)


def list_changed_methods(changes: ListenerUpdate) -> list[str]:
    """The notifications for changed lists, each once."""
    capabilities = ("resources" if kind == "templates" else kind for kind in changes.lists)
    return list(dict.fromkeys(LIST_CHANGED[one] for one in capabilities))


_KINDS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources", "templates")
_UNSEEN: Final = bytes(SIGNATURE_BYTES)


def encode_event_id(signatures: ListSignatures) -> bytes:
    """The id of an event that is sent while the lists have these signatures."""
    return base64.urlsafe_b64encode(b"".join(signatures.get(kind, _UNSEEN) for kind in _KINDS))


def parse_event_id(event_id: bytes) -> ListSignatures:
    """The lists that a client saw whose last event this was. An invalid id: none."""
    try:
        seen = base64.b64decode(event_id, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        seen = b""
    if len(seen) != SIGNATURE_BYTES * len(_KINDS):
        return {}
    parts = (seen[start : start + SIGNATURE_BYTES] for start in range(0, len(seen), SIGNATURE_BYTES))
    return {kind: part for kind, part in zip(_KINDS, parts, strict=True) if part != _UNSEEN}


def encode_first_event(signatures: ListSignatures) -> bytes:
    """An empty event with an id, so that a stream can be resumed that got no other."""
    return b"id: %b\ndata: \n\n" % encode_event_id(signatures)


def make_change_encoder(subscription: Subscription) -> ChangeEncoder:
    """Encodes changes for the stream of a session."""

    def encode(changes: ListenerUpdate) -> bytes:
        messages = [encode_notification(method, b"{}") for method in list_changed_methods(changes)]
        messages += [encode_notification(UPDATED, msgspec.json.encode({"uri": uri})) for uri in changes.uris]
        # Only the last event has the id: a stream that breaks before it has not sent everything.
        last = encode_event(messages.pop(), event_id=encode_event_id(subscription.seen))
        return b"".join(map(encode_event, messages)) + last

    return encode
