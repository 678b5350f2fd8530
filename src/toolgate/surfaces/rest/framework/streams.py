"""Streams of server-sent events, until their source ends or the reader's credential expires."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from toolgate.errors import SessionLimit, ToolgateError
from toolgate.gateway.auth.identity import credential_lapsed
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.request import Parameter, RestCall, parse_number
from toolgate.surfaces.rest.framework.response import EVENTS, Events, ResponseStream, RestResponse

T = TypeVar("T")

HEARTBEAT_S: Final = 15.0  # proxies close connections that are idle for 30 to 60 s
LAST_EVENT_ID: Final = Parameter(
    "Last-Event-ID",
    "The id of the last event received. The stream resumes after it and ignores `since`.",
    "number",
)
STREAM: Final[dict[str, Any]] = {"response": EVENTS, "headers": (LAST_EVENT_ID,), "errors": (SessionLimit,)}
"""The options of endpoints that stream events."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"


def parse_last_event_id(call: RestCall[Any]) -> int | None:
    """The number in `LAST_EVENT_ID`, None if absent. Raises InvalidRequest."""
    last = call.headers.get(LAST_EVENT_ID.name)
    return None if last is None else parse_number(LAST_EVENT_ID.name, last)


def encode_named_event(event: str, data: Any, event_id: int | None = None) -> bytes:
    """One event, with its terminator."""
    named = b"" if event_id is None else b"id: %d\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (named, event.encode(), msgspec.json.encode(data))


async def stream_response(
    control: Control,
    call: RestCall[Any],
    news: AbstractAsyncContextManager[AsyncIterator[T]],
    *,
    first: bytes,
    encode: Callable[[T], bytes],
) -> RestResponse:
    """Stream `first`, then each piece of `news` as encoded; if the stream fails, `error` is the last event.

    Pieces that `encode` returns nothing for are skipped. The stream has started when this returns: one that
    cannot start fails like any other request.
    """

    async def send() -> Events:
        with control.watches.admit(call.caller) as watch:
            lapse = partial(watch.end, credential_lapsed())
            with control.identities.hold_credential(call.authorization, lapse):
                async with news as pieces:
                    yield first
                    try:
                        while not watch.is_over:
                            piece = await watch.next(pieces, within_s=HEARTBEAT_S)
                            if piece is not None:
                                if encoded := encode(piece):
                                    yield encoded
                            elif not watch.is_over:
                                yield _KEEP_ALIVE
                    except ToolgateError as exc:
                        watch.end(exc)
            if watch.reason is not None:
                yield encode_named_event("error", watch.reason.detail)

    events = send()
    return RestResponse(ResponseStream(await anext(events), events))
