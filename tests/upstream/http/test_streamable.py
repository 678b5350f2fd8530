"""Links over HTTP in both eras: what is sent, and what is heard."""

import asyncio
import json
from typing import Any

import pytest

from tests.upstream.faulty_http import LEGACY, MODERN, FakeMcp, Peer, Request
from tests.upstream.http_links import (
    OK,
    RecordingListener,
    call,
    calling,
    echoed,
    linked,
    params,
    response,
)

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@ERAS
async def test_calls_share_connections_and_have_ids_of_their_own(era: str) -> None:
    async with linked(FakeMcp(era)) as (server, link):
        responses = [await call(link, n) for n in range(5)]
        responses += await asyncio.gather(*(call(link, n) for n in range(5, 20)))

        assert responses == [echoed(n) for n in range(20)]
        assert len({request.message["id"] for request in server.seen("tools/call")}) == 20
        assert server.connections <= 16


async def test_a_modern_request_carries_its_era_in_headers_and_envelope() -> None:
    async with linked(FakeMcp()) as (server, link):
        headers = {"Mcp-Name": "a tool", "Mcp-Param-Region": "eu"}
        meta = {"progressToken": 7, "x/y": 1, "io.modelcontextprotocol/clientInfo": {"name": "theirs"}}
        await link.request("tools/call", params(name="a tool", _meta=meta), timeout_s=60, headers=headers)

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


@pytest.mark.requirement("002-091")
async def test_a_legacy_request_carries_its_session_and_no_envelope() -> None:
    async with linked(FakeMcp("legacy")) as (server, link):
        meta = {"x/y": 1, "io.modelcontextprotocol/protocolVersion": MODERN}
        await link.request(
            "tools/call", params(name="a", _meta=meta), timeout_s=60, headers={"Mcp-Name": "a"}
        )
        await link.request("tools/call", params(name="a", _meta={"progressToken": 7}), timeout_s=60)

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
        responses = [await call(link, status) for status in (200, 400, 404, 500)]

        codes = [json.loads(rpc.error or b"{}")["code"] for rpc in responses]
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

    received = RecordingListener()
    async with linked(calling(era, script), received) as (server, link):
        responses = [await call(link), await call(link)]

        assert responses == [OK] * 2
        assert received.notifications[:2] == [
            ("notifications/tools/list_changed", b'{"of": "tools/list_changed"}'),
            ("notifications/resources/updated", b'{"of": "resources/updated"}'),
        ]
        assert len(server.seen("tools/call")) == 2


async def test_chd_11_a_legacy_server_s_own_requests_are_answered_by_post() -> None:
    responses: asyncio.Queue[Any] = asyncio.Queue()

    async def script(request: Request, peer: Peer) -> None:
        await peer.open_stream()
        await peer.event({"jsonrpc": "2.0", "id": "p", "method": "ping"})
        await peer.event({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {}})
        got = [await responses.get(), await responses.get()]
        await peer.event({**response(request), "result": {"got": got}})
        await peer.end_stream()

    async def take(request: Request, peer: Peer) -> None:
        responses.put_nowait(request.message)
        await peer.respond(status=202)

    mcp = FakeMcp("legacy", faults={"tools/call": script, "answer": take})
    async with linked(mcp) as (_, link):
        rpc = await call(link)

        answers_by_id = {one["id"]: one for one in json.loads(rpc.result or b"")["got"]}
        assert answers_by_id["p"] == {"jsonrpc": "2.0", "id": "p", "result": {}}
        assert answers_by_id[5]["error"]["code"] == -32601
