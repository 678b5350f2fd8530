"""Fetches small documents over HTTP (OAuth, JWKS, webhooks), and exports to an OpenTelemetry collector.

Every request passes the egress check, uses TLS, has bounds and follows no redirects. The collector is the
exception: an operator configured it, so it may have any address and may be reached without TLS.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from toolgate import __version__
from toolgate.model.http import is_loopback
from toolgate.model.servers import EMPTY
from toolgate.telemetry.spans import ExportRejected
from toolgate.upstream.http.client_connection import HttpFailure, HttpLimits, HttpResponse
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.egress import Egress, EgressRefused, HttpTarget, parse_target

FETCH_S: Final = 5.0  # as long as a connect to a server may take; logins and token checks wait for it
MAX_DOCUMENT_BYTES: Final = 256 * 1024  # a choice: metadata and key sets have a few KiB, and stay in memory
_LIMITS: Final = HttpLimits(
    connect_timeout_s=FETCH_S, max_connections=1, max_body_bytes=MAX_DOCUMENT_BYTES, max_error_bytes=4_096
)
_FORM_STATUSES: Final = (200, 400, 401)
"""By RFC 6749, section 5: the requested token, or the reason for the rejection."""


class FetchFailed(Exception):
    """No document. The message names the host, never the whole URL."""


class NoDocument(FetchFailed):
    """The server has no such document."""


def parse_secure_target(url: str) -> HttpTarget:
    """An `https` URL, or an `http` one to this machine. Raises EgressRefused."""
    target = parse_target(url)
    if not target.is_tls and not is_loopback(target.host):
        raise EgressRefused(f"`{target.host}` must be reached by `https`")
    return target


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches documents."""

    egress: Egress
    tls: ssl.SSLContext | None = None
    """Holds the trusted authorities; by default, the system's."""

    async def restrict_for(self, url: str) -> "Fetcher":
        """A fetcher for addresses in a document at `url`: a public server cannot name private ones."""
        public = replace(self.egress, allow_private=False)
        try:
            target = parse_target(url)
            await public.resolve(target.host, target.port)
        except EgressRefused:
            return self
        except OSError:
            pass  # an unknown host is trusted no more than any other
        return replace(self, egress=public)

    async def get_json(self, url: str) -> Any:
        """The document at `url`. Raises FetchFailed."""
        target = _parse(url)
        response = await self.send(target, {}, None)
        if response.status != 200:
            raise _refused(target, response.status)
        return _decode(target, response)

    async def post_form(
        self, url: str, form: Mapping[str, str], *, authorization: str | None = None
    ) -> tuple[int, Any]:
        """POST a form; returns the status and the document, None if empty. Raises FetchFailed.

        `authorization` must be printable ASCII.
        """
        target = _parse(url)
        headers = {} if authorization is None else {"Authorization": authorization}
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        response = await self.send(target, headers, urlencode(form).encode("ascii"))
        if response.status not in _FORM_STATUSES:
            raise _refused(target, response.status)
        return response.status, _decode(target, response) if response.body else None

    async def post_json(self, url: str, document: bytes, headers: Mapping[str, str] = EMPTY) -> HttpResponse:
        """POST a document; returns any response. `headers` must be printable ASCII. Raises FetchFailed."""
        return await self.send(_parse(url), {**headers, "Content-Type": "application/json"}, document)

    async def send(self, target: HttpTarget, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        """POST `body`, or GET without one, to a target that the caller has checked. Raises FetchFailed."""
        sent = {
            "Host": target.authority,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"toolgate/{__version__}",
            "Connection": "close",
            **headers,
            **({} if body is None else {"Content-Length": len(body)}),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        head = f"{'GET' if body is None else 'POST'} {target.path} HTTP/1.1\r\n{lines}\r\n".encode("ascii")
        pool = HttpPool(target, self.egress, tls=self.tls, limits=_LIMITS)
        try:
            deadline = asyncio.get_running_loop().time() + FETCH_S
            return await pool.send(head + (body or b""), deadline=deadline)
        except HttpFailure as exc:
            raise FetchFailed(f"`{target.address}`: {exc}") from exc
        finally:
            pool.close()


def _parse(url: str) -> HttpTarget:
    try:
        return parse_secure_target(url)
    except EgressRefused as exc:
        raise FetchFailed(str(exc)) from exc


def _refused(target: HttpTarget, status: int) -> FetchFailed:
    kind = NoDocument if 400 <= status < 500 else FetchFailed
    return kind(f"`{target.address}` responded with status {status}")


def _decode(target: HttpTarget, response: HttpResponse) -> Any:
    try:
        return msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise NoDocument(f"`{target.address}` sent a response that is not JSON") from exc


OTLP_TRACES_PATH: Final = "/v1/traces"
OTLP_LOGS_PATH: Final = "/v1/logs"
OTLP_RETRYABLE: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the export may be repeated (the OTLP specification, and 408)."""


class OtlpCollector:
    """Sends encoded traces and logs by OTLP over HTTP with protobuf."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        """`endpoint` is a checked URL; `headers` must be printable ASCII."""
        self._endpoint = endpoint
        self._headers = headers
        self._fetcher = Fetcher(Egress(allow_private=True))

    async def send(self, path: str, body: bytes) -> None:
        """Send a document to `path` below the endpoint. Raises ExportRejected."""
        target = parse_target(self._endpoint + path)
        headers = {**self._headers, "Content-Type": "application/x-protobuf"}
        try:
            response = await self._fetcher.send(target, headers, body)
        except FetchFailed as exc:
            raise ExportRejected(str(exc)) from exc
        if not 200 <= response.status < 300:
            status, may_retry = response.status, response.status in OTLP_RETRYABLE
            reason = f"`{target.address}{target.path}` responded with status {status}"
            raise ExportRejected(reason, may_retry=may_retry, status=status)
