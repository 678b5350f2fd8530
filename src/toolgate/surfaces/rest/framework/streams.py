"""Answers that go on: server-sent events, until there are no more, or their reader may have no more."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from toolgate.errors import ToolgateError
from toolgate.gateway.auth.identity import credential_lapsed
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.request import Parameter, RestCall, parse_number
from toolgate.surfaces.rest.framework.response import Events, ResponseStream, RestResponse

T = TypeVar("T")

HEARTBEAT_S: Final = 15.0  # proxies close what is silent for 30 to 60 s
LAST_EVENT_ID: Final = Parameter(
    "Last-Event-ID", "The id of the last event that was got: go on after it, whatever `since` says.", "number"
)
_KEEP_ALIVE: Final = b": keep-alive\n\n"


def parse_last_event_id(call: RestCall[Any]) -> int | None:
    """What `LAST_EVENT_ID` says; None where it was not sent. Or InvalidRequest."""
    last = call.headers.get(LAST_EVENT_ID.name)
    return None if last is None else parse_number(LAST_EVENT_ID.name, last)


def encode_named_event(event: str, data: Any, event_id: int | None = None) -> bytes:
    """One event, with its end."""
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
    """`first`, then what `tell` makes of each piece of `news`; at last, where it cannot go on, `error`.

    What `tell` makes nothing of is passed over. The stream has begun when this returns: one that cannot be
    had is refused like any other request.
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
