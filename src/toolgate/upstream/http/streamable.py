"""A live link to an HTTP server: its requests, its errors in the gateway's words, its end.

Opens links to HTTP servers of either era.
"""

import asyncio
import itertools
import ssl
from collections.abc import Mapping
from typing import NoReturn

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.servers import EMPTY, ServerRecord, choose_start_timeout
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    Acknowledgement,
    ClientChannel,
    ConnectionListener,
    Params,
    RpcResponse,
    ServerInfo,
    StartFailed,
)
from toolgate.upstream.connection.messages import parse_response
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.connection.tasks import BackgroundTasks
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut, HttpLimits
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.dialects import StatefulDialect, StatelessDialect
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver, HttpSession, RequestHeads
from toolgate.upstream.http.negotiation import (
    ConnectionLost,
    HttpDialect,
    HttpNegotiation,
    StreamableEndpoint,
)
from toolgate.upstream.http.responses import RequestRejected, convert_rejection, unknown_outcome
from toolgate.upstream.redaction import Redactor


class StreamableConnection:
    """A server reached over streamable HTTP, in the dialect of its era."""

    def __init__(
        self,
        hello: ServerInfo,
        dialect: HttpDialect,
        *,
        pool: HttpPool,
        background: BackgroundTasks,
        listener: ConnectionListener,
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
        client: ClientChannel | None = None,
    ) -> RpcResponse:
        if self._end is not None:
            raise ServerUnavailable(self._end)
        try:
            message = await self._dialect.ask(method, params, headers, timeout_s=timeout_s, client=client)
        except RequestRejected as exc:
            return convert_rejection(exc, self._redactor)
        except ExchangeTimedOut as exc:
            raise CallTimedOut(f"no answer from the server within {timeout_s:g} s") from exc
        except (ConnectFailed, ExchangeFailed, ConnectionLost) as exc:
            self._fail(exc)
        return self._redactor.reply(parse_response(message))

    def authorize(self, token: str) -> None:
        """Show the server `token` with every request from now on."""
        self._redactor.learn(token)
        self._dialect.authorize(f"Bearer {token}")

    def watch(self, uris: frozenset[str]) -> Acknowledgement:
        return self._dialect.watch(uris)

    async def aclose(self) -> None:
        if self._end is None:
            self._end = "the link was closed"
            try:
                await self._background.aclose()
                await self._dialect.leave()
            finally:
                self._pool.close()

    def _fail(self, error: ConnectFailed | ExchangeFailed | ConnectionLost) -> NoReturn:
        if isinstance(error, ExchangeFailed):
            raise unknown_outcome(error) from error
        # Others may still be served on connections they have: only an idle link is given up for one refusal.
        reason = self._redactor.text(str(error))
        if isinstance(error, ConnectionLost) or not self._pool.is_busy:
            self._give_up(reason)
        raise ServerUnavailable(reason) from error

    def _give_up(self, reason: str) -> None:
        if self._end is None:
            self._end = reason
            self._background.cancel()
            self._pool.close()
            self._listener.on_closed(reason)


class StreamableConnector:
    """The opener of transport `streamable_http`."""

    def __init__(
        self,
        secrets: Secrets,
        egress: Egress,
        *,
        limits: HttpLimits | None = None,
        tls: ssl.SSLContext | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """`tls` decides which servers are trusted; without it, the system's authorities do."""
        self._reach = EndpointResolver(secrets, egress, limits=limits, tls=tls)
        self._start_timeout_s = start_timeout_s
        # One sequence for all links: a request repeated on a new link must have a new id (SEP-2322).
        self._numbers = itertools.count(1)

    async def __call__(
        self,
        record: ServerRecord,
        listener: ConnectionListener,
        *,
        known_era: Revision | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> StreamableConnection:
        endpoint, redactor = await self._endpoint(record, capabilities)
        try:
            timeout_s = choose_start_timeout(record, self._start_timeout_s)
            hello, session = await self._greet(endpoint, known_era, timeout_s)
        except StartFailed as exc:
            endpoint.pool.close()
            raise StartFailed(
                redactor.text(str(exc)), state=exc.state, fatal=exc.fatal, retry_after_s=exc.retry_after_s
            ) from exc
        except BaseException:
            endpoint.pool.close()
            raise
        background = BackgroundTasks()
        dialect: HttpDialect
        if session is None:
            dialect = StatelessDialect(
                endpoint, background, hello=hello, listener=listener, redactor=redactor
            )
        else:
            dialect = StatefulDialect(
                endpoint, background, hello=hello, session=session, listener=listener, redactor=redactor
            )
        dialect.listen()
        return StreamableConnection(
            hello, dialect, pool=endpoint.pool, background=background, listener=listener, redactor=redactor
        )

    async def _endpoint(
        self, record: ServerRecord, capabilities: bytes
    ) -> tuple[StreamableEndpoint, Redactor]:
        reached = await self._reach.server(record)
        heads = RequestHeads(reached.target, reached.headers)
        return StreamableEndpoint(reached.pool, heads, self._numbers, capabilities), Redactor(
            reached.credentials
        )

    async def _greet(
        self, endpoint: StreamableEndpoint, known_era: Revision | None, timeout_s: float
    ) -> tuple[ServerInfo, HttpSession | None]:
        """What the server is; and its session, exactly if it is legacy."""
        greeting = HttpNegotiation(endpoint)
        try:
            async with asyncio.timeout(timeout_s):
                hello = await greeting.hello(known_era=known_era)
        except TimeoutError as exc:
            reason = f"no answer within {timeout_s:g} s"
            raise StartFailed(reason, state="list_timeout") from exc
        return hello, greeting.session if hello.era == "legacy" else None
