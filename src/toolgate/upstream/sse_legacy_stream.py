"""The one stream of the 2024 transport as a server sends it: its events, and where it says to post to."""

from collections.abc import Callable
from typing import Final
from urllib.parse import urljoin, urlsplit

from toolgate.upstream.connection.contract import MAX_MESSAGE_BYTES
from toolgate.upstream.http.client_connection import StreamRefused
from toolgate.upstream.http.egress import EgressRefused, Target, parse_target
from toolgate.upstream.http.sse import Event, EventTooLarge, SseParser
from toolgate.upstream.reach import Reached

MAX_ENDPOINT_BYTES: Final = 8 * 1024


class EventStream:
    """Hands on the events of a stream, for as long as it lasts."""

    def __init__(self, take: Callable[[Event], None]) -> None:
        self._take = take
        self._parser = SseParser(MAX_MESSAGE_BYTES)

    def begin(self) -> None:
        self._parser.restart()

    def feed(self, chunk: bytes) -> bool:
        try:
            events = self._parser.feed(chunk)
        except EventTooLarge as exc:
            raise StreamRefused(f"on the server's stream, {exc}") from exc
        for event in events:
            self._take(event)
        return False  # nothing that comes is the last

    def deadline(self, deadline: float) -> float:
        return deadline


def parse_endpoint(reached: Reached, data: bytes) -> tuple[Target, str]:
    """Where messages go, and the query of it. Raises StreamRefused for anything off the server's origin."""
    if len(data) > MAX_ENDPOINT_BYTES:
        raise StreamRefused(f"the server's endpoint is longer than {MAX_ENDPOINT_BYTES} bytes")
    try:
        url = urljoin(reached.url, data.decode("ascii"))
        target = parse_target(url)
    except (ValueError, EgressRefused) as exc:
        raise StreamRefused("the server's endpoint is not a URL that can be used") from exc
    ours = reached.target
    if (target.is_tls, target.host, target.port) != (ours.is_tls, ours.host, ours.port):
        raise StreamRefused("the server's endpoint is not on its own origin, which is not followed")
    return target, urlsplit(url).query
