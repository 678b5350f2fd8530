"""A login to a server of the official SDK, with the authorization server it brings along."""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl

from tests.upstream.http.test_streamable_sdk import Upstream, call
from tests.upstream.http_links import RecordingListener
from tests.upstream.oauth.authority import FETCHER, REDIRECT
from toolgate.model.servers import HttpEndpoint, OAuth, ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.oauth.connector import Authorizer, OAuthConnector
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey
from toolgate.upstream.oauth.logins import Logins

pytestmark = pytest.mark.anyio


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Everyone agrees at once; tokens are for the requested resource, and refreshed once each."""

    def __init__(self) -> None:
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, tuple[RefreshToken, str | None]] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return OAuthClientInformationFull(
            client_id=client_id, redirect_uris=[AnyUrl(REDIRECT)], token_endpoint_auth_method="none"
        )

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._give(str(client.client_id), authorization_code.resource)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        found = self.refresh.get(refresh_token)
        return None if found is None else found[0]

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        _, resource = self.refresh.pop(refresh_token.token)
        return self._give(str(client.client_id), resource)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("clients are registered by their operator")

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise AssertionError("no test revokes")

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    def _give(self, client_id: str, resource: str | None) -> OAuthToken:
        access, refresh = secrets.token_hex(), secrets.token_hex()
        self.access = {access: AccessToken(token=access, client_id=client_id, scopes=[], resource=resource)}
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=[]), resource
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600)


@asynccontextmanager
async def serving(provider: Provider) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        root = f"http://127.0.0.1:{listener.getsockname()[1]}"
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(root),
            resource_server_url=AnyHttpUrl(f"{root}/mcp"),
            validate_token_resource=True,
        )
        app = Upstream().server.streamable_http_app(auth=auth, auth_server_provider=provider)
        server = uvicorn.Server(
            uvicorn.Config(app, lifespan="on", log_config=None, timeout_graceful_shutdown=1)
        )
        task = asyncio.ensure_future(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"{root}/mcp"
        server.should_exit = True
        await task


async def agree(url: str) -> dict[str, str]:
    """What a browser is sent back with."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as browser:
        response = await browser.get(url)
    assert response.status_code == 302, response.text
    return dict(parse_qsl(urlsplit(response.headers["location"]).query))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_login_to_a_server_of_the_sdk(
    era: Revision, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="mcp")
    grants = GrantFiles(tmp_path)
    authorizer = Authorizer(Secrets({}), FETCHER, clock_s=time.time, grants=grants)
    opener = OAuthConnector(
        StreamableConnector(EndpointResolver(Secrets({}), Egress(allow_private=True))),
        authorizer,
    )
    async with asyncio.timeout(60), serving(Provider()) as url:
        oauth = OAuth(grant="authorization_code", client_id="gateway")
        record = ServerRecord(
            server_id="sdk", transport="streamable_http", http=HttpEndpoint(url=url, oauth=oauth)
        )
        with pytest.raises(StartFailed, match="an administrator must log in first"):
            await opener(record, RecordingListener(), known_revision=era)

        logins = Logins(authorizer, grants, clock_s=time.time)
        begun = await logins.begin(record, principal="ada", redirect_uri=REDIRECT)
        response = await agree(begun.authorization_url)
        state, code, issuer = response["state"], response["code"], response.get("iss")
        key = LoginKey("sdk")
        login = await logins.finish(key, principal="ada", state=state, code=code, issuer=issuer)
        link = await opener(record, RecordingListener(), known_revision=era)
        first = await call(link, "first")
        await link.aclose()
        await authorizer.token(record, rejected=(await authorizer.token(record)).access)
        link = await opener(record, RecordingListener(), known_revision=era)
        second = await call(link, "second")
        await link.aclose()

    assert (login.issuer.rstrip("/"), login.renews) == (url.removesuffix("/mcp"), True)
    assert [one["content"][0]["text"] for one in (first, second)] == ["first", "second"]
