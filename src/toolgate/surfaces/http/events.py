"""Server-sent events, as every door writes them."""

from typing import Final

EVENT_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
KEEPALIVE: Final = b": keep-alive\n\n"
KEEPALIVE_S: Final = 15.0
"""What a stream says while it has nothing to say, and how often."""
_LINE_ENDS_TO_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


def encode_event(message: bytes, *, event_id: bytes = b"") -> bytes:
    """One JSON message as a server-sent event. A client resumes a stream from the `event_id` it saw last."""
    if b"\n" in message or b"\r" in message:
        # JSON has line ends only between its tokens, where a space will do; an event ends at the first.
        message = message.translate(_LINE_ENDS_TO_SPACES)
    if event_id:
        return b"id: %b\nevent: message\ndata: %b\n\n" % (event_id, message)
    return b"event: message\ndata: %b\n\n" % message
