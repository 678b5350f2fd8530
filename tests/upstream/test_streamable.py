"""Links over HTTP, in both eras, with servers that answer well, badly and not at all."""

import asyncio
import json
from typing import Any

import pytest

from tests.upstream.faulty_http import LEGACY, MODERN, FakeMcp, FaultyHttp, Peer, Request, Script
from tests.upstream.http_links import SECRET, Heard, linked, open_link, params, record_for
from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.upstream.http_connection import HttpLimits
from toolgate.upstream.link import Link, Reply

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def call(link: Link, value: object = 1, *, timeout_s: float = 5.0) -> Reply:
    headers = {"Mcp-Name": "echo"}
    return await link.request(
        "tools/call", params(name="echo", arguments=value), timeout_s=timeout_s, headers=headers
    )


def echoed(value: object = 1) -> Reply:
    return Reply(result=json.dumps({"echo": value}).encode())


def calling(era: str, script: Script) -> FakeMcp:
    """A server whose calls go wrong."""
    return FakeMcp(era, faults={"tools/call": script})


def response(request: Request, result: Any = "ok") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.message["id"], "result": result}


async def hang(request: Request, peer: Peer) -> None:
    await peer.gone()


# Asking


@ERAS
async def test_calls_share_connections_and_have_ids_of_their_own(era: str) -> None:
    async with linked(FakeMcp(era)) as (server, link):
        replies = [await call(link, n) for n in range(5)]
        replies += await asyncio.gather(*(call(link, n) for n in range(5, 20)))

        assert replies == [echoed(n) for n in range(20)]
        assert len({request.message["id"] for request in server.seen("tools/call")}) == 20
        assert server.connections <= 16


async def test_a_modern_request_carries_its_era_in_headers_and_envelope() -> None:
    async with linked(FakeMcp()) as (server, link):
        headers = {"Mcp-Name": "a tool", "Mcp-Param-Region": "eu"}
        meta = {"progressToken": 7, "x/y": 1, "io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
        await link.request("tools/call", params(name="a tool", _meta=meta), timeout_s=5, headers=headers)

        [request] = server.seen("tools/call")
        assert {
            name: request.headers.get(name) for name in ("mcp-protocol-version", "mcp-method", "mcp-name")
        } == {
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": "a tool",
        }
        assert (request.headers["mcp-param-region"], "mcp-session-id" in request.headers) == ("eu", False)
        envelope = request.message["params"]["_meta"]
        assert {key: envelope.get(key) for key in (*meta, "io.modelcontextprotocol/protocolVersion")} == {
            **meta,
            "progressToken": None,
            "io.modelcontextprotocol/protocolVersion": MODERN,
        }


async def test_a_legacy_request_carries_its_session_and_no_envelope() -> None:
    async with linked(FakeMcp("legacy")) as (server, link):
        meta = {"x/y": 1, "io.modelcontextprotocol/protocolVersion": MODERN}
        await link.request("tools/call", params(name="a", _meta=meta), timeout_s=5, headers={"Mcp-Name": "a"})
        await link.request("tools/call", params(name="a", _meta={"progressToken": 7}), timeout_s=5)

        first, second = server.seen("tools/call")
        assert [first.message["params"], second.message["params"]] == [
            {"name": "a", "_meta": {"x/y": 1}},
            {"name": "a"},
        ]
        assert {
            name: first.headers.get(name) for name in ("mcp-session-id", "mcp-protocol-version", "mcp-name")
        } == {
            "mcp-session-id": "session-1",
            "mcp-protocol-version": LEGACY,
            "mcp-name": None,
        }


@ERAS
async def test_an_error_object_is_the_answer_whatever_the_status(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        status = request.message["params"]["arguments"]
        await peer.error(request, -32601 if status == 404 else -32602, status=status)

    async with linked(calling(era, script)) as (_, link):
        replies = [await call(link, status) for status in (200, 400, 404, 500)]

        codes = [json.loads(reply.error or b"{}")["code"] for reply in replies]
        assert codes == [-32602, -32602, -32601, -32602]


@ERAS
async def test_an_answer_may_come_on_a_stream_between_other_messages(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(b": hello\n\n")
        for method in ("progress", "message", "tools/list_changed", "resources/updated"):
            await peer.event(
                {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {"of": method}}
            )
        await peer.chunk(b"event: other\ndata: not for us\n\n")
        await peer.event(response(request))
        await peer.end_stream()

    heard = Heard()
    async with linked(calling(era, script), heard) as (server, link):
        replies = [await call(link), await call(link)]

        assert replies == [Reply(result=b'"ok"')] * 2
        assert heard.notifications[:2] == [
            ("notifications/tools/list_changed", b'{"of": "tools/list_changed"}'),
            ("notifications/resources/updated", b'{"of": "resources/updated"}'),
        ]
        assert len(server.seen("tools/call")) == 2


async def test_a_legacy_server_s_own_requests_are_answered_by_post() -> None:
    answers: asyncio.Queue[Any] = asyncio.Queue()

    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.event({"jsonrpc": "2.0", "id": "p", "method": "ping"})
        await peer.event({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {}})
        got = [await answers.get(), await answers.get()]
        await peer.event(response(request, got))
        await peer.end_stream()

    async def take(request: Request, peer: Peer) -> None:
        answers.put_nowait(request.message)
        await peer.answer(status=202)

    mcp = FakeMcp("legacy", faults={"tools/call": script, "answer": take})
    async with linked(mcp) as (_, link):
        reply = await call(link)

        assert sorted(json.loads(reply.result or b""), key=str) == [
            {"jsonrpc": "2.0", "id": "p", "result": {}},
            {"jsonrpc": "2.0", "id": 5, "error": {"code": -32601, "message": "Method not found"}},
        ]


# What servers get wrong


@ERAS
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":999999,"result":{}}', "not to this request", id="another id"),
        pytest.param(b'{"jsonrpc":"2.0","result":{}}', "not to this request", id="no id"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', "not to this request", id="a request"),
        pytest.param(b"<html>", "not a JSON-RPC message", id="a page"),
        pytest.param(b"", "not a JSON-RPC message", id="nothing"),
        pytest.param(b"[" * 100_000, "not a JSON-RPC message", id="a deep nest"),
    ],
)
async def test_an_answer_that_is_none_is_an_error(era: str, body: bytes, reason: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.answer(body)

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
async def test_a_stream_without_the_answer_is_an_error(era: str, event: str, reason: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.chunk(f"data: {event}\n\n".encode())
        await peer.end_stream()

    async with linked(calling(era, script)) as (server, link):
        with pytest.raises(ServerUnavailable, match=f"{reason}: unknown outcome"):
            await call(link)

        assert len(server.seen("tools/call")) == 1


@ERAS
async def test_ups_2_silence_is_a_timeout_and_other_calls_go_on(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.message["params"]["arguments"] == "hang":
            await peer.gone()
        else:
            await peer.result(request, "ok")

    async with linked(calling(era, script)) as (_, link):
        hanging = asyncio.ensure_future(call(link, "hang", timeout_s=0.3))
        others = [await call(link, n) for n in range(10)]

        with pytest.raises(CallTimedOut, match=r"within 0\.3 s"):
            await hanging
        assert others == [Reply(result=b'"ok"')] * 10


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

        assert str(caught.value) == "the server answered with status 500 (internal server error)"


@ERAS
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (301, "the server answered with status 301 (a redirect, which is not followed)"),
        (401, "the server answered with status 401 (unauthorized)"),
        (403, "the server answered with status 403 (forbidden)"),
        (429, "the server answered with status 429 (too many requests)"),
        (503, "the server answered with status 503 (service unavailable)"),
        (202, "the server answered with status 202 (accepted)"),
        (799, "the server answered with status 799 (unknown)"),
    ],
)
async def test_a_status_that_is_no_answer_is_an_error_and_the_link_lives_on(
    era: str, status: int, expected: str
) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.message["params"]["arguments"] == "fail":
            await peer.answer(status=status, headers=["Location: http://127.0.0.1:1/"])
        else:
            await peer.result(request, "ok")

    heard = Heard()
    async with linked(calling(era, script), heard) as (_, link):
        with pytest.raises(ServerUnavailable) as caught:
            await call(link, "fail")

        assert (str(caught.value), caught.value.data) == (expected, {"status": status})
        assert (await call(link), heard.closings) == (Reply(result=b'"ok"'), [])


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
            await call(link)

        assert sent < 20_000_000


@ERAS
async def test_ups_14_a_call_whose_connection_dies_was_sent_once_and_says_so(era: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        peer.reset()

    async with linked(calling(era, script)) as (server, link):
        with pytest.raises(ServerUnavailable, match="unknown outcome") as caught:
            await call(link)

        assert (caught.value.data, len(server.seen("tools/call"))) == ({"outcome": "unknown"}, 1)


@ERAS
@pytest.mark.parametrize("how", ["timeout", "cancellation"])
async def test_a_call_given_up_closes_its_connection_and_tells_a_legacy_server(era: str, how: str) -> None:
    has_arrived, has_ended, is_told = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        has_arrived.set()
        await peer.gone()
        has_ended.set()

    async def take(request: Request, peer: Peer) -> None:
        is_told.set()
        await peer.answer(status=202)

    mcp = FakeMcp(era, faults={"tools/call": script, "notifications/cancelled": take})
    async with linked(mcp) as (server, link):
        task = asyncio.ensure_future(call(link, timeout_s=0.2 if how == "timeout" else 5))
        await has_arrived.wait()
        if how == "cancellation":
            task.cancel()
        with pytest.raises(CallTimedOut if how == "timeout" else asyncio.CancelledError):
            await task

        await has_ended.wait()
        if era == "legacy":
            await is_told.wait()
        told = [request.message["params"] for request in server.seen("notifications/cancelled")]
        [number] = [request.message["id"] for request in server.seen("tools/call")]
        assert told == ([{"requestId": number}] if era == "legacy" else [])


@ERAS
async def test_ssr_7_nothing_of_a_caller_reaches_the_server_but_what_mirrors_the_body(era: str) -> None:
    async with linked(FakeMcp(era)) as (server, link):
        for _ in range(1000):
            await call(link)
        if era == "modern":
            for name in ("Authorization", "Cookie", "X-Anything", "Mcp-Session-Id", "Mcp-Method", "Host"):
                with pytest.raises(ValueError, match=name):
                    await link.request("tools/call", {}, timeout_s=5, headers={name: "canary"})
            with pytest.raises(ValueError, match="not a header"):
                await link.request("tools/call", {}, timeout_s=5, headers={"Mcp-Name": "a\r\nCookie: canary"})

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
            await peer.answer(body.replace("/", "\\/").replace('"result": null, ', "").encode())
        elif kind == "status":
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": text}}
            await peer.answer(json.dumps(error).encode(), status=503)
        else:
            await peer.result(request, {"isError": kind == "failed", "content": text})

    async with linked(calling(era, script), auth_ref="TOKEN") as (_, link):
        replies = [await call(link, kind) for kind in ("error", "escaped", "failed")]
        with pytest.raises(ServerUnavailable, match=r"no: \[redacted\], \[redacted\]") as caught:
            await call(link, "status")

        assert [b"sk-canary" in (reply.error or reply.result or b"") for reply in replies] == [False] * 3
        assert [b"[redacted]" in (reply.error or reply.result or b"") for reply in replies] == [True] * 3
        assert SECRET not in str(caught.value)
        assert SECRET.encode() in ((await call(link, "fine")).result or b"")


# Sessions and ends


async def test_ups_7_a_lost_session_is_opened_again_once_for_a_hundred_calls() -> None:
    mcp = FakeMcp("legacy")
    heard = Heard()
    async with linked(mcp, heard) as (server, link):
        await call(link)
        mcp.sessions.clear()
        replies = await asyncio.gather(*(call(link, n) for n in range(100)))

        assert replies == [echoed(n) for n in range(100)]
        assert len(server.seen("initialize")) == 2
        executed = [
            request
            for request in server.seen("tools/call")
            if request.headers["mcp-session-id"] == "session-2"
        ]
        assert len(executed) == 100
        assert (heard.notifications, heard.closings) == ([("notifications/tools/list_changed", b"{}")], [])


@pytest.mark.parametrize(
    ("status", "body", "is_lost"),
    [
        pytest.param(404, b"", True, id="404"),
        pytest.param(404, b'{"id":null,"error":{"code":-32001,"message":"x"}}', True, id="404 with an error"),
        pytest.param(
            400, b'{"id":null,"error":{"code":-32000,"message":"No valid session ID"}}', True, id="400"
        ),
        pytest.param(400, b'{"id":null,"error":{"code":-32000,"message":"bad"}}', False, id="another 400"),
        pytest.param(500, b"no session", False, id="500"),
    ],
)
async def test_how_servers_say_that_a_session_is_lost(status: int, body: bytes, is_lost: bool) -> None:
    async def script(request: Request, peer: Peer) -> None:
        if request.headers["mcp-session-id"] == "session-1":
            await peer.answer(body, status=status)
        else:
            await peer.result(request, "ok")

    async with linked(calling("legacy", script)) as (server, link):
        if is_lost:
            assert await call(link) == Reply(result=b'"ok"')
        else:
            with pytest.raises(ServerUnavailable, match=f"status {status}"):
                await call(link)

        assert len(server.seen("initialize")) == 1 + is_lost


async def test_a_session_that_is_lost_again_at_once_is_not_chased() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.answer(status=404)

    async with linked(calling("legacy", script)) as (server, link):
        with pytest.raises(ServerUnavailable, match="status 404"):
            await call(link)

        assert (len(server.seen("initialize")), len(server.seen("tools/call"))) == (2, 2)


async def test_a_session_that_cannot_be_opened_again_ends_the_link_once() -> None:
    mcp = FakeMcp("legacy")
    heard = Heard()
    async with linked(mcp, heard) as (_, link):

        async def refuse(request: Request, peer: Peer) -> None:
            await peer.answer(status=401)

        mcp.sessions.clear()
        mcp.faults |= {"initialize": refuse, "server/discover": refuse}
        done = await asyncio.gather(*(call(link) for _ in range(10)), return_exceptions=True)

        assert {type(one) for one in done} == {ServerUnavailable}
        [reason] = heard.closings
        assert "session was lost" in reason
        assert "wants authorization" in reason
        with pytest.raises(ServerUnavailable, match="session was lost"):
            await call(link)


@pytest.mark.parametrize(("was", "now"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_server_replaced_by_one_of_the_other_era_ends_the_link(was: str, now: str) -> None:
    async def refuse(request: Request, peer: Peer) -> None:
        if request.message["params"].get("arguments") == "bad":
            await peer.answer(status=400)
        else:
            await peer.result(request, "ok")

    async def not_now(request: Request, peer: Peer) -> None:
        await peer.error(request, -32602, status=400)

    mcp = calling(was, refuse)
    heard = Heard()
    async with linked(mcp, heard) as (server, link):
        with pytest.raises(ServerUnavailable, match="status 400"):
            await call(link, "bad")  # wrong by itself: the server is asked, and the link stays
        asked = len(server.seen("ping" if was == "legacy" else "server/discover"))
        assert (await call(link), heard.closings) == (Reply(result=b'"ok"'), [])

    other = FakeMcp(was)
    async with linked(other, heard) as (_, link):
        other.eras = (now,)
        other.faults |= {"tools/call": not_now, "ping": not_now}
        with pytest.raises(ServerUnavailable, match="no longer speaks"):
            await call(link)
        assert (asked, len(heard.closings)) == (1 if was == "legacy" else 2, 1)


async def test_a_call_waits_for_a_new_session_only_until_its_own_deadline() -> None:
    mcp = FakeMcp("legacy")
    async with linked(mcp) as (_, link):
        mcp.sessions.clear()
        mcp.faults["initialize"] = hang

        with pytest.raises(CallTimedOut):
            await call(link, timeout_s=0.2)


@ERAS
async def test_a_server_that_is_gone_ends_the_link_once(era: str) -> None:
    heard = Heard()
    async with FaultyHttp(FakeMcp(era)) as server:
        link = await open_link(record_for(server.url), heard)
        await call(link)
    done = []
    while not heard.closings:  # the first may still meet the end of a pooled connection
        done += await asyncio.gather(*(call(link) for _ in range(3)), return_exceptions=True)

    assert {type(one) for one in done} == {ServerUnavailable}
    [reason] = heard.closings
    assert "connection refused" in reason
    await link.aclose()


@ERAS
async def test_a_refused_connection_does_not_end_a_link_that_serves_others(era: str) -> None:
    release = asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        await release.wait()
        await peer.result(request, "ok")

    heard = Heard()
    server = FaultyHttp(calling(era, script))
    async with asyncio.timeout(10), server:
        link = await open_link(record_for(server.url), heard)
        first = asyncio.ensure_future(call(link))
        while not server.seen("tools/call"):
            await asyncio.sleep(0)
        await server.stop_listening()
        with pytest.raises(ServerUnavailable, match="connection refused"):
            await call(link)
        release.set()

        assert (await first, heard.closings) == (Reply(result=b'"ok"'), [])
        await link.aclose()


@ERAS
async def test_a_link_closed_under_a_call_fails_it_without_a_word_to_the_listener(era: str) -> None:
    heard = Heard()
    async with linked(calling(era, hang), heard) as (server, link):
        task = asyncio.ensure_future(call(link))
        while not server.seen("tools/call"):
            await asyncio.sleep(0)
        await link.aclose()

        with pytest.raises(ServerUnavailable):
            await task
        with pytest.raises(ServerUnavailable, match="was closed"):
            await call(link)
        assert heard.closings == []


@ERAS
async def test_many_calls_over_few_connections_all_get_their_own_answer(era: str) -> None:
    async with linked(FakeMcp(era), limits=HttpLimits(max_connections=4)) as (server, link):
        replies = await asyncio.gather(*(call(link, n) for n in range(200)))

        assert replies == [echoed(n) for n in range(200)]
        assert server.connections == 4
