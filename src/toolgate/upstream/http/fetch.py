"""Small JSON documents, by GET or in answer to a form.

Through the one egress check, over TLS, bounded, and no redirects.

A collector of OpenTelemetry, by OTLP over HTTP with protobuf.

An operator named it, so that it is not held to where servers may be, and may be reached without TLS; its
headers are another matter, which the settings see to.
"""

import asyncio
import ssl
from collections.abc import Mapping
from copy import copy
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolgate import __version__
from toolgate.model.http import is_loopback
from toolgate.model.servers import EMPTY
from toolgate.telemetry.spans import ExportRejected
from toolgate.upstream.http.client_connection import (
    ExchangeFailed,
    ExchangeTimedOut,
    HttpLimits,
    HttpResponse,
)
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.egress import Egress, EgressRefused, HttpTarget, parse_target

FETCH_S: Final = 5.0
MAX_DOCUMENT_BYTES: Final = 256 * 1024
_LIMITS: Final = HttpLimits(
    connect_timeout_s=FETCH_S, max_connections=1, max_body_bytes=MAX_DOCUMENT_BYTES, max_error_bytes=4_096
)
_ANSWERS_TO_FORMS: Final = (200, 400, 401)
"""By RFC 6749, section 5: what was asked for, or why it is not given."""


class FetchFailed(Exception):
    """No document. The message names the host, never the whole URL."""


class NoDocument(FetchFailed):
    """Somebody answers there, and has no such document."""


def parse_secure_target(url: str) -> HttpTarget:
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

    async def restrict_for(self, url: str) -> "Fetcher":
        """For what a document at `url` names: whoever has a public address sends us to no private one."""
        public = self._egress.without_private()
        if await _is_refused(public, url):
            return self
        stricter = copy(self)
        stricter._egress = public
        return stricter

    async def get_json(self, url: str) -> Any:
        """The document at `url`. Raises FetchFailed."""
        target = _parse(url)
        answer = await self._send(target, _head("GET", target) + b"\r\n")
        if answer.status != 200:
            raise _refused(target, answer.status)
        return _decode(target, answer)

    async def post_form(
        self, url: str, form: Mapping[str, str], *, authorization: str | None = None
    ) -> tuple[int, Any]:
        """The status and document that a form sent to `url` is answered with; None: it is empty.

        Raises FetchFailed.

        `authorization` is printable ASCII: the caller made it.
        """
        target = _parse(url)
        body = urlencode(form).encode("ascii")
        own = "" if authorization is None else f"Authorization: {authorization}\r\n"
        kind = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
        answer = await self._send(target, _head("POST", target) + (own + kind).encode("ascii") + body)
        if answer.status not in _ANSWERS_TO_FORMS:
            raise _refused(target, answer.status)
        return answer.status, _decode(target, answer) if answer.body else None

    async def post_json(self, url: str, document: bytes, headers: Mapping[str, str] = EMPTY) -> HttpResponse:
        """What a JSON document sent to `url` is answered with, whatever that is. Raises FetchFailed.

        `headers` are printable ASCII: the caller made them.
        """
        return await self.post(_parse(url), document, headers)

    async def post(
        self, target: HttpTarget, body: bytes, headers: Mapping[str, str], *, media: str = "application/json"
    ) -> HttpResponse:
        """As `post_json`, of any kind, to where the caller has decided that it may go."""
        own = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        kind = f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
        return await self._send(target, _head("POST", target) + (own + kind).encode("ascii") + body)

    async def _send(self, target: HttpTarget, request: bytes) -> HttpResponse:
        pool = HttpPool(target, self._egress, tls=await self._trust(target), limits=_LIMITS)
        try:
            return await pool.send(request, deadline=asyncio.get_running_loop().time() + FETCH_S)
        except (ConnectFailed, ExchangeFailed, ExchangeTimedOut) as exc:
            raise FetchFailed(f"`{target.address}`: {exc}") from exc
        finally:
            pool.close()

    async def _trust(self, target: HttpTarget) -> ssl.SSLContext | None:
        if target.is_tls and self._tls is None:
            # Reads every authority from disk, which takes longer than the event loop has.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls


async def _is_refused(egress: Egress, url: str) -> bool:
    try:
        target = parse_target(url)
        await egress.resolve(target.host, target.port)
    except EgressRefused:
        return True
    except OSError:
        return False  # who cannot be found is trusted no more than a stranger
    return False


def _parse(url: str) -> HttpTarget:
    try:
        return parse_secure_target(url)
    except EgressRefused as exc:
        raise FetchFailed(str(exc)) from exc


def _head(verb: str, target: HttpTarget) -> bytes:
    return (
        f"{verb} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\nAccept: application/json\r\n"
        f"Accept-Encoding: identity\r\nUser-Agent: toolgate/{__version__}\r\nConnection: close\r\n"
    ).encode("ascii")


def _refused(target: HttpTarget, status: int) -> FetchFailed:
    kind = NoDocument if 400 <= status < 500 else FetchFailed
    return kind(f"`{target.address}` answers with status {status}")


def _decode(target: HttpTarget, answer: HttpResponse) -> Any:
    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise NoDocument(f"`{target.address}` answers with something that is not JSON") from exc


OTLP_TRACES_PATH: Final = "/v1/traces"
OTLP_LOGS_PATH: Final = "/v1/logs"
OTLP_MEDIA_TYPE: Final = "application/x-protobuf"
OTLP_RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same may be taken (the specification of OTLP, and 408)."""


class OtlpCollector:
    """Sends what is encoded already. `headers` are printable ASCII."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        """`endpoint` is a URL that was checked."""
        self._endpoint = endpoint
        self._headers = headers
        self._fetcher = Fetcher(Egress(allow_private=True))

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return parse_target(self._endpoint).address

    async def send_traces(self, body: bytes) -> None:
        """Raises NotTaken."""
        await self._send(parse_target(self._endpoint + OTLP_TRACES_PATH), body)

    async def send_logs(self, body: bytes) -> None:
        """Raises NotTaken."""
        await self._send(parse_target(self._endpoint + OTLP_LOGS_PATH), body)

    async def _send(self, target: HttpTarget, body: bytes) -> None:
        try:
            answer = await self._fetcher.post(target, body, self._headers, media=OTLP_MEDIA_TYPE)
        except FetchFailed as exc:
            raise ExportRejected(str(exc)) from exc
        if not 200 <= answer.status < 300:
            raise ExportRejected(
                f"`{target.address}{target.path}` answers with status {answer.status}",
                may_retry=answer.status in OTLP_RETRYABLE,
                status=answer.status,
            )
