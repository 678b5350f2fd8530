"""Logging in to a server: somebody agrees in a browser, and the gateway gets the token (RFC 6749, RFC 7636).

What was begun is kept in memory, for whoever began it, for ten minutes and one use.
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
from toolgate.upstream.oauth.authorizer import Authorizer, build_scope
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey, StoredGrant
from toolgate.upstream.oauth.metadata import AuthorizationServer, OAuthFailed, TokenParties
from toolgate.upstream.oauth.tokens import OAuthClient, OAuthToken

LOGIN_S: Final = 600
MAX_LOGINS: Final = 256
MAX_LOGINS_EACH: Final = 32
"""Begun and not finished, by all and by one principal. The oldest gives way: beginning again costs little."""
MAX_BEGINNING_EACH: Final = 4
"""At this very moment, by one principal: each has servers elsewhere asked."""
PrincipalExists = Callable[[str], bool]
"""Whether the principal of this id may come again."""
Revoke = Callable[[], Awaitable[bool]]
"""Has a token taken back; whether its authorization server says that it did."""
MAX_LOGIN_SCOPES: Final = 256
"""Scopes that one login asks for, however often somebody came back for more."""
OFFLINE: Final = "offline_access"
"""The scope by which some authorization servers give what renews a token (SEP-2207)."""
_BEGIN_AGAIN: Final = "begin again with `toolgate servers login ID`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLogin:
    """Where somebody agrees, and how the answer is recognised."""

    url: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who is logged in to a server, as far as may be shown."""

    issuer: str
    expires_at_s: float | None
    """Unix time at which the token expires. None: it was not said."""
    renews: bool
    """Whether the gateway can get another one by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginCallback:
    """What a browser came back with."""

    state: str
    code: str = field(repr=False)
    issuer: str | None = None
    """Who it says it is from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoginAttempt:
    whose: LoginKey
    principal: str
    """Who began it; for a login that serves all callers, too."""
    parties: TokenParties
    client: OAuthClient
    scopes: tuple[str, ...]
    redirect_uri: str
    began_s: float
    verifier: str = field(repr=False)

    def earned(self, token: OAuthToken) -> StoredGrant:
        """What is kept of it. A secret that an operator named is not."""
        client = self.client
        return StoredGrant(
            owner=self.whose.owner,
            issuer=self.parties.authority.issuer,
            client_id=client.id,
            client_secret=None if client.method is None else client.secret,
            client_method=client.method,
            resource=self.parties.resource,
            scopes=self.scopes,
            access=token.access,
        ).renewed(token)


class Logins:
    """Of a process that calls servers and keeps files."""

    def __init__(self, authorizer: Authorizer, grants: GrantFiles, *, clock_s: Callable[[], float]) -> None:
        self._authorizer = authorizer
        self._grants = grants
        self._clock_s = clock_s
        self._pending: dict[str, _LoginAttempt] = {}
        self._beginning: Counter[str] = Counter()
        self._servers: Mapping[str, ServerRecord] | None = None
        self._is_there: PrincipalExists = lambda _principal_id: True

    @property
    def own_url(self) -> str | None:
        """Where the gateway shows who it is; None where authorization servers could not read it."""
        return self._authorizer.own_url

    async def begin(
        self, record: ServerRecord, *, principal: str, redirect_uri: str, scopes: Collection[str] = ()
    ) -> PendingLogin:
        """For the owner in `record`, or for all callers; with `scopes` beside those of the login before.

        Raises InvalidRequest; ServerBusy where `principal` begins too many at this very moment; and
        ServerUnavailable where nobody can be asked.
        """
        endpoint, oauth = _require_login(record)
        _check_redirect(redirect_uri)
        if self._beginning[principal] >= MAX_BEGINNING_EACH:
            raise ServerBusy("other logins of yours are being begun", hint="retry in a moment")
        self._beginning[principal] += 1
        try:
            parties = await self._authorizer.login_parties(endpoint)
            _check_fit(parties.authority, oauth.client_id)
            client = await self._authorizer.login_client(oauth, parties.authority, redirect_uri)
        except (OAuthFailed, StartFailed) as exc:
            raise ServerUnavailable(f"server `{record.server_id}`: {exc}") from exc
        finally:
            self._beginning[principal] -= 1
            if not self._beginning[principal]:
                del self._beginning[principal]
        whose = LoginKey(record.server_id, oauth.owner)
        before = self._grants.get(whose) if scopes else None
        pending = _LoginAttempt(
            whose=whose,
            principal=principal,
            parties=parties,
            client=client,
            scopes=_choose_scopes(parties, oauth, () if before is None else before.scopes, scopes),
            redirect_uri=redirect_uri,
            began_s=self._clock_s(),
            verifier=secrets.token_urlsafe(48),
        )
        state = secrets.token_urlsafe(24)
        self._remember(state, pending)
        return PendingLogin(url=_build_authorization_url(pending, state), state=state)

    async def finish(self, whose: LoginKey, *, principal: str, answer: LoginCallback) -> Login:
        """Exchange the code somebody came back with. Raises InvalidRequest and ServerUnavailable."""
        pending = self._take(whose, principal=principal, state=answer.state)
        _check_issuer(pending.parties.authority, answer.issuer)
        form = {
            "grant_type": "authorization_code",
            "code": answer.code,
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
            "resource": pending.parties.resource,
        }
        try:
            token = await self._authorizer.endpoint_of(pending.parties).ask(pending.client, form)
            grant = pending.earned(token)
            async with self._authorizer.turn(whose):
                await self._authorizer.keep(whose, grant)
        except OAuthFailed as exc:
            raise ServerUnavailable(f"server `{whose.server_id}`: {exc}", hint=_BEGIN_AGAIN) from exc
        # The principal may have lost its key meanwhile; the next one of that name must not inherit this.
        if not self._has_use(whose):
            await self._drop(whose)
            raise InvalidRequest("the server or the key was changed meanwhile", hint=_BEGIN_AGAIN)
        return _describe_grant(grant)

    def of(self, whose: LoginKey) -> Login | None:
        """Who is logged in to a server."""
        grant = self._grants.get(whose)
        return None if grant is None else _describe_grant(grant)

    async def end(self, record: ServerRecord) -> Revoke | None:
        """Forget the login of the owner in `record`, or that for all; None where there was none.

        What is returned gives the token back to its authorization server. Raises StorageFailed.
        """
        endpoint, oauth = _require_login(record)
        whose = LoginKey(record.server_id, oauth.owner)
        # Not past a renewal: what it earns would be good for ever, and known to nobody.
        async with self._authorizer.turn(whose):
            grant = await self._drop(whose)
        return None if grant is None else partial(self._authorizer.revoke, grant, endpoint)

    async def tidy(self, servers: Mapping[str, ServerRecord], is_there: PrincipalExists) -> None:
        """Forget what nobody may use from now on: the server is gone or another, or the principal is gone.

        Waits for no authorization server: a renewal under way finds its login gone. Raises StorageFailed.
        """
        self._servers, self._is_there = servers, is_there
        for whose in self._grants:
            if not self._has_use(whose):
                await self._drop(whose)

    def _has_use(self, whose: LoginKey) -> bool:
        if self._servers is None:
            return True  # nobody has said yet what there is
        record, grant = self._servers.get(whose.server_id), self._grants.get(whose)
        if record is None or record.http is None or grant is None:
            return False
        if whose.owner and not (record.is_per_principal and self._is_there(whose.owner)):
            return False
        try:
            return self._authorizer.is_for(grant, record.http)
        except StartFailed:
            return True  # a variable is missing for now: nothing can be said

    async def _drop(self, whose: LoginKey) -> StoredGrant | None:
        try:
            return await self._grants.drop(whose)
        except OSError as exc:
            raise StorageFailed(f"the file of a login cannot be removed: {exc.strerror}") from exc

    def _remember(self, state: str, pending: _LoginAttempt) -> None:
        oldest_s = self._clock_s() - LOGIN_S
        self._pending = {key: one for key, one in self._pending.items() if one.began_s > oldest_s}
        own = [key for key, one in self._pending.items() if one.principal == pending.principal]
        if len(own) >= MAX_LOGINS_EACH:
            del self._pending[own[0]]
        if len(self._pending) >= MAX_LOGINS:
            del self._pending[next(iter(self._pending))]
        self._pending[state] = pending

    def _take(self, whose: LoginKey, *, principal: str, state: str) -> _LoginAttempt:
        """What was begun with `state`, once, and only by who began it."""
        pending = self._pending.get(state)
        is_whole = pending is not None and pending.began_s > self._clock_s() - LOGIN_S
        if pending is None or not is_whole or (pending.whose, pending.principal) != (whose, principal):
            raise InvalidRequest("no such login was begun, or too long ago", hint=_BEGIN_AGAIN)
        return self._pending.pop(state)


def _require_login(record: ServerRecord) -> tuple[HttpEndpoint, OAuth]:
    endpoint = record.http
    if endpoint is None or endpoint.oauth is None or endpoint.oauth.grant != "authorization_code":
        raise InvalidRequest(
            f"nobody logs in to server `{record.server_id}`",
            hint="give its record `http.oauth` with the grant `authorization_code` first",
        )
    return endpoint, endpoint.oauth


def _check_redirect(redirect_uri: str) -> None:
    """The code must come back to the machine of who began, and nowhere else (RFC 8252, 7.3)."""
    try:
        target = parse_target(redirect_uri)
    except EgressRefused as exc:
        raise InvalidRequest(f"`redirect_uri`: {exc}") from exc
    if target.is_tls or not is_loopback(target.host) or "?" in target.path:
        raise InvalidRequest("`redirect_uri` must be like `http://127.0.0.1:PORT/callback`")


def _choose_scopes(
    parties: TokenParties, oauth: OAuth, before: Collection[str], more: Collection[str]
) -> tuple[str, ...]:
    """The scopes to ask for: the record's, or else what the server wants; and what was asked for before."""
    scopes = dict.fromkeys((*(oauth.scopes or parties.scopes), *more, *before))
    wanted = tuple(scopes)[:MAX_LOGIN_SCOPES]
    is_renewable = bool(wanted) and OFFLINE in parties.authority.scopes_supported
    return (*wanted, OFFLINE) if is_renewable and OFFLINE not in wanted else wanted


def _check_fit(authority: AuthorizationServer, client_id: str | None) -> None:
    if authority.authorization_endpoint is None:
        raise OAuthFailed("its authorization server has no place to log in")
    if "S256" not in authority.code_challenge_methods_supported:
        raise OAuthFailed("its authorization server does not support PKCE with S256")
    is_url = client_id is not None and client_id.startswith("https://")
    if is_url and not authority.client_id_metadata_document_supported:
        raise OAuthFailed("its authorization server takes no URL as `client_id`: register a client there")


def _check_issuer(authority: AuthorizationServer, issuer: str | None) -> None:
    """An answer that names its sender must name the one we asked (RFC 9207)."""
    is_missing = issuer is None and authority.authorization_response_iss_parameter_supported
    if is_missing or issuer not in (None, authority.issuer):
        raise InvalidRequest(
            "the answer is not from the authorization server that was asked", hint=_BEGIN_AGAIN
        )


def _build_authorization_url(pending: _LoginAttempt, state: str) -> str:
    digest = hashlib.sha256(pending.verifier.encode("ascii")).digest()
    asked = {
        "response_type": "code",
        "client_id": pending.client.id,
        "redirect_uri": pending.redirect_uri,
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii"),
        "code_challenge_method": "S256",
        "resource": pending.parties.resource,
        **build_scope(pending.scopes),
    }
    endpoint = pending.parties.authority.authorization_endpoint or ""
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"


def _describe_grant(grant: StoredGrant) -> Login:
    return Login(issuer=grant.issuer, expires_at_s=grant.expires_at_s, renews=grant.refresh is not None)
