"""Logins to servers: a person agrees in a browser, and the gateway gets the token (RFC 6749, RFC 7636).

An attempt is kept in memory for the principal that began it, for ten minutes and one use.
"""

import base64
import hashlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import urlencode

from toolgate.errors import InvalidRequest, ServerBusy, ServerUnavailable, StorageFailed
from toolgate.model.http import is_loopback
from toolgate.model.servers import HttpEndpoint, OAuth, ServerRecord
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.http.egress import EgressRefused, parse_target
from toolgate.upstream.oauth.authority import OAuthClient, OAuthFailed, OAuthToken, TokenParties
from toolgate.upstream.oauth.connector import Authorizer, build_scope
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey, StoredGrant

LOGIN_S: Final = 600  # a choice: a person reads, signs in and agrees; RFC 6749, 4.1.2, gives a code as long
MAX_LOGINS: Final = 256  # eight principals with all of theirs
MAX_LOGINS_EACH: Final = 32
"""Unfinished attempts, of all and of one principal. The oldest is dropped: a new one costs little."""
MAX_BEGINNING_EACH: Final = 4
"""Concurrent begins of one principal: each sends requests to other servers."""
PrincipalExists = Callable[[str], bool]
"""Whether the principal with this id may authenticate."""
Revoke = Callable[[], Awaitable[bool]]
"""Revokes a token; whether its authorization server confirmed it."""
MAX_LOGIN_SCOPES: Final = 256
"""Scopes of one login, however often a person added more."""
OFFLINE: Final = "offline_access"
"""The scope by which some authorization servers issue refresh tokens (SEP-2207)."""
_BEGIN_AGAIN: Final = "begin again with `toolgate servers login ID`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLogin:
    """A login that needs consent."""

    authorization_url: str
    """The URL to open in a browser."""
    state: str
    """The `state` of the redirect that finishes this login."""
    expires_in_s: int = LOGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The parts of a login to a server that may be shown."""

    issuer: str
    expires_at_s: float | None
    """Unix time at which the token expires. None: unknown."""
    renews: bool
    """Whether the gateway can renew the token by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoginAttempt:
    key: LoginKey
    principal: str
    """The principal that began it, also for a login that serves all callers."""
    parties: TokenParties
    client: OAuthClient
    scopes: tuple[str, ...]
    redirect_uri: str
    began_s: float
    verifier: str = field(default_factory=partial(secrets.token_urlsafe, 48), repr=False)

    def build_grant(self, token: OAuthToken) -> StoredGrant:
        """The grant to store, without a client secret that an operator configured."""
        client = self.client
        return StoredGrant(
            owner=self.key.owner,
            issuer=self.parties.authority.issuer,
            client_id=client.id,
            client_secret=None if client.method is None else client.secret,
            client_method=client.method,
            resource=self.parties.resource,
            scopes=self.scopes,
            access=token.access,
        ).renewed(token)


class Logins:
    """The logins of a process that calls servers and keeps files."""

    def __init__(self, authorizer: Authorizer, grants: GrantFiles, *, clock_s: Callable[[], float]) -> None:
        self.own_url = authorizer.own_url
        """The URL of the gateway's client metadata; None if authorization servers could not read it."""
        self._authorizer = authorizer
        self._grants = grants
        self._clock_s = clock_s
        self._attempts: dict[str, _LoginAttempt] = {}
        self._beginning: Counter[str] = Counter()
        self._servers: Mapping[str, ServerRecord] | None = None
        self._principal_exists: PrincipalExists = lambda _principal_id: True

    async def begin(
        self, record: ServerRecord, *, principal: str, redirect_uri: str, scopes: Collection[str] = ()
    ) -> PendingLogin:
        """Begin a login for the owner in `record`, or for all callers; adds `scopes` to the previous ones.

        Raises InvalidRequest, ServerBusy if `principal` begins too many at once, and ServerUnavailable if a
        server does not respond.
        """
        endpoint, oauth = _require_login(record)
        _check_redirect(redirect_uri)
        if self._beginning[principal] >= MAX_BEGINNING_EACH:
            raise ServerBusy("you are starting too many logins at once", hint="retry in a moment")
        self._beginning[principal] += 1
        try:
            parties, client = await self._authorizer.find_login(endpoint, oauth, redirect_uri)
        except (OAuthFailed, StartFailed) as exc:
            raise ServerUnavailable(f"server `{record.server_id}`: {exc}") from exc
        finally:
            self._beginning[principal] -= 1
            if not self._beginning[principal]:
                del self._beginning[principal]
        key = LoginKey(record.server_id, oauth.owner)
        before = self._grants.get(key) if scopes else None
        # Those of the record, or else those that the server requires; and the previous ones.
        first, previous = oauth.scopes or parties.scopes, () if before is None else before.scopes
        all_scopes = tuple(dict.fromkeys((*first, *scopes, *previous)))[:MAX_LOGIN_SCOPES]
        if all_scopes and OFFLINE not in all_scopes and OFFLINE in parties.authority.scopes_supported:
            all_scopes += (OFFLINE,)
        attempt = _LoginAttempt(
            key=key,
            principal=principal,
            parties=parties,
            client=client,
            scopes=all_scopes,
            redirect_uri=redirect_uri,
            began_s=self._clock_s(),
        )
        state = secrets.token_urlsafe(24)
        self._remember(state, attempt)
        return PendingLogin(authorization_url=_build_authorization_url(attempt, state), state=state)

    async def finish(
        self, key: LoginKey, *, principal: str, state: str, code: str, issuer: str | None
    ) -> Login:
        """Exchange the code of the callback, with its `state` and the issuer that it may name.

        Raises InvalidRequest and ServerUnavailable.
        """
        attempt = self._attempts.get(state)
        is_current = attempt is not None and attempt.began_s > self._clock_s() - LOGIN_S
        if attempt is None or not is_current or (attempt.key, attempt.principal) != (key, principal):
            raise InvalidRequest("this login was never started here, or has expired", hint=_BEGIN_AGAIN)
        del self._attempts[state]  # for one use
        authority = attempt.parties.authority
        # A callback that names its issuer must name the right one (RFC 9207).
        is_missing = issuer is None and authority.authorization_response_iss_parameter_supported
        if is_missing or issuer not in (None, authority.issuer):
            reason = "the callback is not from the authorization server of this login"
            raise InvalidRequest(reason, hint=_BEGIN_AGAIN)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
            "resource": attempt.parties.resource,
        }
        try:
            token = await self._authorizer.token_endpoint(authority).request(attempt.client, form)
            grant = attempt.build_grant(token)
            async with self._authorizer.lock(key):
                await self._authorizer.store(key, grant)
        except OAuthFailed as exc:
            raise ServerUnavailable(f"server `{key.server_id}`: {exc}", hint=_BEGIN_AGAIN) from exc
        # The principal may have lost its key meanwhile; the next one of that name must not inherit the login.
        if not self._is_usable(key):
            await self._drop(key)
            raise InvalidRequest("the server or the key was changed meanwhile", hint=_BEGIN_AGAIN)
        return _describe_grant(grant)

    def of(self, key: LoginKey) -> Login | None:
        grant = self._grants.get(key)
        return None if grant is None else _describe_grant(grant)

    async def end(self, record: ServerRecord) -> Revoke | None:
        """Forget the login of the owner in `record`, or of all callers; None if there was none.

        Returns a function that revokes the token at its authorization server. Raises StorageFailed.
        """
        _, oauth = _require_login(record)
        key = LoginKey(record.server_id, oauth.owner)
        # Not during a renewal: its new token would stay valid, and unknown to the gateway.
        async with self._authorizer.lock(key):
            grant = await self._drop(key)
        return None if grant is None else partial(self._authorizer.revoke, grant, oauth)

    async def tidy(self, servers: Mapping[str, ServerRecord], exists: PrincipalExists) -> None:
        """Forget logins whose server is gone or has changed, or whose principal is gone.

        Does not wait for authorization servers: a renewal in flight finds no login. Raises StorageFailed.
        """
        self._servers, self._principal_exists = servers, exists
        for key in self._grants:
            if not self._is_usable(key):
                await self._drop(key)

    def _is_usable(self, key: LoginKey) -> bool:
        if self._servers is None:
            return True  # the records are still to be loaded
        record, grant = self._servers.get(key.server_id), self._grants.get(key)
        if record is None or record.http is None or grant is None:
            return False
        if key.owner and not (record.is_per_principal and self._principal_exists(key.owner)):
            return False
        try:
            return self._authorizer.is_for(grant, record.http)
        except StartFailed:
            return True  # a variable is missing for now

    async def _drop(self, key: LoginKey) -> StoredGrant | None:
        try:
            return await self._grants.drop(key)
        except OSError as exc:
            raise StorageFailed(f"the file of a login cannot be removed: {exc.strerror}") from exc

    def _remember(self, state: str, attempt: _LoginAttempt) -> None:
        oldest_s = self._clock_s() - LOGIN_S
        self._attempts = {key: one for key, one in self._attempts.items() if one.began_s > oldest_s}
        own = [key for key, one in self._attempts.items() if one.principal == attempt.principal]
        if len(own) >= MAX_LOGINS_EACH:
            del self._attempts[own[0]]
        if len(self._attempts) >= MAX_LOGINS:
            del self._attempts[next(iter(self._attempts))]
        self._attempts[state] = attempt


def _require_login(record: ServerRecord) -> tuple[HttpEndpoint, OAuth]:
    endpoint = record.http
    if endpoint is None or endpoint.oauth is None or endpoint.oauth.grant != "authorization_code":
        hint = "set `http.oauth` with the grant `authorization_code` in its record first"
        raise InvalidRequest(f"server `{record.server_id}` does not use logins", hint=hint)
    return endpoint, endpoint.oauth


def _check_redirect(redirect_uri: str) -> None:
    """The code may go only to the machine of the person who logs in (RFC 8252, 7.3)."""
    try:
        target = parse_target(redirect_uri)
    except EgressRefused as exc:
        raise InvalidRequest(f"`redirect_uri`: {exc}") from exc
    if target.is_tls or not is_loopback(target.host) or "?" in target.path:
        raise InvalidRequest("`redirect_uri` must be like `http://127.0.0.1:PORT/callback`")


def _build_authorization_url(attempt: _LoginAttempt, state: str) -> str:
    digest = hashlib.sha256(attempt.verifier.encode("ascii")).digest()
    query = {
        "response_type": "code",
        "client_id": attempt.client.id,
        "redirect_uri": attempt.redirect_uri,
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii"),
        "code_challenge_method": "S256",
        "resource": attempt.parties.resource,
        **build_scope(attempt.scopes),
    }
    endpoint = attempt.parties.authority.authorization_endpoint or ""
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def _describe_grant(grant: StoredGrant) -> Login:
    return Login(issuer=grant.issuer, expires_at_s=grant.expires_at_s, renews=grant.refresh is not None)
