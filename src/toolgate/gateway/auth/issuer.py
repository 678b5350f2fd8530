"""Where the tokens come from that this gateway takes: protected resource metadata (RFC 9728).

What an OpenID Connect issuer says of itself (OIDC Discovery). It speaks for itself alone.

A person logs in at the issuer, in a browser: the code that this earns becomes a token. Nothing is kept.

We are a public client (RFC 6749, section 2.1): there is no secret, and a code is good only with the verifier
that whoever began has (PKCE, RFC 7636). Which token may be shown here, the verifier of tokens decides alone.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Never

from toolgate.errors import (
    Forbidden,
    IssuerUnavailable,
    NotFound,
    ToolgateError,
    TooManyAttempts,
    Unauthenticated,
)
from toolgate.gateway.auth.identity import Identities
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, parse_secure_target

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""Here stands the metadata of the whole gateway; that of a path, with the path behind it."""
RESOURCE_NAME: Final = "Toolgate"

# What comes from a request goes into a header: nothing may end a quoted string there.
_PLAIN = re.compile(r"[A-Za-z0-9/_.:\[\]-]*")


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """Tells clients which issuer's tokens this gateway takes."""

    issuer: str
    public_url: str | None = None
    """How clients reach the gateway, where that is not what they call it by."""

    def metadata_url(self, called_url: str, path: str) -> str | None:
        """Where the metadata of `path` is found; that of the whole gateway for a path of odd spelling."""
        base_url = self._base_url(called_url)
        if not _PLAIN.fullmatch(base_url):
            return None
        return base_url + WELL_KNOWN + (path.rstrip("/") if _PLAIN.fullmatch(path) else "")

    def metadata(self, called_url: str, path: str) -> Mapping[str, object]:
        """The metadata of `path`; empty means the whole gateway."""
        return {
            "resource": self._base_url(called_url) + path,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": RESOURCE_NAME,
        }

    def _base_url(self, called_url: str) -> str:
        return (self.public_url or called_url).rstrip("/")


class NoResourceMetadata:
    """Stands for `ResourceMetadata` in a gateway that accepts its own keys only."""

    public_url: Final = None

    def metadata_url(self, _called_url: str, _path: str) -> None:
        return None

    def metadata(self, _called_url: str, _path: str) -> Never:
        raise NotFound("this gateway takes no tokens", hint="call it with one of its own keys")


KEYS_ONLY: Final = NoResourceMetadata()

METADATA_TTL_S: Final = 300.0
"""How long it is remembered."""
METADATA_RETRY_S: Final = 10.0
"""However many want to know, an issuer that did not answer is asked once in this time."""

_log = logging.getLogger(__name__)


async def read_metadata(issuer: str, fetcher: Fetcher) -> Mapping[str, Any]:
    """Its metadata, as it is now. Raises FetchFailed."""
    document = await fetcher.get_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    found = document if isinstance(document, dict) else {}
    # Else anybody who can answer for the address could speak for another issuer (OIDC Discovery 4.3).
    if found.get("issuer") != issuer:
        raise FetchFailed("the issuer calls itself by another name than the configuration does")
    return found


class IssuerMetadata:
    """The same, remembered: anybody may have us ask. `clock_s` is monotonic."""

    def __init__(self, issuer: str, fetcher: Fetcher, *, clock_s: Callable[[], float]) -> None:
        self._issuer = issuer
        self._fetcher = fetcher
        self._clock_s = clock_s
        self._turn = asyncio.Lock()
        self._known: Mapping[str, Any] | None = None
        self._ask_at_s: float | None = None

    async def read(self) -> Mapping[str, Any]:
        """What was last heard. Raises IssuerUnavailable where that is nothing."""
        async with self._turn:
            if self._ask_at_s is None or self._clock_s() >= self._ask_at_s:
                is_heard = await self._ask()
                self._ask_at_s = self._clock_s() + (METADATA_TTL_S if is_heard else METADATA_RETRY_S)
        if self._known is None:
            raise IssuerUnavailable("the issuer cannot be asked where to log in")
        return self._known

    async def _ask(self) -> bool:
        try:
            self._known = await read_metadata(self._issuer, self._fetcher)
        except FetchFailed as exc:
            _log.warning("the issuer does not say where to log in: %s", exc)
            return False
        return True


MAX_CONCURRENT_LOGINS: Final = 8
"""Codes that are at the issuer. Anybody may send one, and each holds a connection."""
_ERROR = re.compile(r"[a-z_]{1,40}")
_TOKENS: Final = ("access_token", "id_token")
"""What an issuer gives, in the order in which it is tried. The first is meant for us, and may be for no one
to read; the second is for us where we are called by the name of the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcClient:
    """As whom the console logs people in."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]


class LoginToken(NamedTuple):
    """A token that is good here, and for how long."""

    token: str
    expires_in_s: int


class LoginPage(NamedTuple):
    """Where a browser begins to log in, and with which parameters."""

    issuer: str
    authorization_endpoint: str
    client_id: str
    scope: str


class OidcLogin:
    """Logs people in as `client`."""

    def __init__(
        self,
        client: OidcClient,
        fetcher: Fetcher,
        identities: Identities,
        *,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._fetcher = fetcher
        self._identities = identities
        self._clock_s = clock_s
        self._metadata = IssuerMetadata(client.issuer, fetcher, clock_s=time.monotonic)
        self._at_once = 0

    async def describe(self) -> LoginPage:
        """Where a browser begins to log in. Raises IssuerUnavailable."""
        client = self._client
        endpoint = await self._endpoint("authorization_endpoint")
        return LoginPage(client.issuer, endpoint, client.client_id, " ".join(client.scopes))

    async def redeem(self, code: str, *, code_verifier: str, redirect_uri: str) -> LoginToken:
        """The token that the code is good for.

        Raises Unauthenticated; Forbidden where it gives no role here; IssuerUnavailable; TooManyAttempts.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": code_verifier,
            "redirect_uri": redirect_uri,
            "client_id": self._client.client_id,
        }
        with self._turn():
            endpoint = await self._endpoint("token_endpoint")
            try:
                status, document = await self._fetcher.post_form(endpoint, form)
            except FetchFailed as exc:
                raise IssuerUnavailable(f"the issuer cannot be asked for a token: {exc}") from exc
            if status != 200:
                raise _code_refused(document)
            return await self._first_good(document if isinstance(document, dict) else {})

    async def _first_good(self, document: dict[str, Any]) -> LoginToken:
        problems: list[ToolgateError] = []
        for name in _TOKENS:
            token = document.get(name)
            if isinstance(token, str):
                try:
                    proof = await self._identities.verify_token(token)
                except (Unauthenticated, Forbidden) as exc:
                    problems.append(exc)
                else:
                    return LoginToken(token, int((proof.expires_at_s or 0) - self._clock_s()))
        raise _no_usable_token(problems)

    async def _endpoint(self, name: str) -> str:
        url = (await self._metadata.read()).get(name)
        try:
            # A browser is sent there, too: nothing but a place of the web will do.
            parse_secure_target(url if isinstance(url, str) else "")
        except EgressRefused as exc:
            raise IssuerUnavailable(f"the issuer names no `{name}` that can be used: {exc}") from exc
        return str(url)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._at_once >= MAX_CONCURRENT_LOGINS:
            raise TooManyAttempts("too many people log in at this moment", hint="try again in a moment")
        self._at_once += 1
        try:
            yield
        finally:
            self._at_once -= 1


class NoOidcLogin:
    """Stands for `OidcLogin` in a gateway whose console takes keys only."""

    async def describe(self) -> None:
        return None

    async def redeem(self, *_args: object, **_kwargs: object) -> Never:
        raise NotFound("this gateway has no browser login", hint="set `oidc.client_id`; or call with a key")


def _code_refused(document: Any) -> Unauthenticated:
    code = document.get("error") if isinstance(document, dict) else None
    said = f": `{code}`" if isinstance(code, str) and _ERROR.fullmatch(code) else ""
    return Unauthenticated(f"the issuer does not take the code{said}", hint="log in again")


def _no_usable_token(problems: list[ToolgateError]) -> ToolgateError:
    """One that was good, and gave no role, tells most."""
    for problem in problems:
        if isinstance(problem, Forbidden):
            return problem
    why = f": {problems[0]}" if problems else ""
    return Unauthenticated(
        f"the issuer gave no token that is good here{why}",
        hint="have it put `oidc.audience` into the `aud` of access tokens; see `docs/guides/console.md`",
    )
