"""A live link to an HTTP server: its requests, its errors in the gateway's words, its end."""

from collections.abc import Mapping
from typing import NoReturn

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.servers import EMPTY
from toolgate.upstream.background import Background
from toolgate.upstream.connection.contract import ClientSide, Hello, LinkListener, Params, Reply, Told
from toolgate.upstream.connection.messages import reply_of
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.responses import Rejected
from toolgate.upstream.redaction import Redactor
from toolgate.upstream.streamable.dialect import Dialect, LinkLost
from toolgate.upstream.streamable.failures import reply_to_rejected, unknown_outcome


class StreamableLink:
    """A server reached over streamable HTTP, in the dialect of its era."""

    def __init__(
        self,
        hello: Hello,
        dialect: Dialect,
        *,
        pool: HttpPool,
        background: Background,
        listener: LinkListener,
        redactor: Redactor,
    ) -> None:
        self.hello = redactor.hello(hello)
        self.pid: int | None = None
        self._dialect = dialect
        self._pool = pool
        self._background = background
        self._listener = listener
        self._redactor = redactor
        self._end: str | None = None

    async def request(
        self,
        method: str,
        params: Params,
        *,
        timeout_s: float,
        headers: Mapping[str, str] = EMPTY,
        client: ClientSide | None = None,
    ) -> Reply:
        if self._end is not None:
            raise ServerUnavailable(self._end)
        try:
            message = await self._dialect.ask(method, params, headers, timeout_s=timeout_s, client=client)
        except Rejected as exc:
            return reply_to_rejected(exc, self._redactor)
        except ExchangeTimedOut as exc:
            raise CallTimedOut(f"no answer from the server within {timeout_s:g} s") from exc
        except (ConnectFailed, ExchangeFailed, LinkLost) as exc:
            self._fail(exc)
        return self._redactor.reply(reply_of(message))

    def authorize(self, token: str) -> None:
        """Show the server `token` with every request from now on."""
        self._redactor.learn(token)
        self._dialect.authorize(f"Bearer {token}")

    def watch(self, uris: frozenset[str]) -> Told:
        return self._dialect.watch(uris)

    async def aclose(self) -> None:
        if self._end is None:
            self._end = "the link was closed"
            try:
                await self._background.aclose()
                await self._dialect.leave()
            finally:
                self._pool.close()

    def _fail(self, error: ConnectFailed | ExchangeFailed | LinkLost) -> NoReturn:
        if isinstance(error, ExchangeFailed):
            raise unknown_outcome(error) from error
        # Others may still be served on connections they have: only an idle link is given up for one refusal.
        reason = self._redactor.text(str(error))
        if isinstance(error, LinkLost) or not self._pool.is_busy:
            self._give_up(reason)
        raise ServerUnavailable(reason) from error

    def _give_up(self, reason: str) -> None:
        if self._end is None:
            self._end = reason
            self._background.cancel()
            self._pool.close()
            self._listener.on_closed(reason)
