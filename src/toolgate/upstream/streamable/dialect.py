"""What both eras have in common on HTTP."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from toolgate.upstream.connection.contract import ClientSide, Params, Told
from toolgate.upstream.connection.messages import Incoming
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut
from toolgate.upstream.http.connection_pool import ConnectFailed
from toolgate.upstream.http.responses import Rejected

_ODD_STATUSES: Final = (400, 404, 405, 406, 415)
_ASK_EVERY_S: Final = 5.0
_ASK_TIMEOUT_S: Final = 2.0


class Dialect(Protocol):
    """How requests are put to a server of one era."""

    async def ask(
        self,
        method: str,
        params: Params,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        client: ClientSide | None,
    ) -> Incoming:
        """The response to a request, sent once. Raises what HTTP raises, Rejected and LinkLost."""

    def listen(self) -> None:
        """Start to hear what the server says unasked, where it announces that it will."""

    def watch(self, uris: frozenset[str]) -> Told:
        """See `Link.watch`."""

    def authorize(self, credential: str) -> None:
        """Show the server `credential` with every request from now on."""

    async def leave(self) -> None:
        """Take leave, as well as can be done in a moment. Does not raise."""


class LinkLost(Exception):
    """The server is there and no longer what the link took it for: the link is of no use any more."""


class Doubt:
    """Whether a server has changed its era under a link, as one does that another version has replaced.

    Only a status that a server of the era has little use for raises it, and then the server is asked: at
    most every few seconds, so that calls which are wrong by themselves do not cost it much.
    """

    def __init__(self, is_as_before: Callable[[float], Awaitable[bool]]) -> None:
        """`is_as_before` asks the server, until a deadline."""
        self._is_as_before = is_as_before
        self._asked_s = -math.inf

    async def check(self, rejected: Rejected, deadline: float) -> None:
        """Raises LinkLost when the server turns out to have changed."""
        now_s = asyncio.get_running_loop().time()
        if rejected.status not in _ODD_STATUSES or now_s - self._asked_s < _ASK_EVERY_S:
            return
        self._asked_s = now_s
        try:
            is_as_before = await self._is_as_before(min(deadline, now_s + _ASK_TIMEOUT_S))
        except (ConnectFailed, ExchangeFailed, ExchangeTimedOut):
            return
        if not is_as_before:
            raise LinkLost("the server no longer speaks the protocol it spoke") from rejected
