"""A collector of OpenTelemetry, by OTLP over HTTP with protobuf.

An operator named it, so that it is not held to where servers may be, and may be reached without TLS; its
headers are another matter, which the settings see to.
"""

from collections.abc import Mapping
from typing import Final

from toolgate.telemetry.spans import NotTaken
from toolgate.upstream.http.egress import Egress, Target, parse_target
from toolgate.upstream.http.fetch import Fetcher, FetchFailed

TRACES: Final = "/v1/traces"
LOGS: Final = "/v1/logs"
MEDIA: Final = "application/x-protobuf"
NOT_NOW: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the same may be taken (the specification of OTLP, and 408)."""


class Collector:
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
        await self._send(parse_target(self._endpoint + TRACES), body)

    async def send_logs(self, body: bytes) -> None:
        """Raises NotTaken."""
        await self._send(parse_target(self._endpoint + LOGS), body)

    async def _send(self, target: Target, body: bytes) -> None:
        try:
            answer = await self._fetcher.post(target, body, self._headers, media=MEDIA)
        except FetchFailed as exc:
            raise NotTaken(str(exc)) from exc
        if not 200 <= answer.status < 300:
            raise NotTaken(
                f"`{target.address}{target.path}` answers with status {answer.status}",
                may_retry=answer.status in NOT_NOW,
                status=answer.status,
            )
