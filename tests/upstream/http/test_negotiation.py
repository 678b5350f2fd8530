"""How a link over HTTP finds out what its server is."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.certificates import Authority
from tests.upstream.faulty_http import LEGACY, MODERN, FakeMcp, FaultyHttp, Peer, Request, Script
from tests.upstream.http_links import (
    SECRET,
    RecordingListener,
    hang,
    linked,
    open_link,
    opener,
    params,
    record_for,
)
from toolgate import __version__
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import RpcResponse, StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.streamable import StreamableConnector

pytestmark = pytest.mark.anyio

SERVER_INFO = b'{"name": "fake", "version": "1"}'


def saying(status: int, body: bytes = b"", kind: str = "application/json", *headers: str) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(body, status=status, kind=kind, headers=headers)

    return script


def refusing(code: int, status: int = 200, **more: Any) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.error(request, code, status=status, **more)

    return script


def resulting(result: Mapping[str, Any]) -> Script:
    async def script(request: Request, peer: Peer) -> None:
        await peer.result(request, result)

    return script


async def test_a_modern_server_is_greeted_with_one_request() -> None:
    async with linked(FakeMcp("modern", "legacy")) as (server, link):
        info = link.server_info

        assert (info.revision, info.version, info.instructions, link.pid) == (
            "modern",
            MODERN,
            "be kind",
            None,
        )
        [greeting] = server.requests
        assert greeting.rpc == "server/discover"
        assert {
            name: greeting.headers[name] for name in ("mcp-protocol-version", "mcp-method", "accept")
        } == {
            "mcp-protocol-version": MODERN,
            "mcp-method": "server/discover",
            "accept": "application/json, text/event-stream",
        }
        assert greeting.message["params"]["_meta"] == {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "toolgate", "version": __version__},
        }


async def test_a_legacy_server_gets_the_handshake_and_its_session_back() -> None:
    async with linked(FakeMcp("legacy")) as (server, link):
        assert (link.server_info.revision, link.server_info.version) == ("legacy", LEGACY)
        assert [request.rpc for request in server.requests] == [
            "server/discover",
            "initialize",
            "notifications/initialized",
        ]
        _, handshake, initialized = server.requests
        assert ("mcp-protocol-version" in handshake.headers, "mcp-session-id" in handshake.headers) == (
            False,
            False,
        )
        assert (initialized.headers["mcp-protocol-version"], initialized.headers["mcp-session-id"]) == (
            LEGACY,
            "session-1",
        )
        assert initialized.message == {
            "jsonrpc": "2.0",
            "method": "notifications/initialized",
            "params": {},
        }


@pytest.mark.parametrize(
    "discover",
    [
        pytest.param(saying(400, b"Bad Request: no session"), id="400 with words"),
        pytest.param(saying(404), id="404"),
        pytest.param(saying(405), id="405"),
        pytest.param(saying(406), id="406"),
        pytest.param(saying(415), id="415"),
        pytest.param(saying(200, b"<html>hello</html>", "text/html"), id="a page"),
        pytest.param(saying(200, b"[]"), id="a list"),
        pytest.param(refusing(-32601), id="method not found"),
        pytest.param(refusing(-32601, 500), id="method not found, as a fault of the server"),
        pytest.param(refusing(-32022, 400, data={"supported": [LEGACY]}), id="-32022 with legacy versions"),
        pytest.param(refusing(-32022, 400), id="-32022 without versions"),
        pytest.param(
            resulting({"supportedVersions": [LEGACY], "capabilities": {}}), id="only legacy versions"
        ),
        pytest.param(resulting({"anything": "else"}), id="another result"),
    ],
)
async def test_what_is_no_proof_of_the_modern_era_leads_to_the_handshake(discover: Script) -> None:
    async with linked(FakeMcp("legacy", faults={"server/discover": discover})) as (_, link):
        rpc = await link.request("tools/call", params(arguments={"a": 1}), timeout_s=60)

        assert (link.server_info.revision, rpc) == ("legacy", RpcResponse(result=b'{"echo": {"a": 1}}'))


@pytest.mark.parametrize(
    ("discover", "reason"),
    [
        pytest.param(saying(401), "requires authorization", id="401"),
        pytest.param(saying(403), "requires authorization", id="403"),
        pytest.param(saying(429), "status 429", id="429"),
        pytest.param(saying(500, b"oops", "text/plain"), "status 500", id="500"),
        pytest.param(saying(503), "status 503", id="503"),
        pytest.param(saying(302), "a redirect, which the gateway does not follow", id="302"),
        pytest.param(
            refusing(-32022, 400, data={"supported": ["2031-01-01"]}),
            "it speaks `2031-01-01`",
            id="a newer server",
        ),
        pytest.param(
            resulting({"supportedVersions": ["2031-01-01"], "capabilities": {}}),
            "it speaks `2031-01-01`",
            id="a newer server that discovers",
        ),
    ],
)
async def test_what_proves_nothing_ends_the_start(discover: Script, reason: str) -> None:
    async with FaultyHttp(FakeMcp("legacy", faults={"server/discover": discover})) as server:
        with pytest.raises(StartFailed, match=reason) as caught:
            await open_link(record_for(server.url))

        assert [request.rpc for request in server.requests] == ["server/discover"]
        assert not caught.value.fatal


async def test_a_connection_that_breaks_proves_nothing() -> None:
    async def script(request: Request, peer: Peer) -> None:
        peer.reset()

    async with FaultyHttp(script) as server:
        with pytest.raises(StartFailed, match="closed the connection"):
            await open_link(record_for(server.url))

        assert len(server.requests) == 1


async def test_ups_15_a_server_that_is_silent_on_discover_gets_a_handshake_after_two_seconds() -> None:
    async with FaultyHttp(FakeMcp("legacy", faults={"server/discover": hang})) as server:
        began = asyncio.get_running_loop().time()
        link = await open_link(record_for(server.url))
        took = asyncio.get_running_loop().time() - began
        await link.aclose()

        assert link.server_info.revision == "legacy"
        assert took < 2.5


async def test_ups_15_a_remembered_revision_is_not_probed_again() -> None:
    async with FaultyHttp(FakeMcp("legacy", faults={"server/discover": hang})) as server:
        link = await open_link(record_for(server.url), known_revision="legacy")
        await link.aclose()

        assert [request.rpc for request in server.requests] == [
            "initialize",
            "notifications/initialized",
            "DELETE",
        ]


@pytest.mark.parametrize(("known", "now"), [("legacy", "modern"), ("modern", "legacy")])
async def test_a_server_that_has_changed_its_era_is_probed_again(known: Revision, now: Revision) -> None:
    async with FaultyHttp(FakeMcp(now)) as server:
        link = await open_link(record_for(server.url), known_revision=known)
        await link.aclose()

        assert link.server_info.revision == now


@pytest.mark.parametrize(
    ("initialize", "reason"),
    [
        pytest.param(saying(401), "requires authorization", id="401"),
        pytest.param(saying(404), "rejected `initialize`: status 404", id="404"),
        pytest.param(saying(200, b"{}"), "to another request", id="an empty object"),
        pytest.param(
            resulting({"protocolVersion": "1999-01-01"}),
            "it speaks `1999-01-01`",
            id="an unknown version",
        ),
        pytest.param(
            resulting({"protocolVersion": 5}),
            "is not an initialize result",
            id="a version that is not a string",
        ),
    ],
)
async def test_a_failed_handshake_says_why(initialize: Script, reason: str) -> None:
    async with FaultyHttp(FakeMcp("legacy", faults={"initialize": initialize})) as server:
        with pytest.raises(StartFailed, match=reason):
            await open_link(record_for(server.url))


async def test_a_session_id_that_could_break_a_request_is_rejected() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.result(request, {"protocolVersion": LEGACY}, headers=["Mcp-Session-Id: a b"])

    async with FaultyHttp(FakeMcp("legacy", faults={"initialize": script})) as server:
        with pytest.raises(StartFailed, match="session id is not visible ASCII"):
            await open_link(record_for(server.url))


async def test_a_rejected_initialized_is_a_failed_start() -> None:
    async with FaultyHttp(FakeMcp("legacy", faults={"notifications/initialized": saying(400)})) as server:
        with pytest.raises(StartFailed, match="`notifications/initialized` with status 400"):
            await open_link(record_for(server.url))


@pytest.mark.parametrize("ttl", [-1, 2**63, 2**70, "soon", None])
@pytest.mark.parametrize("date", ["Thu, 01 Jan 1970 00:00:00 GMT", "never"])
async def test_ups_16_odd_times_in_a_discovery_do_no_harm(ttl: object, date: str) -> None:
    async def script(request: Request, peer: Peer) -> None:
        result = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "ttlMs": ttl, "cacheScope": 7}
        await peer.result(request, result, headers=[f"Date: {date}", f"Expires: {date}"])

    async with linked(FakeMcp(faults={"server/discover": script})) as (_, link):
        assert link.server_info.revision == "modern"


@pytest.mark.parametrize(
    ("url", "headers", "reason"),
    [
        pytest.param("ftp://x/", {}, "scheme `ftp`", id="SSR-4 a scheme"),
        pytest.param("http://me:pass@x/", {}, "user information", id="SSR-4 credentials"),
        pytest.param("http://169.254.169.254/mcp", {}, "link-local", id="SSR-1 cloud metadata"),
        pytest.param("http://${ENV:NOWHERE}/", {}, "`NOWHERE` is not set", id="a missing variable"),
        pytest.param("http://x/", {"Host": "y"}, "`Host` is set by the gateway", id="a reserved header"),
        pytest.param("http://x/", {"Mcp-Name": "y"}, "`Mcp-Name` is set by the gateway", id="an MCP header"),
        pytest.param("http://x/", {"A b": "y"}, "`A b` cannot be sent", id="no header name"),
        pytest.param("http://x/", {"X": "pass\r\nY: 1"}, "`X` cannot be sent", id="a line end in a value"),
    ],
)
async def test_a_record_that_can_never_work_says_so_and_fails_for_good(
    url: str, headers: dict[str, str], reason: str
) -> None:
    with pytest.raises(StartFailed, match=reason) as caught:
        await open_link(record_for(url, headers))

    assert caught.value.fatal
    assert "pass" not in str(caught.value)


@pytest.mark.requirement("002-008", "002-043")
async def test_the_record_s_own_headers_and_secrets_go_with_every_request() -> None:
    async with FaultyHttp(FakeMcp("legacy")) as server:
        record = record_for(server.url, {"X-Team": "a", "User-Agent": "me"}, auth_ref="TOKEN")
        link = await open_link(record)
        await link.request("tools/call", params(arguments={}), timeout_s=60)
        await link.aclose()

        sent = {
            tuple(request.headers[name] for name in ("x-team", "user-agent", "authorization"))
            for request in server.requests
        }
        assert sent == {("a", "me", f"Bearer {SECRET}")}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_ssr_2_a_redirect_takes_no_credential_anywhere(status: int) -> None:
    async with (
        FaultyHttp(FakeMcp()) as sentinel,
        FaultyHttp(saying(status, b"", "", f"Location: {sentinel.url}")) as server,
    ):
        with pytest.raises(StartFailed, match="a redirect, which the gateway does not follow"):
            await open_link(record_for(server.url, auth_ref="TOKEN"))

        assert sentinel.connections == 0


async def test_ssr_3_a_redirect_to_itself_ends_at_once() -> None:
    async def script(request: Request, peer: Peer) -> None:
        await peer.respond(status=307, headers=["Location: /mcp"])

    async with FaultyHttp(script) as server:
        with pytest.raises(StartFailed, match="a redirect, which the gateway does not follow"):
            await open_link(record_for(server.url))

        assert len(server.requests) == 1


async def test_ssr_5_the_metadata_a_401_points_to_is_not_fetched() -> None:
    async with FaultyHttp(FakeMcp()) as sentinel:
        challenge = f'WWW-Authenticate: Bearer resource_metadata="{sentinel.url}"'
        async with FaultyHttp(saying(401, b"", "", challenge)) as server:
            with pytest.raises(StartFailed, match="requires authorization"):
                await open_link(record_for(server.url))

        assert sentinel.connections == 0


async def test_sec_9_a_rejection_that_repeats_the_credential_is_redacted() -> None:
    refusal = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": f"bad {SECRET}"}})
    async with FaultyHttp(saying(400, refusal.encode())) as server:
        with pytest.raises(StartFailed, match=r"bad \[redacted\]") as caught:
            await open_link(record_for(server.url, auth_ref="TOKEN"))

        assert SECRET not in str(caught.value)


async def test_a_start_without_any_response_times_out() -> None:
    async with FaultyHttp(hang) as server:
        with pytest.raises(StartFailed, match=r"no response within 0\.2 s") as caught:
            await opener(start_timeout_s=0.2)(
                record_for(server.url), RecordingListener(), known_revision=None
            )

        assert caught.value.state == "list_timeout"


async def test_a_start_that_is_cancelled_leaves_no_connection() -> None:
    has_arrived, has_ended = asyncio.Event(), asyncio.Event()

    async def script(request: Request, peer: Peer) -> None:
        has_arrived.set()
        await peer.gone()
        has_ended.set()

    async with asyncio.timeout(60), FaultyHttp(script) as server:
        task = asyncio.ensure_future(open_link(record_for(server.url)))
        await has_arrived.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        await has_ended.wait()


async def test_ups_12_a_server_is_trusted_by_the_authorities_of_the_system_or_the_operator(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    async with FaultyHttp(FakeMcp(), tls=authority.server_context(["127.0.0.1"], days=1)) as server:
        with pytest.raises(StartFailed, match="certificate is not trusted"):
            await open_link(record_for(server.url))
        trusting = StreamableConnector(
            EndpointResolver(
                Secrets({}),
                Egress(allow_private=True),
                tls=ssl.create_default_context(cafile=authority.path),
            )
        )
        link = await trusting(record_for(server.url), RecordingListener(), known_revision=None)
        rpc = await link.request("tools/call", params(arguments=1), timeout_s=60)
        await link.aclose()

        assert rpc == RpcResponse(result=b'{"echo": 1}')


async def test_a_record_without_an_address_fails_for_good() -> None:
    with pytest.raises(StartFailed, match="no `http` part") as caught:
        await open_link(ServerRecord(server_id="x", transport="streamable_http"))

    assert caught.value.fatal


async def test_a_closed_link_takes_leave_of_its_session_once() -> None:
    received = RecordingListener()
    async with linked(FakeMcp("legacy"), received) as (server, link):
        await link.aclose()
        await link.aclose()

        assert [request.headers["mcp-session-id"] for request in server.seen("DELETE")] == ["session-1"]
        assert received.closings == []


async def test_leaving_does_not_wait_for_a_server_that_hangs() -> None:
    async with linked(FakeMcp("legacy", faults={"DELETE": hang})) as (_, link):
        await link.aclose()
