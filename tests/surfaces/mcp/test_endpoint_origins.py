"""Pages of other origins at the MCP endpoint: which may call, by what, and what the others are told."""

import pytest

from tests.surfaces.mcp.mcp_world import JSON_HEADERS, key, open_mcp_world
from tests.upstream.memory_link import MemoryNet
from toolgate.surfaces.http.guard import MAX_HEADERS_BYTES

pytestmark = pytest.mark.anyio

LOCAL, REMOTE = "http://localhost:6274", "https://app.example.com"
SECRET = "tg_" + "a" * 40
HEADERS = "authorization,content-type,mcp-protocol-version,mcp-session-id,mcp-param-place,last-event-id"
PREFLIGHT = {"host": "127.0.0.1", "access-control-request-method": "POST"}
BODY = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'


@pytest.mark.parametrize("url", ["/api/mcp", "/api/mcp/s/one", "/api/mcp/t/nothing", "/elsewhere"])
async def test_a_preflight_of_an_allowed_page_is_granted_on_every_path_without_cookies(url: str) -> None:
    async with open_mcp_world(MemoryNet(), origins=(REMOTE,), trusts_local=False) as world:
        headers = PREFLIGHT | {"origin": REMOTE, "access-control-request-headers": HEADERS}
        response = await world.request("OPTIONS", url, headers=headers)

        assert (response.status, response.body) == (204, b"")
        assert response.headers["access-control-allow-origin"] == REMOTE
        assert response.headers["access-control-allow-headers"] == HEADERS
        assert response.headers["access-control-allow-methods"] == "GET, HEAD, POST, PUT, PATCH, DELETE"
        assert response.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in response.headers
        assert "access-control-allow-private-network" not in response.headers


@pytest.mark.parametrize("wanted", ["", "a b", "x" * (MAX_HEADERS_BYTES + 1)])
async def test_a_preflight_grants_no_headers_that_cannot_be_names(wanted: str) -> None:
    async with open_mcp_world(MemoryNet(), origins=(REMOTE,)) as world:
        headers = PREFLIGHT | {
            "origin": REMOTE,
            "access-control-request-headers": wanted,
            "access-control-request-private-network": "true",
        }
        response = await world.request("OPTIONS", "/api/mcp", headers=headers)

        assert response.status == 204
        assert "access-control-allow-headers" not in response.headers
        assert response.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    ("origin", "method"),
    [
        pytest.param("https://evil.example", "OPTIONS", id="a preflight of a foreign page"),
        pytest.param("https://evil.example", "POST", id="a request of a foreign page"),
        pytest.param("http://localhost:3000", "OPTIONS", id="a preflight of another page of this machine"),
        pytest.param("https://app.example.com:8443", "POST", id="another port"),
        pytest.param("http://app.example.com", "POST", id="another scheme"),
    ],
)
async def test_a_page_that_is_not_allowed_learns_which_setting_allows_it(origin: str, method: str) -> None:
    async with open_mcp_world(MemoryNet(), origins=(REMOTE, LOCAL)) as world:
        response = await world.request(
            method, "/api/mcp", BODY, JSON_HEADERS | PREFLIGHT | {"origin": origin}
        )

        assert (response.status, response.json["error"]["code"]) == (403, "foreign_origin")
        assert response.json["error"]["hint"].endswith(f"add `{origin}` to `allowed_origins`")
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("origin", "credential", "status"),
    [
        pytest.param(LOCAL, None, 200, id="a local page is trusted as a local program is"),
        pytest.param(REMOTE, None, 401, id="a page elsewhere is not, though it comes over loopback"),
        pytest.param(REMOTE, "", 401, id="an empty credential"),
        pytest.param(REMOTE, "Bearer none", 401, id="what is for no key"),
        pytest.param(REMOTE, "Bearer wrong", 401, id="a wrong key"),
        pytest.param(REMOTE, f"Bearer {SECRET}", 200, id="a key"),
    ],
)
async def test_the_trust_in_loopback_is_not_for_pages_elsewhere(
    origin: str, credential: str | None, status: int
) -> None:
    async with open_mcp_world(MemoryNet(), origins=(REMOTE, LOCAL), keys=(key("page", SECRET),)) as world:
        sent = {} if credential is None else {"authorization": credential}
        response = await world.request("POST", "/api/mcp", BODY, JSON_HEADERS | sent | {"origin": origin})

        assert response.status == status
        assert response.headers["access-control-allow-origin"] == origin
        exposed = response.headers["access-control-expose-headers"].split(", ")
        assert {"WWW-Authenticate", "Mcp-Session-Id", "MCP-Protocol-Version", "Retry-After"} <= set(exposed)
        assert ("www-authenticate" in response.headers) == (status == 401)


async def test_a_page_gets_no_further_by_the_name_of_another_host() -> None:
    async with open_mcp_world(MemoryNet(), origins=(LOCAL,)) as world:
        headers = JSON_HEADERS | {"origin": LOCAL, "host": "evil.example"}
        response = await world.request("POST", "/api/mcp", BODY, headers)

        assert (response.status, response.json["error"]["code"]) == (403, "foreign_origin")
