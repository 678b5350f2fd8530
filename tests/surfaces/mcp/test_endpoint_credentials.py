"""Credentials at the MCP door: nothing else says who calls, and a refusal says what to bring."""

import asyncio
import json
from typing import Any

import pytest

from tests.surfaces.mcp.mcp_world import (
    JSON_HEADERS,
    META,
    MODERN,
    McpWorld,
    Response,
    Stream,
    key,
    open_mcp_world,
)
from tests.surfaces.mcp.test_endpoint import ADA, BOB, GIT, world
from toolgate.gateway.auth.identity import MAX_ATTEMPTS
from toolgate.gateway.auth.issuer import ResourceMetadata
from toolgate.surfaces.http.messages import HttpRequest

pytestmark = pytest.mark.anyio

KEYS = (key("ada", ADA), key("node", BOB, role="node"))
LISTING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
MODERN_HEADERS = {"mcp_protocol_version": MODERN, "mcp_method": "tools/list"}
DISCOVERY = ResourceMetadata("https://issuer.example")


@pytest.mark.parametrize(
    ("url", "headers", "meta"),
    [
        pytest.param(f"/api/mcp/{ADA}", {}, {}, id="in the path"),
        pytest.param(f"/api/mcp?key={ADA}", {}, {}, id="in the query"),
        pytest.param(f"/api/mcp?access_token={ADA}", {}, {}, id="as a token in the query"),
        pytest.param(
            "/api/mcp", {}, {"authorization": f"Bearer {ADA}", "principal": "key:ada"}, id="in `_meta`"
        ),
        pytest.param(
            "/api/mcp", {"x_user": "key:ada", "x_forwarded_user": "key:ada"}, {}, id="as a user header"
        ),
        pytest.param("/api/mcp", {"x_api_key": ADA, "cookie": f"key={ADA}"}, {}, id="in other headers"),
        pytest.param("/api/mcp", {"proxy_authorization": f"Bearer {ADA}"}, {}, id="for a proxy"),
        pytest.param("/api/mcp", {"x_forwarded_for": "127.0.0.1"}, {}, id="from loopback by its own word"),
    ],
)
async def test_adm_9_and_sco_19_nothing_but_the_credential_says_who_calls(
    url: str, headers: dict[str, str], meta: dict[str, Any]
) -> None:
    async with open_mcp_world(world(), GIT, keys=KEYS, trusts_local=False) as opened:
        message = LISTING | {"params": {"_meta": META | meta}, "principal": "key:ada"}
        response = await opened.post(url, message, **MODERN_HEADERS, **headers)

        assert (response.status, response.headers["www-authenticate"]) == (401, 'Bearer realm="toolgate"')


async def test_adm_7_a_wrong_key_is_rejected_by_every_method_even_where_none_is_needed() -> None:
    async with open_mcp_world(world(), GIT, trusts_local=True) as opened:
        session = await opened.session("/api/mcp")
        wrong = JSON_HEADERS | session.headers | {"authorization": "Bearer wrong"}
        responses = [
            await opened.request(method, url, b"{}", wrong)
            for method in ("POST", "GET", "DELETE", "PUT")
            for url in ("/api/mcp", "/mcp", "/api/mcp/s/git", "/api/mcp/t/none", "/api/mcp/no/such")
        ]

        assert {response.status for response in responses} == {401}
        assert await session.tools() == ["git.log", "git.push", "git.status"]


async def test_a_nodes_key_calls_no_tools() -> None:
    async with open_mcp_world(world(), GIT, keys=KEYS) as opened:
        response = await opened.modern("/api/mcp", "tools/list", key=BOB)

        assert (response.status, response.json["error"]["data"]["code"]) == (403, "forbidden")
        assert response.headers["www-authenticate"] == 'Bearer realm="toolgate", error="insufficient_scope"'


async def ask_from(opened: McpWorld, peer: str, credential: str) -> Response:
    """One request over a connection from `peer`."""
    headers = JSON_HEADERS | {"authorization": f"Bearer {credential}", "x-forwarded-for": "203.0.113.9"}
    named = {name.encode(): value.encode() for name, value in headers.items()}
    request = HttpRequest(
        "POST", "/api/mcp", b"", headers=named, body=json.dumps(LISTING).encode(), peer=peer
    )
    stream = Stream()
    stream.task = asyncio.ensure_future(opened.guard(request, stream))
    return await stream.whole()


async def test_adm_10_wrong_keys_that_keep_coming_have_to_wait_and_right_ones_do_not() -> None:
    async with open_mcp_world(world(), GIT, keys=KEYS) as opened:
        responses = [
            await ask_from(opened, "192.0.2.1", f"wrong-{number}") for number in range(MAX_ATTEMPTS + 2)
        ]

        assert [response.status for response in responses] == [401] * MAX_ATTEMPTS + [429] * 2
        assert 1 <= int(responses[-1].headers["retry-after"]) <= 60
        assert responses[-1].json["error"]["data"]["code"] == "too_many_attempts"
        assert (await ask_from(opened, "192.0.2.1", ADA)).status != 429
        assert (await ask_from(opened, "192.0.2.2", "wrong")).status == 401


@pytest.mark.parametrize(
    ("secret", "url", "status", "challenge"),
    [
        pytest.param(
            None, "/api/mcp", 401, 'resource_metadata="http://127.0.0.1:8080{}/api/mcp"', id="no credential"
        ),
        pytest.param(
            "a.b.c",
            "/api/mcp/t/review?tools=x",
            401,
            'error="invalid_token", resource_metadata="http://127.0.0.1:8080{}/api/mcp/t/review"',
            id="a wrong one",
        ),
        pytest.param(
            BOB,
            "/mcp",
            403,
            'error="insufficient_scope", resource_metadata="http://127.0.0.1:8080{}/mcp"',
            id="one that does not reach",
        ),
        pytest.param(
            None, '/api/mcp/"x', 401, 'resource_metadata="http://127.0.0.1:8080{}"', id="a path with a quote"
        ),
    ],
)
async def test_a_refusal_says_where_tokens_come_from(
    secret: str | None, url: str, status: int, challenge: str
) -> None:
    async with open_mcp_world(world(), GIT, keys=KEYS, trusts_local=False, discovery=DISCOVERY) as opened:
        response = await opened.modern(url, "tools/list", key=secret)

        expected = challenge.format("/.well-known/oauth-protected-resource")
        assert (response.status, response.headers["www-authenticate"]) == (
            status,
            f'Bearer realm="toolgate", {expected}',
        )


async def test_a_host_that_could_end_a_header_is_not_repeated() -> None:
    assert DISCOVERY.metadata_url('http://127.0.0.1"', "/api/mcp") is None
    assert DISCOVERY.metadata_url("http://local\thost", "/api/mcp") is None


def test_behind_a_proxy_the_public_url_counts() -> None:
    discovery = ResourceMetadata("https://issuer.example", "https://tools.example/gate/")

    assert discovery.metadata_url("http://10.0.0.1:8080", "/mcp") == (
        "https://tools.example/gate/.well-known/oauth-protected-resource/mcp"
    )
    assert discovery.metadata("http://10.0.0.1:8080", "/mcp")["resource"] == "https://tools.example/gate/mcp"


async def test_a_policy_that_refuses_is_no_matter_of_credentials() -> None:
    async with open_mcp_world(world(), GIT, keys=KEYS, discovery=DISCOVERY) as opened:
        response = await opened.modern("/api/mcp/t/none", "tools/list", key=ADA)

        assert response.status == 404
        assert "www-authenticate" not in response.headers
