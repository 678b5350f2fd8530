"""Small JSON documents by GET: through the one egress check, over TLS, bounded, and no redirects."""

import asyncio
import ssl
from typing import Any, Final

import msgspec

from toolgate import __version__
from toolgate.model.addresses import is_loopback
from toolgate.upstream.egress import Egress, EgressRefused, Target, parse_target
from toolgate.upstream.http import ConnectFailed, HttpPool
from toolgate.upstream.http_connection import ExchangeFailed, ExchangeTimedOut, HttpLimits

FETCH_S: Final = 5.0
MAX_DOCUMENT_BYTES: Final = 256 * 1024
_LIMITS: Final = HttpLimits(
    connect_timeout_s=FETCH_S, max_connections=1, max_body_bytes=MAX_DOCUMENT_BYTES, max_error_bytes=1_024
)


class FetchFailed(Exception):
    """No document. The message names the host, never the whole URL."""


def parse_secure_target(url: str) -> Target:
    """An `https` URL, or an `http` one to this very machine. Raises EgressRefused."""
    target = parse_target(url)
    if not target.is_tls and not is_loopback(target.host):
        raise EgressRefused(f"`{target.host}` must be reached by `https`")
    return target


class Fetcher:
    """Fetches documents. `tls` decides whom to trust; without it, the system's authorities do."""

    def __init__(self, egress: Egress, *, tls: ssl.SSLContext | None = None) -> None:
        self._egress = egress
        self._tls = tls

    async def get_json(self, url: str) -> Any:
        """The document at `url`. Raises FetchFailed."""
        try:
            target = parse_secure_target(url)
        except EgressRefused as exc:
            raise FetchFailed(str(exc)) from exc
        pool = HttpPool(target, self._egress, tls=await self._trust(target), limits=_LIMITS)
        try:
            answer = await pool.send(_request(target), deadline=asyncio.get_running_loop().time() + FETCH_S)
        except (ConnectFailed, ExchangeFailed, ExchangeTimedOut) as exc:
            raise FetchFailed(f"`{target.address}`: {exc}") from exc
        finally:
            pool.close()
        if answer.status != 200:
            raise FetchFailed(f"`{target.address}` answers with status {answer.status}")
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise FetchFailed(f"`{target.address}` answers with something that is not JSON") from exc

    async def _trust(self, target: Target) -> ssl.SSLContext | None:
        if target.is_tls and self._tls is None:
            # Reads every authority from disk, which takes longer than the event loop has.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls


def _request(target: Target) -> bytes:
    return (
        f"GET {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nAccept: application/json\r\n"
        f"Accept-Encoding: identity\r\nUser-Agent: toolgate/{__version__}\r\nConnection: close\r\n\r\n"
    ).encode("ascii")
