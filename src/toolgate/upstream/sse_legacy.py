"""MCP servers over the HTTP+SSE transport of 2024, which many still speak and nobody should begin with."""

import asyncio
import itertools
import ssl

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.runners import start_timeout_of
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Era
from toolgate.upstream.connection.contract import (
    SHARED_CAPABILITIES,
    START_TIMEOUT_S,
    LinkListener,
    StartFailed,
)
from toolgate.upstream.connection.negotiation import negotiate
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut, HttpLimits
from toolgate.upstream.http.connection_pool import ConnectFailed
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.sse_legacy import SseLink
from toolgate.upstream.reach import Reach


class SseLegacyOpener:
    """The opener of transport `http_sse_legacy`. Servers of either era may stand behind it."""

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
        self._shy: set[str] = set()
        """Those whose stream ended when they were probed: some end at any first message but `initialize`."""

    async def __call__(
        self,
        record: ServerRecord,
        listener: LinkListener,
        *,
        known_era: Era | None,
        capabilities: bytes = SHARED_CAPABILITIES,
    ) -> SseLink:
        link = SseLink(await self._reach.server(record), self._numbers, listener)
        era: Era | None = "legacy" if known_era is None and record.server_id in self._shy else known_era
        timeout_s = start_timeout_of(record, self._start_timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await link.connect()
                link.open(
                    await negotiate(link.exchange, link.notify, known_era=era, capabilities=capabilities)
                )
        except (TimeoutError, CallTimedOut, ExchangeTimedOut) as exc:
            reason = f"no answer within {timeout_s:g} s"
            raise StartFailed(reason, state="list_timeout") from exc
        except (ServerUnavailable, ConnectFailed, ExchangeFailed) as exc:
            self._shy ^= {record.server_id}
            raise StartFailed(str(exc)) from exc
        finally:
            if not link.is_open:
                await link.aclose()
        self._shy.discard(record.server_id)
        return link
