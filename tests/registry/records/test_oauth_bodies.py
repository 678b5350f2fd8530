"""`http.oauth` of a server: what it may say, and that credentials are never for whom it may concern."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord
from toolgate.model.servers import HttpEndpoint, OAuth
from toolgate.registry.records.codec import parse_server

LOGIN: dict[str, Any] = {"grant": "authorization_code", "client_id": "toolgate"}
MACHINE: dict[str, Any] = {
    "grant": "client_credentials",
    "client_id": "toolgate",
    "client_secret_ref": "client-secret",
    "issuer": "https://login.example.com",
    "scopes": ["read"],
}


def server(oauth: dict[str, Any], *, transport: str = "streamable_http", **http: Any) -> dict[str, Any]:
    endpoint = {"url": "https://example.com/mcp", "oauth": oauth, **http}
    return {"server_id": "web", "transport": transport, "http": endpoint}


def test_a_server_may_want_tokens() -> None:
    assert parse_server(server(MACHINE)).http == HttpEndpoint(
        url="https://example.com/mcp",
        oauth=OAuth(
            grant="client_credentials",
            client_id="toolgate",
            client_secret_ref="client-secret",
            issuer="https://login.example.com",
            scopes=("read",),
        ),
    )


def test_another_client_is_another_connection() -> None:
    launches = {
        parse_server(server(one)).launch[2] == parse_server(server(LOGIN)).http for one in (LOGIN, MACHINE)
    }

    assert launches == {True, False}


@pytest.mark.parametrize(
    ("body", "reply"),
    [
        pytest.param(
            server(LOGIN | {"client_secret_ref": "x"}),
            "`http.oauth`: `client_secret_ref` needs `issuer`",
            id="cve_2026_104850 a client secret for whom it may concern",
        ),
        pytest.param(
            server(LOGIN | {"grant": "client_credentials"}), "needs `client_secret_ref`", id="no secret"
        ),
        pytest.param(
            server(MACHINE | {"client_id": None}),
            "`client_secret_ref` needs `client_id`",
            id="a secret without a client",
        ),
        pytest.param(
            server(MACHINE | {"per_principal": True}), "needs the grant `authorization_code`", id="no login"
        ),
        pytest.param(server(LOGIN | {"grant": "password"}), "`http.oauth.grant`", id="a password"),
        pytest.param(server(LOGIN | {"scopes": ["a b"]}), "`http.oauth.scopes[0]`", id="scopes in one text"),
        pytest.param(server(LOGIN | {"issuer": "file:///x"}), "`http.oauth.issuer`", id="a file as issuer"),
        pytest.param(server(LOGIN | {"client_id": "a\r\nb"}), "`http.oauth.client_id`", id="a line break"),
        pytest.param(server(LOGIN, auth_ref="x"), "`oauth` excludes `auth_ref`", id="two credentials"),
        pytest.param(
            server(LOGIN, headers={"authorization": "x"}),
            "`oauth` excludes `auth_ref`",
            id="a token and a header",
        ),
        pytest.param(
            server(LOGIN, transport="http_sse_legacy"),
            "transport `http_sse_legacy` does not allow `http.oauth`",
            id="the transport of 2024",
        ),
    ],
)
def test_what_would_give_a_credential_away_is_not_stored(body: dict[str, Any], reply: str) -> None:
    with pytest.raises(InvalidRecord) as refused:
        parse_server(body)

    assert reply in str(refused.value)
