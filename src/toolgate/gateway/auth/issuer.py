"""OpenID Connect: the issuer's metadata, the gateway's resource metadata, and browser logins.

The console is a public client (RFC 6749, section 2.1): it has no secret, and a code is useless without the
verifier of the browser that began the login (PKCE, RFC 7636). The gateway keeps no login state. Only the
token verifier decides whether a token is valid here.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Never

from pydantic import BaseModel, ConfigDict, Field

from toolgate import errors
from toolgate.gateway.auth.identity import Identities
from toolgate.model.principals import IntegrationState, Role
from toolgate.registry.records.body import FieldDescriptions
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, parse_secure_target

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""The path of the gateway's metadata (RFC 9728); a resource's own path follows it."""
METADATA_TTL_S: Final = 300.0  # a choice: the endpoints of an issuer seldom move
METADATA_RETRY_S: Final = 10.0  # the pause after a failure: any client can trigger a fetch
MAX_CONCURRENT_LOGINS: Final = 8  # codes being redeemed: anyone may send one, and each holds a connection
_ERROR = re.compile(r"[a-z_]{1,40}")
_TOKENS: Final = ("access_token", "id_token")
"""The issuer's tokens, in the order to try them. The access token is for the gateway but may be opaque;
the ID token is for the gateway if `audience` is the client id."""
# The metadata URL goes into a response header: no character may end the quoted string there.
_PLAIN = re.compile(r"[A-Za-z0-9/_.:\[\]-]*")

_log = logging.getLogger(__name__)


class OidcSettings(FieldDescriptions, BaseModel):
    """An issuer whose tokens are accepted in addition to keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str
    """URL of the issuer, exactly as in the `iss` claim of its tokens."""
    audience: str
    """The value that the `aud` claim must contain: the issuer's name for this gateway."""
    jwks_url: str | None = None
    """URL of the issuer's keys (JWKS). Unset: the `jwks_uri` in
    `<issuer>/.well-known/openid-configuration`."""
    role_claim: str = "roles"
    """The claim with the user's roles, a string or a list of strings; `a.b` is the member `b` of `a`."""
    roles: dict[str, Role] = {}
    """Maps values of that claim to roles of this gateway. If several match, the highest role applies."""
    default_role: Role | None = None
    """The role of a token without a mapped value. Unset: the gateway rejects such tokens."""
    tasks_claim: str | None = None
    """The claim that lists the tasks that a token is bound to."""
    servers_claim: str | None = None
    """The claim that lists the servers that a token may use."""
    tools_claim: str | None = None
    """The claim that lists patterns of the tools that a token may use."""
    denied_tools_claim: str | None = None
    """The claim that lists patterns of the tools that a token may not use."""
    task_claim: str | None = None
    """The claim with the task that applies if a request names none."""
    integrations: IntegrationState = "on"
    """The tools of each server that callers with a token get by default: `on`, all; `read_only`, those marked
    as read-only; `off`, none. Callers can switch servers on or off for themselves."""
    leeway_s: float = Field(default=30.0, ge=0, le=300)
    """How far the issuer's clock may be ahead. It never extends a token's expiry."""
    client_id: str | None = Field(default=None, min_length=1)
    """Client id of the console at the issuer: a public client (no secret, PKCE) with the redirect URI
    `<this gateway>/console/login`. Unset: people log in to the console with a key."""
    scopes: tuple[str, ...] = ("openid",)
    """Scopes that the console requests: those by which the issuer adds `audience` and `role_claim` to
    tokens."""


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """Metadata that names the issuer whose tokens this gateway accepts; without an issuer, keys only."""

    issuer: str | None = None
    public_url: str | None = None
    """The URL at which clients reach the gateway, if it differs from the URL they call."""

    def metadata_url(self, called_url: str, path: str) -> str | None:
        """The URL of the metadata of `path`; of the gateway if `path` is unusual. None without an issuer."""
        base_url = self._base_url(called_url)
        if self.issuer is None or not _PLAIN.fullmatch(base_url):
            return None
        return base_url + WELL_KNOWN + (path.rstrip("/") if _PLAIN.fullmatch(path) else "")

    def metadata(self, called_url: str, path: str) -> Mapping[str, object]:
        """The metadata of `path`; empty: of the whole gateway. Raises NotFound without an issuer."""
        if self.issuer is None:
            raise errors.NotFound("this gateway accepts no OIDC tokens", hint="send one of its keys")
        return {
            "resource": self._base_url(called_url) + path,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Toolgate",
        }

    def _base_url(self, called_url: str) -> str:
        return (self.public_url or called_url).rstrip("/")


KEYS_ONLY: Final = ResourceMetadata()


async def read_metadata(issuer: str, fetcher: Fetcher) -> Mapping[str, Any]:
    """Fetch the issuer's metadata. Raises FetchFailed."""
    document = await fetcher.get_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    # Otherwise any server at this address could speak for another issuer (OIDC Discovery 4.3).
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise FetchFailed("the `issuer` in the issuer's metadata differs from the setting `oidc.issuer`")
    return document


@dataclass(frozen=True, slots=True)
class LoginToken:
    """A bearer token for this gateway."""

    token: str
    expires_in_s: int


@dataclass(frozen=True, slots=True)
class LoginPage:
    """The values for a browser login at the issuer: authorization code flow with PKCE (S256)."""

    issuer: str
    authorization_endpoint: str
    """The URL at which the issuer authenticates the user."""
    client_id: str
    scope: str


@dataclass(slots=True)
class OidcLogin:
    """Logs people in to the console as the issuer's client `client_id`. `clock_s` is monotonic."""

    client_id: str
    issuer: str
    fetcher: Fetcher
    identities: Identities
    _: KW_ONLY
    scopes: Sequence[str] = ("openid",)
    max_concurrent: int = MAX_CONCURRENT_LOGINS
    clock_s: Callable[[], float] = time.monotonic
    redeeming: int = field(default=0, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _metadata: Mapping[str, Any] | None = field(default=None, init=False)
    _refresh_at_s: float = field(default=-math.inf, init=False)

    async def describe(self) -> LoginPage:
        """The authorization endpoint and parameters for a browser. Raises IssuerUnavailable."""
        endpoint = await self._find_endpoint("authorization_endpoint")
        return LoginPage(self.issuer, endpoint, self.client_id, " ".join(self.scopes))

    async def redeem(self, code: str, *, code_verifier: str, redirect_uri: str) -> LoginToken:
        """Exchange a code for a token.

        Raises Unauthenticated; Forbidden if the token gives no role; IssuerUnavailable; TooManyAttempts.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": code_verifier,
            "redirect_uri": redirect_uri,
            "client_id": self.client_id,
        }
        if self.redeeming >= self.max_concurrent:
            raise errors.TooManyAttempts("too many logins are in progress", hint="retry in a moment")
        self.redeeming += 1
        try:
            endpoint = await self._find_endpoint("token_endpoint")
            status, document = await self.fetcher.post_form(endpoint, form)
            response: dict[str, Any] = document if isinstance(document, dict) else {}
            if status != 200:
                reason = response.get("error")
                detail = f": `{reason}`" if isinstance(reason, str) and _ERROR.fullmatch(reason) else ""
                raise errors.Unauthenticated(
                    f"the issuer rejected the authorization code{detail}", hint="log in again"
                )
            return await self._find_usable_token(response)
        except FetchFailed as exc:
            raise errors.IssuerUnavailable(f"cannot get a token from the issuer: {exc}") from exc
        finally:
            self.redeeming -= 1

    async def _find_usable_token(self, document: dict[str, Any]) -> LoginToken:
        problems: list[errors.ToolgateError] = []
        for token in map(document.get, _TOKENS):
            if isinstance(token, str):
                try:
                    proof = await self.identities.verify_token(token)
                except (errors.Unauthenticated, errors.Forbidden) as exc:
                    problems.append(exc)
                else:
                    return LoginToken(token, int((proof.expires_at_s or 0) - time.time()))
        for problem in problems:
            if isinstance(problem, errors.Forbidden):  # a valid token without a role: the most helpful error
                raise problem
        why = f": {problems[0]}" if problems else ""
        raise errors.Unauthenticated(
            f"the issuer returned no token that is valid for this gateway{why}",
            hint="configure it to put `oidc.audience` into the `aud` claim; see `docs/how-to/console.md`",
        )

    async def _find_endpoint(self, name: str) -> str:
        """The URL of an endpoint by the issuer's metadata, which is cached. Raises IssuerUnavailable."""
        async with self._lock:
            if self.clock_s() >= self._refresh_at_s:
                ttl_s = METADATA_TTL_S
                try:
                    self._metadata = await read_metadata(self.issuer, self.fetcher)
                except FetchFailed as exc:
                    _log.warning("cannot read the metadata of the issuer: %s", exc)
                    ttl_s = METADATA_RETRY_S
                self._refresh_at_s = self.clock_s() + ttl_s
        if self._metadata is None:
            raise errors.IssuerUnavailable("cannot read the issuer's metadata, so its login page is unknown")
        url = self._metadata.get(name)
        try:
            # Browsers are sent there, too, so only a secure web address is accepted.
            parse_secure_target(url if isinstance(url, str) else "")
        except EgressRefused as exc:
            raise errors.IssuerUnavailable(f"the issuer's metadata has no usable `{name}`: {exc}") from exc
        return str(url)


class NoOidcLogin:
    """Takes the place of `OidcLogin` if the console accepts keys only."""

    async def describe(self) -> None:
        return None

    async def redeem(self, *_args: object, **_kwargs: object) -> Never:
        raise errors.NotFound(
            "this gateway has no browser login", hint="set `oidc.client_id`, or log in with a key"
        )
