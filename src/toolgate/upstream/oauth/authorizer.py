"""A token for the server of a record, by the grant that its record names."""

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
    """Gets tokens. Those of the gateway itself are kept by nobody; those of a login are in `grants`."""

    def __init__(
        self,
        secrets: Secrets,
        fetcher: Fetcher,
        *,
        clock_s: Callable[[], float],
        grants: GrantFiles | None = None,
        own_url: str | None = None,
    ) -> None:
        """Without `grants`, nobody can log in here. `own_url` is where the gateway shows who it is."""
        self._secrets = secrets
        self._fetcher = fetcher
        self._clock_s = clock_s
        self._turns: WeakValueDictionary[LoginKey, asyncio.Lock] = WeakValueDictionary()
        self.grants = grants
        self.own_url = own_url

    async def token(self, record: ServerRecord, *, refused: str | None = None) -> OAuthToken:
        """For the server of `record`, which has `oauth`. Raises StartFailed.

        `refused` is the one that the server takes no more, whatever it says of itself.
        """
        assert record.http is not None
        assert record.http.oauth is not None
        oauth = record.http.oauth
        try:
            if oauth.grant == "client_credentials":
                return await self._by_credentials(record.http, oauth)
            return await self._by_login(LoginKey(record.server_id, oauth.owner), record.http, refused)
        except OAuthFailed as exc:
            raise StartFailed(
                str(exc), fatal=exc.is_final, needs_login=exc.is_final and bool(oauth.owner)
            ) from exc

    def has_login(self, record: ServerRecord) -> bool:
        """Whether there is a login that `record` could use, good or not."""
        assert record.http is not None
        assert record.http.oauth is not None
        whose = LoginKey(record.server_id, record.http.oauth.owner)
        return self.grants is not None and self.grants.get(whose) is not None

    async def login_parties(self, endpoint: HttpEndpoint) -> TokenParties:
        """As `_parties`, for somebody who is to agree: the server is asked what it wants of them."""
        challenge = await provoke_challenge(self._fetcher, self._secrets.expand(endpoint.url))
        return await self._parties(endpoint, challenge)

    async def login_client(
        self, oauth: OAuth, authority: AuthorizationServer, redirect_uri: str
    ) -> OAuthClient:
        """As whom to ask for a login. Raises OAuthFailed and StartFailed."""
        if oauth.client_id is not None:
            return self._client(oauth)
        return await find_client(self._fetcher, authority, own_url=self.own_url, redirect_uri=redirect_uri)

    async def _parties(
        self, endpoint: HttpEndpoint, challenge: BearerChallenge = NO_CHALLENGE
    ) -> TokenParties:
        """For whom a token for `endpoint` is, and who gives it. Raises OAuthFailed and StartFailed."""
        assert endpoint.oauth is not None
        issuer = endpoint.oauth.issuer
        expanded = None if issuer is None else self._secrets.expand(issuer)
        return await find_parties(self._fetcher, self._secrets.expand(endpoint.url), expanded, challenge)

    def _client(self, oauth: OAuth, grant: StoredGrant | None = None) -> OAuthClient:
        """As whom to ask: whom the record names, or else who logged in. Raises StartFailed."""
        if oauth.client_id is None:
            assert grant is not None
            return grant.registered_client or OAuthClient(id=grant.client_id)
        ref = oauth.client_secret_ref
        return OAuthClient(
            id=self._secrets.expand(oauth.client_id),
            secret=None if ref is None else self._secrets.secret(ref),
        )

    def endpoint_of(self, parties: TokenParties) -> TokenEndpoint:
        """Where tokens come from."""
        return TokenEndpoint(self._fetcher, parties.authority, clock_s=self._clock_s)

    def turn(self, whose: LoginKey) -> asyncio.Lock:
        """Held by whoever changes this login: a renewal under way must not undo what somebody did meanwhile.

        And a refresh token is often good for one use: a second would undo the first.
        """
        return self._turns.setdefault(whose, asyncio.Lock())

    async def keep(self, whose: LoginKey, grant: StoredGrant) -> None:
        """Store what a login or its renewal has earned. Raises OAuthFailed."""
        assert self.grants is not None
        try:
            await self.grants.put(whose, grant)
        except OSError as exc:
            raise OAuthFailed(f"the login cannot be kept: {exc.strerror}") from exc

    async def revoke(self, grant: StoredGrant, endpoint: HttpEndpoint) -> bool:
        """Have its authorization server take back what a login has earned; whether it says it did."""
        assert endpoint.oauth is not None
        try:
            authority = await find_authority(self._fetcher, grant.issuer)
            parties = TokenParties(grant.resource, authority)
            client = self._client(endpoint.oauth, grant)
            return await self.endpoint_of(parties).revoke(client, grant.token)
        except (OAuthFailed, StartFailed):
            return False

    def is_for(self, grant: StoredGrant, endpoint: HttpEndpoint) -> bool:
        """A token goes where it was given for, its refresh token to whom it is from. Raises StartFailed."""
        oauth = endpoint.oauth
        if oauth is None or oauth.grant != "authorization_code":
            return False
        issuer = grant.issuer if oauth.issuer is None else self._secrets.expand(oauth.issuer)
        return (
            grant.issuer == issuer
            and self._is_by(grant, oauth)
            and covers_url(grant.resource, self._secrets.expand(endpoint.url))
        )

    def _is_by(self, grant: StoredGrant, oauth: OAuth) -> bool:
        if oauth.client_id is None:
            return grant.registered_client is not None or grant.client_id == self.own_url
        return grant.client_id == self._secrets.expand(oauth.client_id)

    async def _by_credentials(self, endpoint: HttpEndpoint, oauth: OAuth) -> OAuthToken:
        client = self._client(oauth)
        parties = await self._parties(endpoint)
        form = {"grant_type": "client_credentials", "resource": parties.resource, **build_scope(oauth.scopes)}
        return await self.endpoint_of(parties).ask(client, form)

    async def _by_login(self, whose: LoginKey, endpoint: HttpEndpoint, refused: str | None) -> OAuthToken:
        async with self.turn(whose):
            grant = self._grant_for(whose, endpoint)
            renew_at_s = grant.token.renew_at_s
            # One that was refused may have been replaced already, for another link that shows it.
            is_good = grant.access != refused and (renew_at_s is None or self._clock_s() < renew_at_s)
            return grant.token if is_good else await self._renewed(whose, endpoint, grant)

    async def _renewed(self, whose: LoginKey, endpoint: HttpEndpoint, grant: StoredGrant) -> OAuthToken:
        log_in = _LOG_IN.format(whose.server_id)
        if grant.refresh is None:
            raise OAuthFailed(f"the login has expired: {log_in}", is_final=True)
        assert endpoint.oauth is not None
        parties = TokenParties(grant.resource, await find_authority(self._fetcher, grant.issuer))
        client = self._client(endpoint.oauth, grant)
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh, "resource": grant.resource}
        try:
            token = await self.endpoint_of(parties).ask(client, form)
        except OAuthFailed as exc:
            if not exc.is_final:
                raise
            raise OAuthFailed(f"{exc}: log in again with {log_in}", is_final=True) from exc
        self._grant_for(whose, endpoint)  # its server or its principal may be gone meanwhile
        renewed = grant.renewed(token)
        await self.keep(whose, renewed)
        return renewed.token

    def _grant_for(self, whose: LoginKey, endpoint: HttpEndpoint) -> StoredGrant:
        """What a login has earned, if it was for this very record. Raises OAuthFailed."""
        if self.grants is None:
            raise OAuthFailed(
                "nobody can log in where nodes run apart from control: use the grant `client_credentials`",
                is_final=True,
            )
        grant = self.grants.get(whose)
        log_in = _LOG_IN.format(whose.server_id)
        if grant is None:
            who = "you have not" if whose.owner else "nobody has"
            raise OAuthFailed(f"{who} logged in to it yet: {log_in}", is_final=True)
        if not self.is_for(grant, endpoint):
            raise OAuthFailed(f"its record has changed since the login: {log_in}", is_final=True)
        return grant


def build_scope(scopes: Collection[str]) -> dict[str, str]:
    """The `scope` of a request; none where there is none to ask for."""
    return {"scope": " ".join(scopes)} if scopes else {}
