"""From a record to connections to its server: secrets resolved, the address vetted, nothing opened yet.

The same for every transport on HTTP.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from toolgate.model.servers import HttpEndpoint, ServerRecord
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import HttpLimits
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, EgressRefused, Target, parse_target
from toolgate.upstream.redaction import credentials_of


@dataclass(frozen=True, slots=True)
class Reached:
    """How one server is reached."""

    url: str
    """With its references resolved: it may hold a credential."""
    target: Target
    headers: Mapping[str, str]
    """The record's own, resolved."""
    credentials: tuple[str, ...]
    """What in all that must not be shown."""
    pool: HttpPool


class Reach:
    """Makes pools of connections to the servers of records."""

    def __init__(
        self,
        secrets: Secrets,
        egress: Egress,
        *,
        limits: HttpLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` decides which servers are trusted; without it, the system's authorities do."""
        self._secrets = secrets
        self._egress = egress
        self._limits = limits
        self._tls = tls

    async def server(self, record: ServerRecord) -> Reached:
        """The server of `record`. Raises StartFailed. Whoever asks closes the pool."""
        if record.http is None:
            raise StartFailed("its record has no `http` part", fatal=True)
        return await self.endpoint(record.http)

    async def endpoint(self, endpoint: HttpEndpoint) -> Reached:
        """Whatever listens at `endpoint`. Raises StartFailed. Whoever asks closes the pool."""
        url = self._secrets.expand(endpoint.url)
        headers = self._secrets.http_headers(endpoint)
        target = self._vetted(url)
        credentials = tuple(credentials_of(endpoint, url, headers))
        pool = HttpPool(target, self._egress, tls=await self._trust(target), limits=self._limits)
        return Reached(url, target, headers, credentials, pool)

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
