"""A token for the server of a record, by the grant that its record names."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from toolgate.model.servers import HttpEndpoint, OAuth, ServerRecord
from toolgate.upstream.fetch import Fetcher
from toolgate.upstream.link import StartFailed
from toolgate.upstream.oauth.grants import GrantFiles, StoredGrant
from toolgate.upstream.oauth.metadata import OAuthFailed, Parties, covers, find_authority, find_parties
from toolgate.upstream.oauth.tokens import Client, Token, TokenEndpoint
from toolgate.upstream.secrets import Secrets

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
    ) -> None:
        """Without `grants`, nobody can log in here."""
        self._secrets = secrets
        self._fetcher = fetcher
        self._clock_s = clock_s
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.grants = grants

    async def token(self, record: ServerRecord, *, is_refused: bool = False) -> Token:
        """For the server of `record`, which has `oauth`. Raises StartFailed.

        `is_refused`: the one that was given out last is not taken any more, whatever it says.
        """
        assert record.http is not None
        assert record.http.oauth is not None
        try:
            if record.http.oauth.grant == "client_credentials":
                return await self._by_credentials(record.http, record.http.oauth)
            return await self._by_login(record.server_id, record.http, is_refused=is_refused)
        except OAuthFailed as exc:
            raise StartFailed(str(exc), fatal=exc.is_final) from exc

    async def parties(self, endpoint: HttpEndpoint) -> Parties:
        """For whom a token for `endpoint` is, and who gives it. Raises OAuthFailed and StartFailed."""
        assert endpoint.oauth is not None
        issuer = endpoint.oauth.issuer
        expanded = None if issuer is None else self._secrets.expand(issuer)
        return await find_parties(self._fetcher, self._secrets.expand(endpoint.url), expanded)

    def client(self, oauth: OAuth) -> Client:
        """As whom to ask. Raises StartFailed."""
        ref = oauth.client_secret_ref
        return Client(
            id=self._secrets.expand(oauth.client_id),
            secret=None if ref is None else self._secrets.secret(ref),
        )

    def endpoint_of(self, parties: Parties) -> TokenEndpoint:
        """Where tokens come from."""
        return TokenEndpoint(self._fetcher, parties.authority, clock_s=self._clock_s)

    async def keep(self, server_id: str, parties: Parties, client: Client, token: Token) -> StoredGrant:
        """Store what a login or its renewal has earned. Raises OAuthFailed."""
        assert self.grants is not None
        grant = StoredGrant(
            issuer=parties.authority.issuer,
            client_id=client.id,
            resource=parties.resource,
            access=token.access,
            refresh=token.refresh,
            expires_at_s=token.expires_at_s,
            lifetime_s=token.lifetime_s,
        )
        try:
            await self.grants.put(server_id, grant)
        except OSError as exc:
            raise OAuthFailed(f"the login cannot be kept: {exc.strerror}") from exc
        return grant

    async def _by_credentials(self, endpoint: HttpEndpoint, oauth: OAuth) -> Token:
        client = self.client(oauth)
        parties = await self.parties(endpoint)
        form = {"grant_type": "client_credentials", "resource": parties.resource, **scope_of(oauth)}
        return await self.endpoint_of(parties).ask(client, form)

    async def _by_login(self, server_id: str, endpoint: HttpEndpoint, *, is_refused: bool) -> Token:
        # In turn: a refresh token is often good for one use, and a second would undo the first.
        async with self._turns[server_id]:
            grant = self._grant_for(server_id, endpoint)
            renew_at_s = grant.token.renew_at_s
            if not is_refused and (renew_at_s is None or self._clock_s() < renew_at_s):
                return grant.token
            return await self._renewed(server_id, endpoint, grant)

    async def _renewed(self, server_id: str, endpoint: HttpEndpoint, grant: StoredGrant) -> Token:
        if grant.refresh is None:
            raise OAuthFailed(f"the login has expired: {_LOG_IN.format(server_id)}", is_final=True)
        assert endpoint.oauth is not None
        parties = Parties(grant.resource, await find_authority(self._fetcher, grant.issuer))
        client = self.client(endpoint.oauth)
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh, "resource": grant.resource}
        try:
            token = await self.endpoint_of(parties).ask(client, form)
        except OAuthFailed as exc:
            if not exc.is_final:
                raise
            raise OAuthFailed(f"{exc}: log in again with {_LOG_IN.format(server_id)}", is_final=True) from exc
        if token.refresh is None:
            token = Token(
                access=token.access,
                expires_at_s=token.expires_at_s,
                lifetime_s=token.lifetime_s,
                refresh=grant.refresh,
            )
        await self.keep(server_id, parties, client, token)
        return token

    def _grant_for(self, server_id: str, endpoint: HttpEndpoint) -> StoredGrant:
        """What a login has earned, if it was for this very record. Raises OAuthFailed."""
        if self.grants is None:
            raise OAuthFailed(
                "nobody can log in where nodes run apart from control: use the grant `client_credentials`",
                is_final=True,
            )
        grant = self.grants.get(server_id)
        if grant is None:
            raise OAuthFailed(f"nobody has logged in to it yet: {_LOG_IN.format(server_id)}", is_final=True)
        if not self._is_for(grant, endpoint):
            raise OAuthFailed(
                f"its record has changed since the login: {_LOG_IN.format(server_id)}", is_final=True
            )
        return grant

    def _is_for(self, grant: StoredGrant, endpoint: HttpEndpoint) -> bool:
        """A token goes where it was given for, and its refresh token to whom it is from."""
        oauth = endpoint.oauth
        assert oauth is not None
        issuer = grant.issuer if oauth.issuer is None else self._secrets.expand(oauth.issuer)
        return (
            grant.issuer == issuer
            and grant.client_id == self._secrets.expand(oauth.client_id)
            and covers(grant.resource, self._secrets.expand(endpoint.url))
        )


def scope_of(oauth: OAuth) -> dict[str, str]:
    """The `scope` of a request; none where the record names none."""
    return {"scope": " ".join(oauth.scopes)} if oauth.scopes else {}
