"""Opens links to HTTP servers: resolves the record's secrets, vets the address, negotiates."""

import asyncio
import itertools
import ssl

from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Era
from toolgate.upstream.egress import Egress, EgressRefused, Target, parse_target
from toolgate.upstream.http import HttpPool
from toolgate.upstream.http_connection import HttpLimits
from toolgate.upstream.link import START_TIMEOUT_S, Hello, LinkListener, StartFailed
from toolgate.upstream.redaction import Redactor, credentials_of
from toolgate.upstream.secrets import Secrets
from toolgate.upstream.streamable.background import Background
from toolgate.upstream.streamable.dialect import Dialect
from toolgate.upstream.streamable.greeting import Endpoint, Greeting
from toolgate.upstream.streamable.heads import Heads, Session
from toolgate.upstream.streamable.legacy import LegacyDialect
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
        self._secrets = secrets
        self._egress = egress
        self._limits = limits
        self._tls = tls
        self._start_timeout_s = start_timeout_s
        # One sequence for all links: a request repeated on a new link must have a new id (SEP-2322).
        self._numbers = itertools.count(1)

    async def __call__(
        self, record: ServerRecord, listener: LinkListener, *, known_era: Era | None
    ) -> StreamableLink:
        endpoint, redactor = await self._endpoint(record)
        try:
            hello, session = await self._greet(endpoint, known_era)
        except StartFailed as exc:
            endpoint.pool.close()
            raise StartFailed(redactor.text(str(exc)), state=exc.state, fatal=exc.fatal) from exc
        except BaseException:
            endpoint.pool.close()
            raise
        background = Background()
        dialect: Dialect
        if session is None:
            dialect = ModernDialect(endpoint, background, hello=hello, listener=listener)
        else:
            dialect = LegacyDialect(endpoint, background, hello=hello, session=session, listener=listener)
        dialect.listen()
        return StreamableLink(
            hello, dialect, pool=endpoint.pool, background=background, listener=listener, redactor=redactor
        )

    async def _endpoint(self, record: ServerRecord) -> tuple[Endpoint, Redactor]:
        if record.http is None:
            raise StartFailed("its record has no `http` part", fatal=True)
        url = self._secrets.expand(record.http.url)
        headers = self._secrets.http_headers(record.http)
        target = self._vetted(url)
        heads = Heads(target, headers)
        pool = HttpPool(target, self._egress, tls=await self._trust(target), limits=self._limits)
        return Endpoint(pool, heads, self._numbers), Redactor(credentials_of(record.http, url, headers))

    def _vetted(self, url: str) -> Target:
        try:
            target = parse_target(url)
            self._egress.check_literal(target)
        except EgressRefused as exc:
            raise StartFailed(str(exc), fatal=True) from exc
        return target

    async def _trust(self, target: Target) -> ssl.SSLContext | None:
        if target.is_tls and self._tls is None:
            # Reads every authority from disk, which takes longer than the event loop has.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls

    async def _greet(self, endpoint: Endpoint, known_era: Era | None) -> tuple[Hello, Session | None]:
        """What the server is; and its session, exactly if it is legacy."""
        greeting = Greeting(endpoint)
        try:
            async with asyncio.timeout(self._start_timeout_s):
                hello = await greeting.hello(known_era=known_era)
        except TimeoutError as exc:
            reason = f"no answer within {self._start_timeout_s:g} s"
            raise StartFailed(reason, state="list_timeout") from exc
        return hello, greeting.session if hello.era == "legacy" else None
