"""The stateless era (2026-07-28): every request stands alone, and closing its connection cancels it."""

import asyncio
from collections.abc import Callable, Mapping

from toolgate.model.protocol import MODERN_VERSION
from toolgate.model.servers import EMPTY
from toolgate.upstream.background import Background
from toolgate.upstream.connection.contract import ClientSide, Hello, LinkListener, Params, Told
from toolgate.upstream.connection.messages import LISTEN, Incoming, encode_request, params_for, reply_of
from toolgate.upstream.connection.relay import Relay
from toolgate.upstream.connection.subscriptions import ModernOrders, tell_missed
from toolgate.upstream.http.endpoint import with_body
from toolgate.upstream.http.negotiation import Endpoint
from toolgate.upstream.http.responses import REPEATABLE, NoResponse, PendingResponse, Rejected
from toolgate.upstream.redaction import Redactor
from toolgate.upstream.streamable.dialect import Doubt
from toolgate.upstream.streamable.listening import Listening


class ModernDialect:
    """Requests to a modern server."""

    def __init__(
        self,
        endpoint: Endpoint,
        background: Background,
        *,
        hello: Hello,
        listener: LinkListener,
        redactor: Redactor,
    ) -> None:
        self._endpoint = endpoint
        self._hello = hello
        self._listener = listener
        self._clock = asyncio.get_running_loop().time
        self._relay = Relay(listener, redactor, background=background, tell=_drop, deliver=_never)
        self._orders = ModernOrders(hello, self._listen, background)
        self._doubt = Doubt(self._is_still_modern)

    async def ask(
        self,
        method: str,
        params: Params,
        headers: Mapping[str, str],
        *,
        timeout_s: float,
        client: ClientSide | None,
    ) -> Incoming:
        endpoint, relay = self._endpoint, self._relay
        number = next(endpoint.numbers)
        key = b"%d" % number
        deadline = self._clock() + timeout_s
        params = relay.enter(key, params, client=client, deadline=deadline, timeout_s=timeout_s)
        pending = PendingResponse(key, relay)
        try:
            request = with_body(
                endpoint.heads.modern(method, headers), encode_request(number, method, params)
            )
            send = endpoint.pool.send_repeatable if method in REPEATABLE else endpoint.pool.send
            return pending.take(await send(request, deadline=deadline, sink=pending))
        except Rejected as exc:
            await self._doubt.check(exc, deadline)
            raise
        finally:
            relay.leave(key)

    def listen(self) -> None:
        self._orders.watch(frozenset())

    def watch(self, uris: frozenset[str]) -> Told:
        return self._orders.watch(uris)

    def authorize(self, credential: str) -> None:
        self._endpoint.heads.authorize(credential)

    async def leave(self) -> None:
        """There is nothing to leave."""

    async def _is_still_modern(self, deadline: float) -> bool:
        timeout_s = deadline - self._clock()
        try:
            response = await self.ask("server/discover", {}, EMPTY, timeout_s=timeout_s, client=None)
        except (Rejected, NoResponse):
            return False
        return MODERN_VERSION.encode() in (reply_of(response).result or b"")

    async def _listen(self, params: Params, on_open: Callable[[], None]) -> None:
        def request(_position: bytes) -> tuple[bytes, bytes]:
            number = next(self._endpoint.numbers)
            body = encode_request(number, LISTEN, params_for("modern", params))
            return b"%d" % number, with_body(self._endpoint.heads.modern(LISTEN), body)

        await Listening(
            self._endpoint.pool, self._relay, request=request, on_missed=self._tell_missed, on_open=on_open
        ).run()

    def _tell_missed(self) -> None:
        tell_missed(self._hello, self._orders.uris, self._listener)


def _drop(message: bytes) -> None:
    """A server of this era has no requests of its own, and is told nothing beside ours."""


async def _never(message: bytes) -> None:
    """As above."""
