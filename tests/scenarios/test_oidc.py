"""An OIDC issuer and a real gateway: clients find the issuer by themselves, and only its tokens pass."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from tests.eventually import eventually
from tests.gateway.auth.issuer import AUDIENCE, Issuer, forged, serving_issuer
from tests.scenarios.canaries import leaks, written_by
from tests.scenarios.clients import LegacyClient, ModernClient
from tests.scenarios.gateway import Gateway, Site, run, running

pytestmark = pytest.mark.xdist_group("scenario-oidc")

ROLES = {"agents": "agent", "readers": "viewer", "owners": "admin"}
CLIENT = "console"
LIFE_S = 6
"""Of a token that expires: until then its streams must be open."""
VERIFIER, CHALLENGE = "v" * 43, "7w_YNF9DSfIdPf_pRjSq646_kPr-2-o9NAl16JGghdM"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as found:
        yield found


@pytest.fixture(scope="module")
def gateway(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("oidc"))
    site.place(site.stage("one"), site.stage("two"))
    oidc = {"issuer": issuer.url, "audience": AUDIENCE, "roles": ROLES, "servers_claim": "servers"}
    oidc |= {"client_id": CLIENT, "scopes": ["openid", "tools"]}
    environ = {"TOOLGATE_OIDC": json.dumps(oidc), "TOOLGATE_TRUST_LOOPBACK": "false"}
    with running(site, environ=environ) as found:
        owner = issuer.token(sub="owner", roles=["owners"])
        eventually(lambda: all_listed(request(found, "/admin/api/mcp/servers", owner).json()["servers"]))
        yield found


def all_listed(servers: list[dict[str, Any]]) -> bool:
    """From then on no stream tells of a change."""
    return all((one["health"] or {}).get("tools") for one in servers)


def bearing(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def request(gateway: Gateway, path: str, token: str | None = None) -> httpx2.Response:
    return gateway.http.get(path, headers={} if token is None else bearing(token))


@contextmanager
def calling(gateway: Gateway, era: str, token: str) -> Iterator[LegacyClient | ModernClient]:
    """A client that shows this token."""
    url = gateway.url + "/api/mcp"
    with httpx2.Client(timeout=60, trust_env=False, headers=bearing(token)) as http:
        yield LegacyClient(http, url) if era == "legacy" else ModernClient(http, url)


def servers_seen(gateway: Gateway, era: str, token: str) -> set[str]:
    with calling(gateway, era, token) as client:
        return {name.split(".")[0] for name in client.tools()}


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_token_reaches_what_its_claims_say_on_both_eras(gateway: Gateway, issuer: Issuer, era: str) -> None:
    assert servers_seen(gateway, era, issuer.token()) == {"one", "two"}
    assert servers_seen(gateway, era, issuer.token(sub="bob", servers=["two"])) == {"two"}


def test_roles_come_from_the_token(gateway: Gateway, issuer: Issuer) -> None:
    statuses = {
        role: [
            request(gateway, path, issuer.token(sub=role, roles=[role])).status_code
            for path in ("/api/v1/mcp/tools", "/admin/api/mcp/servers")
        ]
        for role in ("agents", "readers", "owners", "others")
    }

    assert statuses == {
        "agents": [200, 403],
        "readers": [200, 200],
        "owners": [200, 200],
        "others": [403, 403],
    }
    refused = request(gateway, "/admin/api/mcp/servers", issuer.token())
    assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]


def test_adm_6_what_the_issuer_did_not_say_is_401_on_every_surface(gateway: Gateway, issuer: Issuer) -> None:
    now = int(time.time())
    wrong = [
        forged({"alg": "none"}, issuer.claims()),
        issuer.token(aud="https://other.example"),
        issuer.token(iss="https://other.example"),
        issuer.token(exp=now - 60),
        issuer.token(headers={"kid": "../../x"}),
        issuer.token()[:-4] + "AAAA",
    ]
    for token in wrong:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        responses = [
            gateway.http.post("/api/mcp", json=listing, headers=bearing(token)),
            request(gateway, "/api/v1/mcp/tools", token),
            request(gateway, "/healthz", token),
        ]
        assert [response.status_code for response in responses] == [401] * 3
        assert all('error="invalid_token"' in response.headers["www-authenticate"] for response in responses)


def test_without_a_token_the_answer_says_where_to_get_one(gateway: Gateway, issuer: Issuer) -> None:
    refused = gateway.http.post("/api/mcp/t/review", json={})
    url = f"{gateway.url}{WELL_KNOWN}/api/mcp/t/review"

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == f'Bearer realm="toolgate", resource_metadata="{url}"'
    assert gateway.http.get(url).json() == {
        "resource": f"{gateway.url}/api/mcp/t/review",
        "authorization_servers": [issuer.url],
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolgate",
    }
    assert gateway.http.get(WELL_KNOWN).json()["resource"] == gateway.url
    assert (
        gateway.http.get(f"{WELL_KNOWN}/api/mcp/s/one").json()["resource"] == f"{gateway.url}/api/mcp/s/one"
    )
    assert gateway.http.get(f"{WELL_KNOWN}/elsewhere").status_code == 401


class Storage:
    """Where the client keeps what it was given."""

    tokens: OAuthToken | None = None
    client_info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client_info = client_info


def signing_in(url: str) -> OAuthClientProvider:
    """The official client's way to a token, for someone who agrees to everything."""
    visited: list[str] = []

    async def visit(page: str) -> None:
        visited.append(page)

    async def come_back() -> AuthorizationCodeResult:
        (state,) = parse_qs(urlsplit(visited[-1]).query)["state"]
        return AuthorizationCodeResult(code="agreed", state=state)

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl("http://127.0.0.1:1/callback")])
    return OAuthClientProvider(url, metadata, Storage(), visit, come_back)


def test_the_official_client_finds_the_issuer_signs_in_and_calls(gateway: Gateway, issuer: Issuer) -> None:
    url = f"{gateway.url}/api/mcp"

    async def use() -> list[str]:
        async with (
            asyncio.timeout(60),
            httpx2.AsyncClient(auth=signing_in(url), trust_env=False, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return sorted(tool.name for tool in (await client.list_tools()).tools)

    assert "one.echo" in asyncio.run(use())
    assert issuer.wanted_for == [url]


def code_from(issuer: Issuer, redirect_uri: str) -> str:
    """What a browser comes back with, whose person has agreed."""
    proof = {"code_challenge": CHALLENGE, "code_challenge_method": "S256", "state": "s"}
    back = issuer.authorize({"client_id": CLIENT, "redirect_uri": redirect_uri, **proof})
    (code,) = parse_qs(urlsplit(back).query)["code"]
    return code


def test_a_person_logs_in_with_a_browser_and_nothing_is_kept(gateway: Gateway, issuer: Issuer) -> None:
    back = f"{gateway.url}/console/login"
    ways = gateway.http.get("/api/v1/login").json()
    sent = {"code": code_from(issuer, back), "code_verifier": VERIFIER, "redirect_uri": back}
    response = gateway.http.post("/api/v1/login", json=sent)
    earned = response.json()
    me = request(gateway, "/api/v1/me", earned["token"]).json()

    assert ways["oidc"] == {
        "issuer": issuer.url,
        "authorization_endpoint": f"{issuer.url}/authorize",
        "client_id": CLIENT,
        "scope": "openid tools",
    }
    assert 0 < earned["expires_in_s"] <= 600
    assert (me["principal"], me["role"], me["by"]) == ("oidc:ada", "agent", "token")
    assert abs(me["expires_at_s"] - time.time() - 600) < 60
    assert "set-cookie" not in response.headers
    assert gateway.http.post("/api/v1/login", json=sent).status_code == 401
    assert earned["token"] not in gateway.log + gateway.audit


def test_a_code_that_was_sent_elsewhere_is_not_handed_in(gateway: Gateway, issuer: Issuer) -> None:
    port = gateway.url.rpartition(":")[2]
    wrong = [
        "https://evil.example/console/login",
        f"{gateway.url}/console/login/../elsewhere",
        f"{gateway.url}/console",
        f"http://127.0.0.1:{port}@evil.example/console/login",
        f"http://127.0.0.1:1{port}/console/login",
    ]
    sent = [
        {"code": code_from(issuer, back), "code_verifier": VERIFIER, "redirect_uri": back} for back in wrong
    ]
    responses = [gateway.http.post("/api/v1/login", json=one) for one in sent]

    assert [response.status_code for response in responses] == [400] * len(wrong)
    assert all(one["code"] in issuer.asks for one in sent)


def test_a_stream_ends_with_the_token_it_was_opened_with(gateway: Gateway, issuer: Issuer) -> None:
    token = issuer.token(exp=int(time.time()) + LIFE_S)
    with (
        calling(gateway, "legacy", token) as legacy,
        calling(gateway, "modern", token) as modern,
        legacy.changes() as of_legacy,
        modern.changes() as of_modern,
    ):
        assert [len(list(changes)) for changes in (of_legacy, of_modern)] == [0, 2]


def test_while_the_issuer_is_away_those_it_knows_go_on(gateway: Gateway, issuer: Issuer) -> None:
    issuer.status = 503
    try:
        assert servers_seen(gateway, "modern", issuer.token(sub="carol")) == {"one", "two"}
    finally:
        issuer.status = 200


def test_sec_1_no_token_is_written_down_or_shown(gateway: Gateway, issuer: Issuer) -> None:
    owner = issuer.token(sub="owner", roles=["owners"])
    with calling(gateway, "modern", owner) as client:
        client.call("one.echo", text="hi")
    eventually(lambda: '"tool":"echo"' in gateway.audit)
    shown = [
        request(gateway, path, owner).text for path in ("/admin/api/audit?limit=1000", "/metrics", "/healthz")
    ]
    signatures = [token.rpartition(".")[2] for token in issuer.issued]
    files = {*gateway.site.data.glob("*"), *written_by(gateway.site.data, gateway.log_file.parent)}

    assert owner.endswith(signatures[-1])
    assert leaks((path for path in files if path.is_file()), signatures) == []
    assert [one for one in signatures if any(one in text for text in shown)] == []


def test_a_gateway_without_an_issuer_has_nothing_to_tell(site: Site, issuer: Issuer) -> None:
    with running(site) as plain:
        assert plain.http.get(WELL_KNOWN).status_code == 404
        assert plain.http.get("/healthz", headers=bearing(issuer.token())).status_code == 401


def test_adm_5_an_issuer_that_anyone_could_play_is_refused_at_the_start(site: Site) -> None:
    oidc = {"issuer": "http://issuer.example", "audience": AUDIENCE, "roles": ROLES}
    ran = run(site.up(), {"TOOLGATE_OIDC": json.dumps(oidc)})

    assert ran.code != 0
    assert "https" in ran.err
    assert "Traceback" not in ran.err
