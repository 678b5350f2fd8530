"""The OpenID Connect issuer of a gateway: its metadata, our resource metadata, and logins with a browser.

We are a public client (RFC 6749, section 2.1): there is no secret, and a code is useless without the verifier
of the browser that began the login (PKCE, RFC 7636). Nothing of a login is kept. Whether its token is valid
here, only the token verifier decides.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Never

from pydantic import BaseModel, ConfigDict, Field

from toolgate.errors import (
    Forbidden,
    IssuerUnavailable,
    NotFound,
    ToolgateError,
    TooManyAttempts,
    Unauthenticated,
)
from toolgate.gateway.auth.identity import Identities
from toolgate.model.principals import IntegrationState, Role
from toolgate.registry.records.body import FieldDescriptions
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, parse_secure_target

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""The path of the gateway's metadata (RFC 9728); a resource's own path follows it."""
METADATA_TTL_S: Final = 300.0  # a choice: the endpoints of an issuer seldom move
METADATA_RETRY_S: Final = 10.0  # the pause after a failure: any client can make us ask
MAX_CONCURRENT_LOGINS: Final = 8  # codes being redeemed: anyone may send one, and each holds a connection
_ERROR = re.compile(r"[a-z_]{1,40}")
_TOKENS: Final = ("access_token", "id_token")
"""The issuer's tokens, in the order they are tried. The access token is for us but may be opaque;
the ID token is for us if our audience is the client id."""
# A request's text goes into a header: nothing in it may end a quoted string.
_PLAIN = re.compile(r"[A-Za-z0-9/_.:\[\]-]*")

_log = logging.getLogger(__name__)


class OidcSettings(FieldDescriptions, BaseModel):
    """An issuer whose tokens are accepted in addition to keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str
    """Its URL, exactly as in the `iss` of its tokens."""
    audience: str
    """What `aud` must hold: this gateway, by the name the issuer knows it by."""
    jwks_url: str | None = None
    """Where its keys are. Unset: found through `<issuer>/.well-known/openid-configuration`."""
    role_claim: str = "roles"
    """The claim that holds the user's roles; `a.b` looks inside `a`. Text, or a list of texts."""
    roles: dict[str, Role] = {}
    """Values of that claim to roles of this gateway. Of several, the highest counts."""
    default_role: Role | None = None
    """The role of a token that has none of them. Unset: it is refused."""
    tasks_claim: str | None = None
    """The claim that lists the tasks a token is bound to."""
    servers_claim: str | None = None
    """The claim that lists the servers a token may reach."""
    tools_claim: str | None = None
    """The claim that lists patterns of the tools a token may reach."""
    denied_tools_claim: str | None = None
    """The claim that lists patterns of the tools a token may not reach."""
    task_claim: str | None = None
    """The claim that names the task of a request that names none."""
    integrations: IntegrationState = "on"
    """What callers with a token have of each server before they switch it on or off for themselves: `on` all
    its tools, `read_only` those marked as read-only, `off` nothing."""
    leeway_s: float = Field(default=30.0, ge=0, le=300)
    """How far the issuer's clock may be ahead. A token is never good for longer than it says."""
    client_id: str | None = Field(default=None, min_length=1)
    """Who the console is at the issuer: a public client (no secret, PKCE) that may return to
    `<this gateway>/console/login`. Set: people log in to the console there. Unset: they show a key."""
    scopes: tuple[str, ...] = ("openid",)
    """What the console asks the issuer for: what makes it put `audience` and `role_claim` into its tokens."""


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """Tells clients which issuer's tokens this gateway accepts; without one, it accepts its own keys only."""

    issuer: str | None = None
    public_url: str | None = None
    """How clients reach the gateway, if that differs from the URL they call."""

    def metadata_url(self, called_url: str, path: str) -> str | None:
        """The URL of the metadata of `path`, or of the gateway if that is unusual. None without an issuer."""
        base_url = self._base_url(called_url)
        if self.issuer is None or not _PLAIN.fullmatch(base_url):
            return None
        return base_url + WELL_KNOWN + (path.rstrip("/") if _PLAIN.fullmatch(path) else "")

    def metadata(self, called_url: str, path: str) -> Mapping[str, object]:
        """The metadata of `path`; empty: of the whole gateway. Raises NotFound without an issuer."""
        if self.issuer is None:
            raise NotFound("this gateway takes no tokens", hint="call it with one of its own keys")
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
    """The issuer's metadata as it is now. Raises FetchFailed."""
    document = await fetcher.get_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    # Otherwise any server at this address could speak for another issuer (OIDC Discovery 4.3).
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise FetchFailed("the issuer calls itself by another name than the configuration does")
    return document


@dataclass(slots=True)
class IssuerMetadata:
    """The issuer's metadata, cached. `clock_s` is monotonic."""

    issuer: str
    fetcher: Fetcher
    clock_s: Callable[[], float] = time.monotonic
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: Mapping[str, Any] | None = None
    refresh_at_s: float | None = None

    async def read(self) -> Mapping[str, Any]:
        """The newest known metadata. Raises IssuerUnavailable without any."""
        async with self.lock:
            if self.refresh_at_s is None or self.clock_s() >= self.refresh_at_s:
                ttl_s = METADATA_TTL_S
                try:
                    self.known = await read_metadata(self.issuer, self.fetcher)
                except FetchFailed as exc:
                    _log.warning("cannot read the metadata of the issuer: %s", exc)
                    ttl_s = METADATA_RETRY_S
                self.refresh_at_s = self.clock_s() + ttl_s
        if self.known is None:
            raise IssuerUnavailable("the issuer cannot be asked where to log in")
        return self.known


class LoginToken(NamedTuple):
    """A token that is valid here, and for how long."""

    token: str
    expires_in_s: int


class LoginPage(NamedTuple):
    """Where a browser begins to log in, and with which parameters."""

    issuer: str
    authorization_endpoint: str
    client_id: str
    scope: str


@dataclass(slots=True)
class OidcLogin:
    """Logs people in to the console, which is the issuer's client `client_id`."""

    client_id: str
    metadata: IssuerMetadata
    identities: Identities
    scopes: Sequence[str] = ("openid",)
    max_concurrent: int = MAX_CONCURRENT_LOGINS
    redeeming: int = 0

    async def describe(self) -> LoginPage:
        """Where a browser begins to log in. Raises IssuerUnavailable."""
        endpoint = await self._find_endpoint("authorization_endpoint")
        return LoginPage(self.metadata.issuer, endpoint, self.client_id, " ".join(self.scopes))

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
            raise TooManyAttempts("too many people log in at this moment", hint="try again in a moment")
        self.redeeming += 1
        try:
            endpoint = await self._find_endpoint("token_endpoint")
            status, document = await self.metadata.fetcher.post_form(endpoint, form)
            response: dict[str, Any] = document if isinstance(document, dict) else {}
            if status != 200:
                reason = response.get("error")
                detail = f": `{reason}`" if isinstance(reason, str) and _ERROR.fullmatch(reason) else ""
                raise Unauthenticated(f"the issuer does not take the code{detail}", hint="log in again")
            return await self._find_usable_token(response)
        except FetchFailed as exc:
            raise IssuerUnavailable(f"the issuer cannot be asked for a token: {exc}") from exc
        finally:
            self.redeeming -= 1

    async def _find_usable_token(self, document: dict[str, Any]) -> LoginToken:
        problems: list[ToolgateError] = []
        for token in map(document.get, _TOKENS):
            if isinstance(token, str):
                try:
                    proof = await self.identities.verify_token(token)
                except (Unauthenticated, Forbidden) as exc:
                    problems.append(exc)
                else:
                    return LoginToken(token, int((proof.expires_at_s or 0) - time.time()))
        for problem in problems:
            if isinstance(problem, Forbidden):  # valid, without a role: the most helpful error
                raise problem
        why = f": {problems[0]}" if problems else ""
        raise Unauthenticated(
            f"the issuer gave no token that is valid here{why}",
            hint="have it put `oidc.audience` into the `aud` of access tokens; see `docs/how-to/console.md`",
        )

    async def _find_endpoint(self, name: str) -> str:
        url = (await self.metadata.read()).get(name)
        try:
            # A browser is sent there, too, so only a secure web address is accepted.
            parse_secure_target(url if isinstance(url, str) else "")
        except EgressRefused as exc:
            raise IssuerUnavailable(f"the issuer names no `{name}` that can be used: {exc}") from exc
        return str(url)


class NoOidcLogin:
    """Takes the place of `OidcLogin` in a gateway whose console takes keys only."""

    async def describe(self) -> None:
        return None

    async def redeem(self, *_args: object, **_kwargs: object) -> Never:
        raise NotFound("this gateway has no browser login", hint="set `oidc.client_id`; or call with a key")
