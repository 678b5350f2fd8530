"""Opens links to HTTP servers of either era."""

import asyncio
import itertools
import ssl

from toolgate.model.runners import start_timeout_of
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Era
from toolgate.upstream.background import Background
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    Hello,
    LinkListener,
    StartFailed,
)
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import HttpLimits
from toolgate.upstream.http.dialects import LegacyDialect
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import Heads, Session
from toolgate.upstream.http.negotiation import Endpoint, Greeting
from toolgate.upstream.reach import Reach
from toolgate.upstream.redaction import Redactor
from toolgate.upstream.streamable.dialect import Dialect
from toolgate.upstream.streamable.live import StreamableLink
from toolgate.upstream.streamable.modern import ModernDialect


class StreamableOpener:
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
        self._reach = Reach(secrets, egress, limits=limits, tls=tls)
        self._start_timeout_s = start_timeout_s
        # One sequence for all links: a request repeated on a new link must have a new id (SEP-2322).
        self._numbers = itertools.count(1)

    async def __call__(
        self,
        record: ServerRecord,
        listener: LinkListener,
        *,
        known_era: Era | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> StreamableLink:
        endpoint, redactor = await self._endpoint(record, capabilities)
        try:
            timeout_s = start_timeout_of(record, self._start_timeout_s)
            hello, session = await self._greet(endpoint, known_era, timeout_s)
        except StartFailed as exc:
            endpoint.pool.close()
            raise StartFailed(
                redactor.text(str(exc)), state=exc.state, fatal=exc.fatal, retry_after_s=exc.retry_after_s
            ) from exc
        except BaseException:
            endpoint.pool.close()
            raise
        background = Background()
        dialect: Dialect
        if session is None:
            dialect = ModernDialect(endpoint, background, hello=hello, listener=listener, redactor=redactor)
        else:
            dialect = LegacyDialect(
                endpoint, background, hello=hello, session=session, listener=listener, redactor=redactor
            )
        dialect.listen()
        return StreamableLink(
            hello, dialect, pool=endpoint.pool, background=background, listener=listener, redactor=redactor
        )

    async def _endpoint(self, record: ServerRecord, capabilities: bytes) -> tuple[Endpoint, Redactor]:
        reached = await self._reach.server(record)
        heads = Heads(reached.target, reached.headers)
        return Endpoint(reached.pool, heads, self._numbers, capabilities), Redactor(reached.credentials)

    async def _greet(
        self, endpoint: Endpoint, known_era: Era | None, timeout_s: float
    ) -> tuple[Hello, Session | None]:
        """What the server is; and its session, exactly if it is legacy."""
        greeting = Greeting(endpoint)
        try:
            async with asyncio.timeout(timeout_s):
                hello = await greeting.hello(known_era=known_era)
        except TimeoutError as exc:
            reason = f"no answer within {timeout_s:g} s"
            raise StartFailed(reason, state="list_timeout") from exc
        return hello, greeting.session if hello.era == "legacy" else None
