"""Gets a token for the server of a record, by the grant that its record names.

Tokens of the gateway itself are not kept; those of a login are in `grants`. A caller's own token is never
used.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final
from weakref import WeakValueDictionary

from toolgate.model.servers import HttpEndpoint, OAuth, ServerRecord
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.http.responses import NO_CHALLENGE, BearerChallenge, provoke_challenge
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey, StoredGrant
from toolgate.upstream.oauth.metadata import (
    AuthorizationServer,
    OAuthFailed,
    TokenParties,
    covers_url,
    find_authority,
    find_parties,
)
from toolgate.upstream.oauth.tokens import OAuthClient, OAuthToken, TokenEndpoint, find_client

_LOG_IN: Final = "`toolgate servers login {}`"


class Authorizer:
    """Requests tokens, and renews those of logins."""

    def __init__(
        self,
        secrets: Secrets,
        fetcher: Fetcher,
        *,
        clock_s: Callable[[], float],
        grants: GrantFiles | None = None,
        own_url: str | None = None,
    ) -> None:
        """Without `grants`, no one can log in here. `own_url` is the URL of the gateway's client metadata."""
        self._secrets = secrets
        self._fetcher = fetcher
        self._clock_s = clock_s
        self._locks: WeakValueDictionary[LoginKey, asyncio.Lock] = WeakValueDictionary()
        self.grants = grants
        self.own_url = own_url

    async def token(self, record: ServerRecord, rejected: str | None = None) -> OAuthToken:
        """A token for the server of `record`, which has `oauth`. Raises StartFailed.

        `rejected` is a token that the server no longer takes, whatever its expiry says.
        """
        endpoint, oauth = _require_oauth(record)
        try:
            if oauth.grant == "client_credentials":
                client = self._build_client(oauth)
                parties = await self._find_parties(endpoint, oauth)
                form = {"grant_type": oauth.grant, "resource": parties.resource, **build_scope(oauth.scopes)}
                return await self.token_endpoint(parties.authority).request(client, form)
            return await self._token_of_login(LoginKey(record.server_id, oauth.owner), endpoint, rejected)
        except OAuthFailed as exc:
            raise StartFailed(
                str(exc), fatal=exc.is_final, needs_login=exc.is_final and bool(oauth.owner)
            ) from exc

    def has_login(self, record: ServerRecord) -> bool:
        """Whether there is a login for `record`, valid or not."""
        key = LoginKey(record.server_id, _require_oauth(record)[1].owner)
        return self.grants is not None and self.grants.get(key) is not None

    async def find_login_parties(self, endpoint: HttpEndpoint, oauth: OAuth) -> TokenParties:
        """The parties of a new login, with the scopes that the server requires of a person."""
        challenge = await provoke_challenge(self._fetcher, self._secrets.expand(endpoint.url))
        return await self._find_parties(endpoint, oauth, challenge)

    async def find_login_client(
        self, oauth: OAuth, authority: AuthorizationServer, redirect_uri: str
    ) -> OAuthClient:
        """The client for a new login. Raises OAuthFailed and StartFailed."""
        if oauth.client_id is not None:
            return self._build_client(oauth)
        return await find_client(self._fetcher, authority, own_url=self.own_url, redirect_uri=redirect_uri)

    async def _find_parties(
        self, endpoint: HttpEndpoint, oauth: OAuth, challenge: BearerChallenge = NO_CHALLENGE
    ) -> TokenParties:
        """The resource of a token for `endpoint`, and who issues it. Raises OAuthFailed and StartFailed."""
        issuer = None if oauth.issuer is None else self._secrets.expand(oauth.issuer)
        return await find_parties(self._fetcher, self._secrets.expand(endpoint.url), issuer, challenge)

    def _build_client(self, oauth: OAuth, grant: StoredGrant | None = None) -> OAuthClient:
        """The client that the record names, or else the one of the login. Raises StartFailed."""
        if oauth.client_id is None:
            assert grant is not None
            return grant.registered_client or OAuthClient(id=grant.client_id)
        ref = oauth.client_secret_ref
        secret = None if ref is None else self._secrets.secret(ref)
        return OAuthClient(id=self._secrets.expand(oauth.client_id), secret=secret)

    def token_endpoint(self, authority: AuthorizationServer) -> TokenEndpoint:
        return TokenEndpoint(self._fetcher, authority, clock_s=self._clock_s)

    def lock(self, key: LoginKey) -> asyncio.Lock:
        """Hold it to change a login: a renewal in flight must not undo a change made meanwhile.

        And a refresh token is often valid for one use: a second use would invalidate the first.
        """
        return self._locks.setdefault(key, asyncio.Lock())

    async def store(self, key: LoginKey, grant: StoredGrant) -> None:
        """Store the grant of a login or its renewal. Raises OAuthFailed."""
        assert self.grants is not None
        try:
            await self.grants.put(key, grant)
        except OSError as exc:
            raise OAuthFailed(f"the login cannot be kept: {exc.strerror}") from exc

    async def revoke(self, grant: StoredGrant, oauth: OAuth) -> bool:
        """Revoke a grant at its authorization server. Whether the server confirmed it."""
        try:
            authority = await find_authority(self._fetcher, grant.issuer)
            return await self.token_endpoint(authority).revoke(self._build_client(oauth, grant), grant.token)
        except (OAuthFailed, StartFailed):
            return False

    def is_for(self, grant: StoredGrant, endpoint: HttpEndpoint) -> bool:
        """Whether a grant may be used for `endpoint`: same resource, issuer and client.

        Raises StartFailed.
        """
        oauth = endpoint.oauth
        if oauth is None or oauth.grant != "authorization_code":
            return False
        if oauth.issuer is not None and grant.issuer != self._secrets.expand(oauth.issuer):
            return False
        if oauth.client_id is None:
            is_same_client = grant.registered_client is not None or grant.client_id == self.own_url
        else:
            is_same_client = grant.client_id == self._secrets.expand(oauth.client_id)
        return is_same_client and covers_url(grant.resource, self._secrets.expand(endpoint.url))

    async def _token_of_login(
        self, key: LoginKey, endpoint: HttpEndpoint, rejected: str | None
    ) -> OAuthToken:
        async with self.lock(key):
            grant = self._require_grant(key, endpoint)
            renew_at_s = grant.token.renew_at_s
            # A rejected token may have been replaced already, for another connection that uses it.
            is_good = grant.access != rejected and (renew_at_s is None or self._clock_s() < renew_at_s)
            return grant.token if is_good else await self._renew(key, endpoint, grant)

    async def _renew(self, key: LoginKey, endpoint: HttpEndpoint, grant: StoredGrant) -> OAuthToken:
        log_in = _LOG_IN.format(key.server_id)
        if grant.refresh is None:
            raise OAuthFailed(f"the login has expired: {log_in}", is_final=True)
        assert endpoint.oauth is not None
        authority = await find_authority(self._fetcher, grant.issuer)
        client = self._build_client(endpoint.oauth, grant)
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh, "resource": grant.resource}
        try:
            token = await self.token_endpoint(authority).request(client, form)
        except OAuthFailed as exc:
            if not exc.is_final:
                raise
            raise OAuthFailed(f"{exc}: log in again with {log_in}", is_final=True) from exc
        self._require_grant(key, endpoint)  # its server or its principal may be gone meanwhile
        renewed = grant.renewed(token)
        await self.store(key, renewed)
        return renewed.token

    def _require_grant(self, key: LoginKey, endpoint: HttpEndpoint) -> StoredGrant:
        """The grant of a login for this very record. Raises OAuthFailed."""
        if self.grants is None:
            raise OAuthFailed(
                "no one can log in where nodes run apart from control: use the grant `client_credentials`",
                is_final=True,
            )
        grant = self.grants.get(key)
        log_in = _LOG_IN.format(key.server_id)
        if grant is None:
            who = "you have not" if key.owner else "no one has"
            raise OAuthFailed(f"{who} logged in to it yet: {log_in}", is_final=True)
        if not self.is_for(grant, endpoint):
            raise OAuthFailed(f"its record has changed since the login: {log_in}", is_final=True)
        return grant


def build_scope(scopes: Collection[str]) -> dict[str, str]:
    """The `scope` of a request; none if there are no scopes to request."""
    return {"scope": " ".join(scopes)} if scopes else {}


def _require_oauth(record: ServerRecord) -> tuple[HttpEndpoint, OAuth]:
    assert record.http is not None
    assert record.http.oauth is not None
    return record.http, record.http.oauth
