"""The stateless era (2026-07-28): every request stands alone, and closing its connection cancels it."""

from collections.abc import Mapping

from toolgate.model.protocol import MODERN_VERSION
from toolgate.model.servers import EMPTY
from toolgate.upstream.background import Background
from toolgate.upstream.link import Hello, LinkListener, Params
from toolgate.upstream.streamable.dialect import Doubt, forward
from toolgate.upstream.streamable.greeting import Endpoint
from toolgate.upstream.streamable.heads import with_body
from toolgate.upstream.streamable.listening import Listening
from toolgate.upstream.streamable.messages import NoResponse, PendingResponse, Rejected
from toolgate.upstream.wire import LISTEN, LISTEN_PARAMS, Incoming, encode_request, params_for


class ModernDialect:
    """Requests to a modern server."""

    def __init__(
        self, endpoint: Endpoint, background: Background, *, hello: Hello, listener: LinkListener
    ) -> None:
        self._endpoint = endpoint
        self._background = background
        self._hello = hello
        self._listener = listener
        self._doubt = Doubt(self._is_still_modern)

    async def ask(
        self, method: str, params: Params, headers: Mapping[str, str], deadline: float, /
    ) -> Incoming:
        endpoint = self._endpoint
        number = next(endpoint.numbers)
        body = encode_request(number, method, params_for("modern", params))
        pending = PendingResponse(number, self._take)
        request = with_body(endpoint.heads.modern(method, headers), body)
        try:
            return pending.take(await endpoint.pool.send(request, deadline=deadline, sink=pending))
        except Rejected as exc:
            await self._doubt.check(exc, deadline)
            raise

    def listen(self) -> None:
        if self._hello.has_list_changed:
            self._background.start(Listening(self._endpoint.pool, self._take, self._subscription).run())

    def authorize(self, credential: str) -> None:
        self._endpoint.heads.authorize(credential)

    async def leave(self) -> None:
        """There is nothing to leave."""

    async def _is_still_modern(self, deadline: float) -> bool:
        try:
            response = await self.ask("server/discover", {}, EMPTY, deadline)
        except (Rejected, NoResponse):
            return False
        return MODERN_VERSION.encode() in bytes(response.result)

    def _subscription(self, _position: bytes) -> tuple[int, bytes]:
        number = next(self._endpoint.numbers)
        body = encode_request(number, LISTEN, LISTEN_PARAMS)
        return number, with_body(self._endpoint.heads.modern(LISTEN), body)

    def _take(self, message: Incoming) -> None:
        if not message.id:  # a server of this era has no requests of its own
            forward(message, self._listener)
