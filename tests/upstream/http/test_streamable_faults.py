"""Connections over HTTP to servers whose responses are invalid, late or missing."""

import asyncio
import json
from typing import Any

import pytest

from tests.upstream.faulty_http import FakeMcp, Peer, Request
from tests.upstream.http_links import (
    OK,
    SECRET,
    RecordingListener,
    call,
    calling,
    linked,
    response,
)
from toolgate.errors import CallTimedOut, ServerUnavailable

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@ERAS
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":999999,"result":{}}', "to another request", id="another id"),
        pytest.param(b'{"jsonrpc":"2.0","result":{}}', "to another request", id="no id"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', "to another request", id="a request"),
        pytest.param(b"<html>", "not a JSON-RPC message", id="a page"),
        pytest.param(b"", "not a JSON-RPC message", id="nothing"),
        pytest.param(b"[" * 100_000, "not a JSON-RPC message", id="a deep nest"),
    ],
)
async def test_chd_10_an_invalid_response_is_an_error(era: str, body: bytes, reason: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(body)

    async with linked(calling(era, script)) as (_, link):
        with pytest.raises(ServerUnavailable, match=f"{reason}: unknown outcome"):
            await call(link)


@ERAS
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        pytest.param(
            '{"jsonrpc":"2.0","id":999999,"result":{}}', "response to another request", id="another id"
        ),
        pytest.param("hello", "not a JSON-RPC message", id="no message"),
        pytest.param("", "ended without the response", id="nothing"),
    ],
)
async def test_chd_10_a_stream_without_the_response_is_an_error(era: str, event: str, reason: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(f"data: {event}\n\n".encode())
        await peer.end_stream()

    async with linked(calling(era, script)) as (server, link):
        with pytest.raises(ServerUnavailable, match=f"{reason}: unknown outcome"):
            await call(link)

        assert len(server.seen("tools/call")) == 1


@ERAS
@pytest.mark.parametrize("is_stream", [False, True], ids=["in the body", "on a stream"])
async def test_chd_12_a_response_that_is_not_utf8_is_an_error(era: str, *, is_stream: bool) -> None:
    async def script(request: Request, peer: Peer) -> None:
        body = json.dumps(response(request)).encode().replace(b"ok", b"caf\xe9")
        if is_stream:
            await peer.open_stream()
            await peer.chunk(b"data: %b\n\n" % body)
        else:
            await peer.respond(body)

    async with linked(calling(era, script)) as (_, link):
        with pytest.raises(ServerUnavailable, match="not a JSON-RPC message: unknown outcome"):
            await call(link)


@ERAS
@pytest.mark.parametrize("result", [5, "x", []])
async def test_chd_10_a_result_that_is_no_object_is_an_error(era: str, result: Any) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.result(request, result)

    async with linked(calling(era, script)) as (_, link):
        with pytest.raises(ServerUnavailable, match="not a JSON-RPC message: unknown outcome"):
            await call(link)


@ERAS
async def test_chd_10_no_result_at_all_is_an_error(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.result(request, None)

    async with linked(calling(era, script)) as (_, link):
        rpc = await call(link)

    assert b"neither a result nor an error" in (rpc.error or b"")


@ERAS
async def test_ups_2_silence_is_a_timeout_and_other_calls_go_on(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.message["params"]["arguments"] == "hang":
            await peer.gone()
        else:
            await peer.result(request, {"said": "ok"})

    async with linked(calling(era, script)) as (_, link):
        hanging = asyncio.ensure_future(call(link, "hang", timeout_s=0.3))
        others = [await call(link, n) for n in range(10)]

        with pytest.raises(CallTimedOut, match=r"within 0\.3 s"):
            await hanging
        assert others == [OK] * 10


@ERAS
async def test_ups_3_drops_on_a_stream_do_not_move_the_deadline(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        while True:
            await peer.chunk(b": still here\n")
            await asyncio.sleep(0.01)

    async with linked(calling(era, script)) as (_, link):
        with pytest.raises(CallTimedOut):
            await call(link, timeout_s=0.2)


@ERAS
async def test_ups_5_a_huge_error_page_becomes_a_short_error(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 500 Oops\r\nContent-Type: text/html\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(500):
            await peer.send(b"<p>oops</p>" * 10_000)

    async with linked(calling(era, script)) as (_, link):
        with pytest.raises(ServerUnavailable) as caught:
            await call(link)

        assert str(caught.value) == "the server responded with status 500 (internal server error)"


@ERAS
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (301, "the server responded with status 301 (a redirect, which the gateway does not follow)"),
        (401, "the server responded with status 401 (unauthorized)"),
        (403, "the server responded with status 403 (forbidden)"),
        (429, "the server responded with status 429 (too many requests)"),
        (503, "the server responded with status 503 (service unavailable)"),
        (202, "the server responded with status 202 (accepted)"),
        (799, "the server responded with status 799 (unknown)"),
    ],
)
async def test_an_error_status_fails_the_call_and_keeps_the_connection(
    era: str, status: int, expected: str
) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.message["params"]["arguments"] == "fail":
            await peer.respond(status=status, headers=["Location: http://127.0.0.1:1/"])
        else:
            await peer.result(request, {"said": "ok"})

    received = RecordingListener()
    async with linked(calling(era, script), received) as (_, link):
        with pytest.raises(ServerUnavailable) as caught:
            await call(link, "fail")

        assert (str(caught.value), caught.value.data) == (expected, {"status": status})
        assert (await call(link), received.closings) == (OK, [])


@ERAS
@pytest.mark.parametrize("flood", [b"x" * 65536, b"data: " + b"x" * 65536 + b"\n"], ids=["line", "event"])
async def test_ups_6_an_endless_event_ends_the_call_at_eight_mebibytes(era: str, flood: bytes) -> None:
    sent = 0

    async def script(request: Request, peer: Peer) -> None:
        nonlocal sent
        await peer.open_stream()
        while sent < 100_000_000:
            await peer.chunk(flood)
            sent += len(flood)

    async with linked(calling(era, script)) as (_, link):
        with pytest.raises(ServerUnavailable, match="longer than 8388608 bytes"):
            await call(link, timeout_s=60)

        assert sent < 20_000_000


@ERAS
async def test_ups_14_a_call_with_its_connection_dies_was_sent_once_and_says_so(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        peer.reset()

    async with linked(calling(era, script)) as (server, link):
        with pytest.raises(ServerUnavailable, match="unknown outcome") as caught:
            await call(link)

        assert (caught.value.data, len(server.seen("tools/call"))) == ({"outcome": "unknown"}, 1)


@ERAS
@pytest.mark.parametrize("how", ["timeout", "cancellation"])
async def test_a_call_given_up_closes_its_connection_and_tells_a_legacy_server(era: str, how: str) -> None:
    has_arrived, has_ended, is_notified = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        has_arrived.set()
        await peer.gone()
        has_ended.set()

    async def take(request: Request, peer: Peer) -> None:
        is_notified.set()
        await peer.respond(status=202)

    mcp = FakeMcp(era, faults={"tools/call": script, "notifications/cancelled": take})
    async with linked(mcp) as (server, link):
        task = asyncio.ensure_future(call(link, timeout_s=1.0 if how == "timeout" else 60))
        await has_arrived.wait()
        if how == "cancellation":
            task.cancel()
        with pytest.raises(CallTimedOut if how == "timeout" else asyncio.CancelledError):
            await task

        await has_ended.wait()
        if era == "legacy":
            await is_notified.wait()
        notified = [request.message["params"] for request in server.seen("notifications/cancelled")]
        [number] = [request.message["id"] for request in server.seen("tools/call")]
        assert notified == ([{"requestId": number}] if era == "legacy" else [])


@ERAS
async def test_ssr_7_nothing_of_a_caller_reaches_the_server_but_what_mirrors_the_body(era: str) -> None:
    async with linked(FakeMcp(era)) as (server, link):
        for _ in range(1000):
            await call(link)
        if era == "modern":
            for name in ("Authorization", "Cookie", "X-Anything", "Mcp-Session-Id", "Mcp-Method", "Host"):
                with pytest.raises(ValueError, match=name):
                    await link.request("tools/call", {}, timeout_s=60, headers={name: "canary"})
            with pytest.raises(ValueError, match="not a header"):
                await link.request(
                    "tools/call", {}, timeout_s=60, headers={"Mcp-Name": "a\r\nCookie: canary"}
                )

        names = {name for request in server.requests for name in request.headers}
        assert names == {
            "accept",
            "accept-encoding",
            "content-length",
            "content-type",
            "host",
            "mcp-protocol-version",
            "user-agent",
            *({"mcp-method", "mcp-name"} if era == "modern" else {"mcp-session-id", "mcp-method"}),
        }


@ERAS
async def test_sec_9_the_server_s_credential_in_its_errors_does_not_reach_the_caller(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        kind = request.message["params"]["arguments"]
        text = f"no: Bearer {SECRET}, {SECRET}"
        if kind == "error":
            await peer.error(request, -32000, message=text)
        elif kind == "escaped":
            body = json.dumps({**response(request), "result": None, "error": {"message": text}})
            await peer.respond(body.replace("/", "\\/").replace('"result": null, ', "").encode())
        elif kind == "status":
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": text}}
            await peer.respond(json.dumps(error).encode(), status=503)
        else:
            await peer.result(request, {"isError": kind == "failed", "content": text})

    async with linked(calling(era, script), auth_ref="TOKEN") as (_, link):
        responses = [await call(link, kind) for kind in ("error", "escaped", "failed")]
        with pytest.raises(ServerUnavailable, match=r"no: \[redacted\], \[redacted\]") as caught:
            await call(link, "status")

        assert [b"sk-canary" in (rpc.error or rpc.result or b"") for rpc in responses] == [False] * 3
        assert [b"[redacted]" in (rpc.error or rpc.result or b"") for rpc in responses] == [True] * 3
        assert SECRET not in str(caught.value)
        assert SECRET.encode() in ((await call(link, "fine")).result or b"")
