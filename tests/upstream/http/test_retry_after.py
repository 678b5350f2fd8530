"""UPS-4: the delay in a server's `Retry-After`, and what keeps to it."""

import asyncio

import pytest

from tests.upstream.faulty_http import FakeMcp, FaultyHttp, Peer, Request, Script
from tests.upstream.http_links import RecordingListener, linked, open_link, record_for
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.http.client_connection import HttpResponse
from toolgate.upstream.http.responses import parse_retry_after_s

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"7", 7, id="seconds"),
        pytest.param(b"0", 0, id="none"),
        pytest.param(b"86400", 60, id="a day is too long"),
        pytest.param(b"9" * 5000, 60, id="so is a number without end"),
        pytest.param(b"-1", None, id="the past"),
        pytest.param(b"1.5", None, id="no whole number"),
        pytest.param(b"soon", None, id="words"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"Fri, 31 Dec 1999 23:59:59 GMT", None, id="UPS-16 a date by a clock that is not ours"),
    ],
)
def test_only_a_number_of_seconds_counts_and_only_so_many(value: bytes, expected: int | None) -> None:
    assert parse_retry_after_s(HttpResponse(503, {b"retry-after": value}, b"")) == expected


def refusing(status: int, body: bytes = b"") -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(body, status=status, headers=["Retry-After: 7"])

    return script


ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"slow down"}}'


@pytest.mark.parametrize("body", [b"", ERROR], ids=["empty", "with an error"])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_rejected_start_sends_no_more_and_shows_when_to_retry(status: int, body: bytes) -> None:
    async with FaultyHttp(FakeMcp(faults={"server/discover": refusing(status, body)})) as server:
        with pytest.raises(StartFailed, match=f"status {status}, and requests a delay of 7 s") as caught:
            await open_link(record_for(server.url))

        assert (caught.value.retry_after_s, caught.value.fatal, len(server.requests)) == (7, False, 1)


@pytest.mark.parametrize("method", ["initialize", "notifications/initialized"])
async def test_so_does_one_that_is_rejected_within_the_handshake(method: str) -> None:
    async with FaultyHttp(FakeMcp("legacy", faults={method: refusing(429)})) as server:
        with pytest.raises(StartFailed, match="status 429") as caught:
            await open_link(record_for(server.url), known_revision="legacy")

        assert (caught.value.retry_after_s, len(server.seen(method))) == (7, 1)


@pytest.mark.parametrize(("era", "stream"), [("legacy", "GET"), ("modern", "subscriptions/listen")])
async def test_a_stream_that_is_rejected_for_a_while_is_opened_no_sooner_than_requested(
    era: str, stream: str
) -> None:
    asked_s: list[float] = []

    async def script(request: Request, peer: Peer) -> None:
        asked_s.append(asyncio.get_running_loop().time())
        if len(asked_s) == 1:
            await peer.respond(status=429, headers=["Retry-After: 1"])
        else:
            await peer.open_stream()
            await peer.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}})
            await peer.gone()

    received = RecordingListener()
    mcp = FakeMcp(era, faults={stream: script}, capabilities={"tools": {"listChanged": True}})
    async with linked(mcp, received):
        await received.until_notified(1)

        assert asked_s[1] - asked_s[0] >= 1.0
