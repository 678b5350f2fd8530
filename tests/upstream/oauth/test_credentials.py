"""Client credentials: where the gateway requests tokens, as which client, and how it uses them."""

import asyncio
from typing import Any

import pytest

from tests.upstream.faulty_http import FaultyHttp, Peer, Request
from tests.upstream.http_links import RecordingListener, call, echoed
from tests.upstream.oauth.authority import FETCHER, NOW_S, SECRET, OAuthWorld, authorizer, open_oauth_world
from toolgate.errors import ServerUnavailable
from toolgate.upstream.connection.contract import ServerConnection, StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.streamable import StreamableConnection, StreamableConnector
from toolgate.upstream.oauth.authority import OAuthToken, covers_url
from toolgate.upstream.oauth.connector import MIN_GAP_S, Authorizer, OAuthConnector

pytestmark = pytest.mark.anyio


def opener(min_gap_s: float = MIN_GAP_S) -> OAuthConnector:
    inner = StreamableConnector(EndpointResolver(Secrets({}), Egress(allow_private=True)))
    return OAuthConnector(inner, authorizer(), min_gap_s)


async def open_link(world: OAuthWorld) -> ServerConnection:
    return await opener()(world.record(), RecordingListener(), known_revision=None)


async def refusal(world: OAuthWorld, **fields: Any) -> StartFailed:
    with pytest.raises(StartFailed) as refused:
        await authorizer().token(world.record(**fields))
    return refused.value


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_server_gets_the_token_that_the_gateway_requested(era: str) -> None:
    async with open_oauth_world(era) as world:
        link = await open_link(world)
        rpc = await call(link, 7)
        await link.aclose()

    assert rpc == echoed(7)
    assert world.authority.clients == [("gateway", SECRET)]
    assert world.authority.forms == [{"grant_type": "client_credentials", "resource": world.serving.url}]
    assert {request.headers["authorization"] for request in world.serving.requests if request.body} == {
        "Bearer token-1-of-many"
    }


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_renewed_token_is_shown_on_the_same_link_and_session(era: str) -> None:
    async with open_oauth_world(era) as world:
        link = await open_link(world)
        assert isinstance(link, StreamableConnection)
        await call(link, 1)
        world.authority.valid = {"another-token"}
        link.authorize("another-token")
        rpc = await call(link, 2)
        await link.aclose()

    assert rpc == echoed(2)
    assert len(world.serving.seen("initialize")) == (1 if era == "legacy" else 0)


async def test_a_token_that_was_renewed_is_not_shown_when_the_server_quotes_it() -> None:
    async def quote(request: Request, peer: Peer) -> None:
        shown = request.headers["authorization"]
        await peer.error(request, -32000, data=f"you sent {shown}")

    async with open_oauth_world() as world:
        world.mcp.faults["tools/call"] = quote
        link = await open_link(world)
        assert isinstance(link, StreamableConnection)
        first = await call(link)
        world.authority.valid = {"another-token"}
        link.authorize("another-token")
        second = await call(link)
        await link.aclose()

    assert b"redacted" in (first.error or b"")
    assert b"token-1" not in (first.error or b"")
    assert b"redacted" in (second.error or b"")
    assert b"another-token" not in (second.error or b"")


async def test_a_server_that_rejects_a_token_fails_the_call_and_nothing_is_sent_twice() -> None:
    async with open_oauth_world() as world:
        link = await open_link(world)
        world.authority.valid.clear()
        with pytest.raises(ServerUnavailable, match="401"):
            await call(link)
        await link.aclose()

    assert len(world.serving.seen("tools/call")) == 1


async def test_a_token_that_was_revoked_is_replaced_without_another_link() -> None:
    async with open_oauth_world("legacy") as world:
        link = await opener(min_gap_s=0.0)(world.record(), RecordingListener(), known_revision=None)
        world.authority.valid.clear()
        with pytest.raises(ServerUnavailable, match="401"):
            await call(link)
        while len(world.authority.valid) == 0 or not await _is_served(link):
            await asyncio.sleep(0)
        await link.aclose()

    assert len(world.authority.forms) >= 2
    assert len(world.serving.seen("initialize")) == 1


async def _is_served(link: ServerConnection) -> bool:
    try:
        return await call(link) == echoed()
    except ServerUnavailable:
        return False


async def test_without_oauth_in_its_record_a_server_gets_a_plain_link() -> None:
    async with open_oauth_world() as world:
        world.authority.valid = {""}
        record = world.record()
        assert record.http is not None
        plain = type(record)(
            server_id="there", transport="streamable_http", http=type(record.http)(url=world.serving.url)
        )
        link = await opener()(plain, RecordingListener(), known_revision=None)
        await link.aclose()

    assert world.issuing.connections == 0


async def test_cve_2026_104850_credentials_go_to_the_issuer_of_the_record_and_to_no_other() -> None:
    async with open_oauth_world() as world, FaultyHttp(world.authority) as elsewhere:
        assert world.resource is not None
        world.resource["authorization_servers"] = [f"http://127.0.0.1:{elsewhere.port}"]
        refused = await refusal(world)

    assert "does not accept tokens of its record's `issuer`" in str(refused)
    assert (elsewhere.connections, world.authority.clients) == (0, [])


async def test_an_authorization_server_must_have_the_expected_issuer() -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = {"issuer": "https://other.example"}
        refused = await refusal(world)

    assert "names another issuer" in str(refused)
    assert world.authority.clients == []


async def test_ssr_1_an_authorization_server_may_not_send_the_gateway_where_it_does_not_connect() -> None:
    for endpoint in ("http://10.0.0.1/token", "https://169.254.169.254/token", "file:///etc/passwd"):
        async with open_oauth_world() as world:
            world.authority.metadata = {"token_endpoint": endpoint}
            refused = await refusal(world)

        assert "an address that is not allowed" in str(
            refused
        ) or "the request to the authorization server failed" in str(refused)


async def test_ssr_1_the_allow_list_holds_for_authorization_servers_too() -> None:
    async with open_oauth_world() as world:
        strict = Authorizer(
            Secrets({"client-secret": SECRET}),
            type(FETCHER)(Egress(allow_private=True, allowed_hosts=["only.example"])),
            clock_s=lambda: NOW_S,
        )
        with pytest.raises(StartFailed, match="allowed_upstream_hosts"):
            await strict.token(world.record())

        assert world.issuing.connections == 0


async def test_ssr_5_no_address_in_a_401_is_requested_even_if_the_record_has_oauth() -> None:
    async def challenge(request: Request, peer: Peer) -> None:
        named = f'Bearer resource_metadata="http://127.0.0.1:{sentinel.port}/"'
        await peer.respond(b"", status=401, headers=[f"WWW-Authenticate: {named}"])

    async with open_oauth_world() as world, FaultyHttp(world.authority) as sentinel:
        world.mcp.faults["server/discover"] = challenge
        with pytest.raises(StartFailed, match="requires authorization"):
            await open_link(world)

        assert sentinel.connections == 0


async def test_a_token_is_not_sent_unencrypted_beyond_this_machine() -> None:
    async with open_oauth_world() as world:
        refused = await refusal(world, url="http://mcp.example/mcp")

    assert "must be reached by `https`" in str(refused)
    assert world.authority.clients == []


async def test_a_server_may_not_speak_for_another() -> None:
    async with open_oauth_world() as world:
        assert world.resource is not None
        world.resource["resource"] = "https://bank.example/mcp"
        refused = await refusal(world)

    assert "another server" in str(refused)
    assert world.authority.clients == []


async def test_a_server_that_says_nothing_is_named_by_its_url_without_the_query() -> None:
    async with open_oauth_world() as world:
        world.resource = None
        await authorizer().token(world.record(url=f"{world.serving.url}?tenant=a", scopes=("read", "write")))

    (form,) = world.authority.forms
    assert (form["resource"], form["scope"]) == (world.serving.url, "read write")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        ("", "/.well-known/openid-configuration"),
        ("/tenant", "/.well-known/oauth-authorization-server/tenant"),
        ("/tenant", "/.well-known/openid-configuration/tenant"),
        ("/tenant", "/tenant/.well-known/openid-configuration"),
    ],
)
async def test_metadata_is_found_in_every_place_the_standards_name(path: str, place: str) -> None:
    async with open_oauth_world() as world:
        root = world.authority.issuer
        world.authority.place, world.authority.issuer, world.resource = place, root + path, None
        world.authority.metadata = {"token_endpoint": f"{root}/token"}
        token = await authorizer().token(world.record())

    assert token == OAuthToken(access="token-1-of-many", expires_at_s=NOW_S + 3600, lifetime_s=3600)


async def test_a_client_proves_itself_the_way_the_authorization_server_takes() -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        await authorizer().token(world.record())

        world.authority.metadata = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}
        refused = await refusal(world)

    assert (world.authority.clients, refused.fatal) == ([("gateway", SECRET)], True)
    assert world.authority.forms[0]["client_secret"] == SECRET


@pytest.mark.parametrize(
    ("response", "content"),
    [
        ({"token_type": "DPoP"}, "another type"),
        ({"access_token": ""}, "cannot be sent"),
        ({"access_token": "a\r\nX: y"}, "cannot be sent"),
        ({"access_token": "${ENV:HOME}"}, "cannot be sent"),
        ({"access_token": "x" * 20_000}, "cannot be sent"),
        ({"access_token": 7}, "holds no token"),
        ({"expires_in": "soon"}, "holds no token"),
        ({"refresh_token": "a\nb"}, "cannot be sent"),
    ],
)
async def test_a_response_without_a_token_is_rejected_and_not_shown(
    response: dict[str, Any], content: str
) -> None:
    async with open_oauth_world() as world:
        world.authority.response = response
        refused = await refusal(world)

    assert content in str(refused)
    assert "token-1" not in str(refused)


@pytest.mark.parametrize(
    ("code", "content", "is_fatal"),
    [
        ("invalid_client", "rejected the request: invalid_client", True),
        ("temporarily_unavailable", "rejected the request: temporarily_unavailable", False),
        ("Your secret was s3cret/of", "rejected the request without an error code", False),
    ],
)
async def test_a_rejection_is_reported_by_its_code_alone(code: str, content: str, is_fatal: bool) -> None:
    async with open_oauth_world() as world:
        world.authority.refusal = code
        refused = await refusal(world)

    assert (content in str(refused), refused.fatal) == (True, is_fatal)
    assert "s3cret" not in str(refused)


async def test_a_secret_that_is_not_there_is_notified_by_its_name() -> None:
    async with open_oauth_world() as world:
        refused = await refusal(world, client_secret_ref="nowhere")

    assert "`nowhere`" in str(refused)
    assert world.issuing.connections == 0


async def test_an_authorization_server_that_is_down_costs_only_its_own_server() -> None:
    async with open_oauth_world() as world:
        await world.issuing.stop_listening()
        refused = await refusal(world)

    assert ("the request to the authorization server failed" in str(refused), refused.fatal) == (True, False)
    assert asyncio.current_task() is not None


@pytest.mark.parametrize(
    ("resource", "url", "expected"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://A.example:443/mcp?x=1", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://a.example/", "https://a.example/mcp", True),
        ("https://a.example/mcp/", "https://a.example/mcp", True),
        ("https://a.example/mc", "https://a.example/mcp", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("https://b.example/mcp", "https://a.example/mcp", False),
        ("http://127.0.0.1/mcp", "https://127.0.0.1/mcp", False),
        ("https://a.example:8443/mcp", "https://a.example/mcp", False),
        ("nonsense", "https://a.example/mcp", False),
        ("https://a.example@evil.example/", "https://evil.example/", False),
    ],
)
def test_a_token_is_for_one_place_and_what_is_below_it(resource: str, url: str, expected: bool) -> None:
    assert covers_url(resource, url) is expected
