"""Logging in to a server over REST: a code goes in, and no token comes out."""

from pathlib import Path
from typing import Any

import pytest

from tests.contract.link_clients import SilentClient
from tests.surfaces.rest_world import KEYS, NOW_MS, SERVERS, error_of, http, open_rest, secret_of
from tests.upstream.memory_link import params
from tests.upstream.oauth.authority import NOW_S, REDIRECT, authorizer, open_oauth_world
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.oauth.logins import Logins

pytestmark = pytest.mark.anyio

REACHED = "/api/v1/mcp/servers"


def test_both_worlds_have_one_clock() -> None:
    assert NOW_S * 1000 == NOW_MS


async def test_a_login_is_begun_finished_shown_and_ended(tmp_path: Path) -> None:
    grants = GrantFiles(tmp_path)
    logins = Logins(authorizer(grants), grants, clock_s=lambda: NOW_S)
    async with open_oauth_world() as servers, open_rest(logins=logins) as world:
        oauth = {"grant": "authorization_code", "client_id": "gateway"}
        await world.seed(server=[http("there", http={"url": servers.serving.url, "oauth": oauth})])
        path = f"{REACHED}/there/login"
        begun = await world.post(path, {"redirect_uri": REDIRECT})
        response = servers.authority.negotiate(begun["authorization_url"])
        finished = await world.post(f"{path}/finish", response)
        shown = await world.get(f"{SERVERS}/there")
        ended = await world.request("DELETE", path)
        again = await world.request("DELETE", path)
        after = await world.get(f"{SERVERS}/there")

        login = {"issuer": servers.authority.issuer, "expires_at_s": NOW_S + 3600, "renews": False}
        assert finished == {"server_id": "there", "login": login}
        assert (shown["login"], after["login"]) == (login, None)
        assert (ended.status_code, error_of(again)) == (200, (404, "not_found"))
        assert [event.operation for event in world.audited] == ["login", "logout"]
        assert "token-1" not in str((begun, finished, shown))


async def test_a_record_that_was_read_can_be_sent_back_with_its_login(tmp_path: Path) -> None:
    grants = GrantFiles(tmp_path)
    async with open_rest(logins=Logins(authorizer(grants), grants, clock_s=lambda: NOW_S)) as world:
        oauth = {"grant": "authorization_code", "client_id": "gateway"}
        await world.seed(server=[http("there", http={"oauth": oauth})])
        shown = await world.get(f"{SERVERS}/there")
        written = await world.put(f"{SERVERS}/there", shown)

    assert written["server"]["http"]["oauth"]["client_id"] == "gateway"


async def test_where_no_servers_are_called_no_one_logs_in() -> None:
    async with open_rest() as world:
        await world.seed(server=[http("there")])
        response = await world.request("POST", f"{REACHED}/there/login", {"redirect_uri": REDIRECT})

    assert error_of(response) == (400, "invalid_request")
    assert "client_credentials" in response.json()["error"]["hint"]


async def test_an_unknown_server_cannot_be_logged_in_to() -> None:
    async with open_rest() as world:
        responses = [
            await world.request("POST", f"{REACHED}/nowhere/login", {"redirect_uri": REDIRECT}),
            await world.request("POST", f"{REACHED}/nowhere/login/finish", {"state": "x", "code": "y"}),
            await world.request("DELETE", f"{REACHED}/nowhere/login"),
        ]

    assert [error_of(response) for response in responses] == [(404, "not_found")] * 3


def logins_in(directory: Path) -> Logins:
    grants = GrantFiles(directory)
    return Logins(authorizer(grants), grants, clock_s=lambda: NOW_S)


OWN = {"grant": "authorization_code", "client_id": "gateway", "per_principal": True}


async def test_a_caller_that_reaches_a_server_logs_in_for_itself_where_the_record_says_so(
    tmp_path: Path,
) -> None:
    logins = logins_in(tmp_path)
    async with open_oauth_world() as servers, open_rest(logins=logins) as world:
        endpoint = {"url": servers.serving.url, "oauth": OWN}
        await world.seed(server=[http("there", http=endpoint, allowed_tools=["*"], enabled=True)])
        path, agent = f"{REACHED}/there/login", secret_of("agent")
        begun = await world.post(path, {"redirect_uri": REDIRECT}, key=agent)
        response = servers.authority.negotiate(begun["authorization_url"])
        stolen = await world.request("POST", f"{path}/finish", response, key=secret_of("viewer"))
        finished = await world.post(f"{path}/finish", response, key=agent)
        shared = await world.get(f"{SERVERS}/there")
        of_others = await world.request("DELETE", path, key=secret_of("viewer"))
        ended = await world.request("DELETE", path, key=agent)

        assert error_of(stolen) == (400, "invalid_request")
        assert (finished["server_id"], shared["login"]) == ("there", None)
        assert (error_of(of_others), ended.status_code) == ((404, "not_found"), 200)
        assert [(event.principal, event.operation) for event in world.audited] == [
            ("key:agent", "login"),
            ("key:agent", "logout"),
        ]


@pytest.mark.parametrize(
    ("oauth", "sent", "expected"),
    [
        pytest.param({"per_principal": False}, {}, (403, "forbidden"), id="a login for all"),
        pytest.param({}, {"shared": True}, (403, "forbidden"), id="the login that lists"),
    ],
)
async def test_only_an_administrator_logs_in_for_others(
    tmp_path: Path, oauth: dict[str, Any], sent: dict[str, Any], expected: tuple[int, str]
) -> None:
    async with open_oauth_world() as servers, open_rest(logins=logins_in(tmp_path)) as world:
        endpoint = {"url": servers.serving.url, "oauth": OWN | oauth}
        await world.seed(server=[http("there", http=endpoint, allowed_tools=["*"], enabled=True)])
        bodies = {"": {"redirect_uri": REDIRECT}, "/finish": {"state": "x", "code": "y"}}
        refused = [
            error_of(
                await world.request(
                    "POST", f"{REACHED}/there/login{end}", body | sent, key=secret_of("agent")
                )
            )
            for end, body in bodies.items()
        ]

    assert refused == [expected] * 2


async def test_to_an_agent_a_server_it_cannot_reach_is_not_there(tmp_path: Path) -> None:
    async with open_oauth_world() as servers, open_rest(logins=logins_in(tmp_path)) as world:
        endpoint = {"url": servers.serving.url, "oauth": OWN}
        await world.seed(server=[http("hidden", http=endpoint, allowed_tools=[], enabled=True)])
        responses = [
            await world.request(
                "POST", f"{REACHED}/{name}/login", {"redirect_uri": REDIRECT}, key=secret_of("agent")
            )
            for name in ("hidden", "absent")
        ]

        assert [response.json()["error"]["message"] for response in responses] == [
            "no server `hidden`",
            "no server `absent`",
        ]
        assert (servers.issuing.connections, [response.status_code for response in responses]) == (
            0,
            [404, 404],
        )


async def test_the_gateway_says_who_it_is_where_it_asks_for_tokens(tmp_path: Path) -> None:
    own_url = "https://gateway.example/.well-known/oauth-client"
    grants = GrantFiles(tmp_path)
    logins = Logins(authorizer(grants, own_url=own_url), grants, clock_s=lambda: NOW_S)
    async with open_rest(logins=logins, trusts_local=False) as world:
        shown = await world.get("/.well-known/oauth-client")

    assert shown == {
        "client_id": own_url,
        "client_name": "Toolgate",
        "client_uri": "https://gateway.example",
        "application_type": "native",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


async def test_more_scopes_are_asked_for_by_who_logs_in(tmp_path: Path) -> None:
    async with open_oauth_world() as servers, open_rest(logins=logins_in(tmp_path)) as world:
        oauth = {"grant": "authorization_code", "client_id": "gateway", "scopes": ["read"]}
        await world.seed(server=[http("there", http={"url": servers.serving.url, "oauth": oauth})])
        body = {"redirect_uri": REDIRECT, "scopes": ["write"]}
        begun = await world.post(f"{REACHED}/there/login", body)
        refused = await world.request("POST", f"{REACHED}/there/login", body | {"scopes": ["a b"]})

    assert "scope=read+write" in begun["authorization_url"]
    assert error_of(refused) == (400, "invalid_request")


async def test_a_key_that_is_deleted_takes_its_connections_with_it(tmp_path: Path) -> None:
    async with open_rest(logins=logins_in(tmp_path)) as world:
        await world.seed(
            server=[http("there", http={"oauth": OWN}, allowed_tools=["*"], enabled=True)],
            key=[{"key_id": "spare", "sha256": "0" * 64, "role": "agent"}],
        )
        servers = world.control.gateway.servers
        for principal_id in ("key:spare", "key:agent"):
            await servers.call("there", "tools/call", params("echo"), client=SilentClient(principal_id))
        before = servers.health()["there"].session_links
        assert (await world.request("DELETE", f"{KEYS}/spare")).status_code == 200
        await world.served()

        assert (before, servers.health()["there"].session_links) == (2, 1)
