"""Event ids that say what a client has seen, so that any node can tell it what it missed meanwhile.

Nothing is kept for a stream that broke: an id is a picture of the lists as they were when it was sent. It
only decides what the client is told has changed, so it need not be signed.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Final

import msgspec

from toolgate.gateway.subscriptions.listeners import SIGNATURE_BYTES, Changes, Picture, Subscription
from toolgate.model.protocol import UPDATED
from toolgate.model.tools import ListKind
from toolgate.surfaces.http.events import encode_event
from toolgate.surfaces.mcp.responses import encode_notification
from toolgate.surfaces.mcp.streams import methods_of

_KINDS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources", "templates")
_UNSEEN: Final = bytes(SIGNATURE_BYTES)


def encode_picture(picture: Picture) -> bytes:
    """The id of an event that is sent while the lists look like this."""
    return base64.urlsafe_b64encode(b"".join(picture.get(kind, _UNSEEN) for kind in _KINDS))


def parse_picture(event_id: bytes) -> Picture:
    """What a client has seen that saw this event last. With an id that is none of ours, it saw nothing."""
    try:
        seen = base64.b64decode(event_id, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        seen = b""
    if len(seen) != SIGNATURE_BYTES * len(_KINDS):
        return {}
    parts = (seen[start : start + SIGNATURE_BYTES] for start in range(0, len(seen), SIGNATURE_BYTES))
    return {kind: part for kind, part in zip(_KINDS, parts, strict=True) if part != _UNSEEN}


def encode_opening(picture: Picture) -> bytes:
    """An event that says nothing and has an id, so that even a stream that saw no other can be resumed."""
    return b"id: %b\ndata: \n\n" % encode_picture(picture)


def encoder_of(subscription: Subscription) -> Callable[[Changes], bytes]:
    """What a session's stream says of changes."""

    def encode(changes: Changes) -> bytes:
        messages = [encode_notification(method, b"{}") for method in methods_of(changes)]
        messages += [encode_notification(UPDATED, msgspec.json.encode({"uri": uri})) for uri in changes.uris]
        # The id stands with the last word: a stream that breaks before it has not said everything.
        last = encode_event(messages.pop(), event_id=encode_picture(subscription.picture))
        return b"".join(map(encode_event, messages)) + last

    return encode
