"""Gets tokens for servers by the grants in their records, and connects to the servers with them.

A server whose record has no `oauth` gets the connection of its transport, with nothing in between. Renewal
runs next to the calls and never makes one wait. Tokens of the gateway itself are not kept; those of a login
are in `grants`. A caller's own token is never used.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final, Unpack
from weakref import WeakValueDictionary

from toolgate.errors import LoginRequired, ServerUnavailable, ToolgateError
from toolgate.model.servers import HttpEndpoint, OAuth, ServerRecord
from toolgate.upstream.connection.contract import ConnectionListener, Connector, ServerHandshake, StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.http.responses import NO_CHALLENGE, BearerChallenge, provoke_challenge
from toolgate.upstream.http.streamable import StreamableConnection, StreamableConnector
from toolgate.upstream.oauth.authority import (
    AuthorizationServer,
    OAuthClient,
    OAuthFailed,
    OAuthToken,
    TokenEndpoint,
    TokenParties,
    covers_url,
    find_authority,
    find_client,
    find_parties,
)
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey, StoredGrant

_LOG_IN: Final = "`toolgate servers login {}`"


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Requests tokens, and renews those of logins."""

    secrets: Secrets
    fetcher: Fetcher
    clock_s: Callable[[], float]
    grants: GrantFiles | None = None
    """Without them, no one can log in here."""
    own_url: str | None = None
    """The URL of the gateway's client metadata."""
    _locks: WeakValueDictionary[LoginKey, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def token(self, record: ServerRecord, rejected: str | None = None) -> OAuthToken:
        """A token for the server of `record`, which has `oauth`. Raises StartFailed.

        `rejected` is a token that the server no longer accepts, even before its expiry.
        """
        endpoint, oauth = _require_oauth(record)
        try:
            if oauth.grant == "client_credentials":
                client = self._build_client(oauth)
                parties = await self._find_parties(endpoint, oauth)
                form = {"grant_type": oauth.grant, "resource": parties.resource, **build_scope(oauth.scopes)}
                return await self.token_endpoint(parties.authority).request(client, form)
            key = LoginKey(record.server_id, oauth.owner)
            async with self.lock(key):
                grant = self._require_grant(key, endpoint)
                renew_at_s = grant.renew_at_s
                # A rejected token may have been replaced already, for another connection that uses it.
                is_good = grant.access != rejected and (renew_at_s is None or self.clock_s() < renew_at_s)
                return grant if is_good else await self._renew(key, endpoint, grant)
        except OAuthFailed as exc:
            needs_login = exc.is_final and bool(oauth.owner)
            raise StartFailed(str(exc), fatal=exc.is_final, needs_login=needs_login) from exc

    async def find_login(
        self, endpoint: HttpEndpoint, oauth: OAuth, redirect_uri: str
    ) -> tuple[TokenParties, OAuthClient]:
        """The parties and the client of a new login, with the scopes that the server requires of a person.

        Raises OAuthFailed and StartFailed.
        """
        challenge = await provoke_challenge(self.fetcher, self.secrets.expand(endpoint.url))
        parties = await self._find_parties(endpoint, oauth, challenge)
        _check_support(parties.authority, oauth.client_id)
        if oauth.client_id is not None:
            return parties, self._build_client(oauth)
        own_url, authority = self.own_url, parties.authority
        return parties, await find_client(self.fetcher, authority, own_url=own_url, redirect_uri=redirect_uri)

    async def _find_parties(
        self, endpoint: HttpEndpoint, oauth: OAuth, challenge: BearerChallenge = NO_CHALLENGE
    ) -> TokenParties:
        """The resource of a token for `endpoint`, and who issues it. Raises OAuthFailed and StartFailed."""
        issuer = None if oauth.issuer is None else self.secrets.expand(oauth.issuer)
        return await find_parties(self.fetcher, self.secrets.expand(endpoint.url), issuer, challenge)

    def _build_client(self, oauth: OAuth, grant: StoredGrant | None = None) -> OAuthClient:
        """The client that the record names, or else the one of the login. Raises StartFailed."""
        if oauth.client_id is None:
            assert grant is not None
            return grant.registered_client or OAuthClient(id=grant.client_id)
        ref = oauth.client_secret_ref
        secret = None if ref is None else self.secrets.read_secret(ref)
        return OAuthClient(id=self.secrets.expand(oauth.client_id), secret=secret)

    def token_endpoint(self, authority: AuthorizationServer) -> TokenEndpoint:
        return TokenEndpoint(self.fetcher, authority, self.clock_s)

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
            raise OAuthFailed(f"the login cannot be stored: {exc.strerror}") from exc

    async def revoke(self, grant: StoredGrant, oauth: OAuth) -> bool:
        """Revoke a grant at its authorization server; returns whether that confirmed it."""
        try:
            authority = await find_authority(self.fetcher, grant.issuer)
            return await self.token_endpoint(authority).revoke(self._build_client(oauth, grant), grant)
        except (OAuthFailed, StartFailed):
            return False

    def is_for(self, grant: StoredGrant, endpoint: HttpEndpoint) -> bool:
        """Whether a grant may be used for `endpoint`: same resource, issuer and client.

        Raises StartFailed.
        """
        oauth = endpoint.oauth
        if oauth is None or oauth.grant != "authorization_code":
            return False
        if oauth.issuer is not None and grant.issuer != self.secrets.expand(oauth.issuer):
            return False
        if oauth.client_id is None:
            is_same_client = grant.registered_client is not None or grant.client_id == self.own_url
        else:
            is_same_client = grant.client_id == self.secrets.expand(oauth.client_id)
        return is_same_client and covers_url(grant.resource, self.secrets.expand(endpoint.url))

    async def _renew(self, key: LoginKey, endpoint: HttpEndpoint, grant: StoredGrant) -> OAuthToken:
        log_in = _LOG_IN.format(key.server_id)
        if grant.refresh is None:
            raise OAuthFailed(f"the login has expired: run {log_in}", is_final=True)
        assert endpoint.oauth is not None
        authority = await find_authority(self.fetcher, grant.issuer)
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
        return renewed

    def _require_grant(self, key: LoginKey, endpoint: HttpEndpoint) -> StoredGrant:
        """The grant of a login for this very record. Raises OAuthFailed."""
        if self.grants is None:
            reason = "nodes that run apart from the control plane have no logins"
            raise OAuthFailed(f"{reason}: use the grant `client_credentials`", is_final=True)
        grant = self.grants.get(key)
        log_in = _LOG_IN.format(key.server_id)
        if grant is None:
            owner = "you" if key.owner else "an administrator"
            raise OAuthFailed(f"{owner} must log in first: run {log_in}", is_final=True)
        if not self.is_for(grant, endpoint):
            raise OAuthFailed(f"its record has changed since the login: run {log_in}", is_final=True)
        return grant


def _check_support(authority: AuthorizationServer, client_id: str | None) -> None:
    if authority.authorization_endpoint is None:
        raise OAuthFailed("its authorization server has no authorization endpoint")
    if "S256" not in authority.code_challenge_methods_supported:
        raise OAuthFailed("its authorization server does not support PKCE with S256")
    is_url = client_id is not None and client_id.startswith("https://")
    if is_url and not authority.client_id_metadata_document_supported:
        raise OAuthFailed("its authorization server accepts no URL as `client_id`: register a client there")


def build_scope(scopes: Collection[str]) -> dict[str, str]:
    """The `scope` of a request; none if there are no scopes to request."""
    return {"scope": " ".join(scopes)} if scopes else {}


def _require_oauth(record: ServerRecord) -> tuple[HttpEndpoint, OAuth]:
    assert record.http is not None
    assert record.http.oauth is not None
    return record.http, record.http.oauth


MIN_GAP_S: Final = 5.0  # between two token requests, however often the server rejects the token


async def renew_tokens(
    token: OAuthToken,
    rejected: asyncio.Event,
    obtain: Callable[[str | None], Awaitable[OAuthToken]],
    *,
    on_token: Callable[[OAuthToken], None],
    clock_s: Callable[[], float],
    min_gap_s: float = MIN_GAP_S,
) -> None:
    """Obtain another token before one expires, and when the server has `rejected` it, until cancelled.

    `obtain` takes the token that the server rejected, if any. Raises StartFailed once there is no other.
    """
    while True:
        await asyncio.sleep(min_gap_s)
        left_s = None if token.renew_at_s is None else max(0.0, token.renew_at_s - clock_s())
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await rejected.wait()
        try:
            token = await obtain(token.access if rejected.is_set() else None)
        except StartFailed as exc:
            if exc.fatal or (token.expires_at_s is not None and token.expires_at_s <= clock_s()):
                raise
        else:
            rejected.clear()
            on_token(token)


@dataclass(frozen=True, slots=True)
class OAuthConnector(Connector):
    """A connector for records with and without `oauth`."""

    connector: StreamableConnector
    authorizer: Authorizer
    min_gap_s: float = MIN_GAP_S

    async def __call__(
        self, record: ServerRecord, listener: ConnectionListener, **handshake: Unpack[ServerHandshake]
    ) -> StreamableConnection:
        connect = partial(self.connector, **handshake)
        if record.http is None or record.http.oauth is None:
            return await connect(record, listener)
        oauth, grants = record.http.oauth, self.authorizer.grants
        has_shared_login = grants is not None and grants.get(LoginKey(record.server_id)) is not None
        # What all callers see comes from a shared login or none: no principal lends its own.
        if oauth.per_principal and not oauth.owner and not has_shared_login:
            try:
                return await connect(_with_token(record, record.http, None), listener)
            except StartFailed as exc:
                login = f"`toolgate servers login {record.server_id} --shared`"
                raise exc.with_message(f"{exc}; run {login} to have it listed") from exc
        token = await self.authorizer.token(record)
        connection = await connect(_with_token(record, record.http, token), listener)
        rejected = asyncio.Event()

        async def keep_token() -> None:
            try:
                await renew_tokens(
                    token,
                    rejected,
                    partial(self.authorizer.token, record),
                    on_token=lambda renewed: connection.authorize(renewed.access),
                    clock_s=self.authorizer.clock_s,
                    min_gap_s=self.min_gap_s,
                )
            except StartFailed as exc:
                # As if the server were gone: the pool opens another connection and reports why it cannot.
                listener.on_closed(str(exc))

        def on_refused(refusal: ServerUnavailable) -> None:
            if refusal.data.get("status") == 401:
                rejected.set()
            if scopes := refusal.data.get("scopes"):
                raise _explain_missing_scopes(record, scopes, refusal) from refusal

        connection.on_refused = on_refused
        connection.background.start(keep_token())
        return connection


def _with_token(record: ServerRecord, endpoint: HttpEndpoint, token: OAuthToken | None) -> ServerRecord:
    """`record` for its transport: with the token as a header, and without `oauth`."""
    added = {} if token is None else {"Authorization": f"Bearer {token.access}"}
    headers = MappingProxyType({**endpoint.headers, **added})
    return replace(record, http=replace(endpoint, headers=headers, oauth=None))


def _explain_missing_scopes(
    record: ServerRecord, scopes: Sequence[str], rejection: ServerUnavailable
) -> ToolgateError:
    """The error of a token without enough scopes. The server's claim alone gets it no other token."""
    _, oauth = _require_oauth(record)
    if oauth.grant == "client_credentials":
        hint = "add the scopes in `data.scopes` to `oauth.scopes` of the server's record, if it may have them"
        return ServerUnavailable(str(rejection), hint=hint, data=rejection.data)
    more = " ".join(f"--scope {shlex.quote(scope)}" for scope in scopes)
    hint = f"log in again with `toolgate servers login {record.server_id} {more}`"
    if not oauth.owner:
        return ServerUnavailable(str(rejection), hint=f"have an administrator {hint}", data=rejection.data)
    message = f"server `{record.server_id}` requires a login with more scopes than yours"
    return LoginRequired(message, hint=hint, data=rejection.data)
