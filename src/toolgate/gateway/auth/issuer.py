"""A person logs in at the issuer, in a browser: the code that this earns becomes a token. Nothing is kept.

We are a public client (RFC 6749, section 2.1): there is no secret, and a code is good only with the verifier
that whoever began has (PKCE, RFC 7636). Which token may be shown here, the verifier of tokens decides alone.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from toolgate.errors import Forbidden, IssuerUnavailable, ToolgateError, TooManyAttempts, Unauthenticated
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.issuer import IssuerMetadata
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, parse_secure_target

MAX_AT_ONCE: Final = 8
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


class Earned(NamedTuple):
    """A token that is good here, and for how long."""

    token: str
    expires_in_s: int


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
        self.client = client
        self._fetcher = fetcher
        self._identities = identities
        self._clock_s = clock_s
        self._metadata = IssuerMetadata(client.issuer, fetcher, clock_s=time.monotonic)
        self._at_once = 0

    async def authorization_endpoint(self) -> str:
        """Where a browser goes to. Raises IssuerUnavailable."""
        return await self._endpoint("authorization_endpoint")

    async def redeem(self, code: str, *, code_verifier: str, redirect_uri: str) -> Earned:
        """The token that the code is good for.

        Raises Unauthenticated; Forbidden where it gives no role here; IssuerUnavailable; TooManyAttempts.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": code_verifier,
            "redirect_uri": redirect_uri,
            "client_id": self.client.client_id,
        }
        with self._turn():
            endpoint = await self._endpoint("token_endpoint")
            try:
                status, document = await self._fetcher.post_form(endpoint, form)
            except FetchFailed as exc:
                raise IssuerUnavailable(f"the issuer cannot be asked for a token: {exc}") from exc
            if status != 200:
                raise _refusal(document)
            return await self._first_good(document if isinstance(document, dict) else {})

    async def _first_good(self, document: dict[str, Any]) -> Earned:
        problems: list[ToolgateError] = []
        for name in _TOKENS:
            token = document.get(name)
            if isinstance(token, str):
                try:
                    proof = await self._identities.prove(token)
                except (Unauthenticated, Forbidden) as exc:
                    problems.append(exc)
                else:
                    return Earned(token, int((proof.expires_at_s or 0) - self._clock_s()))
        raise _not_for_us(problems)

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
        if self._at_once >= MAX_AT_ONCE:
            raise TooManyAttempts("too many people log in at this moment", hint="try again in a moment")
        self._at_once += 1
        try:
            yield
        finally:
            self._at_once -= 1


def _refusal(document: Any) -> Unauthenticated:
    code = document.get("error") if isinstance(document, dict) else None
    said = f": `{code}`" if isinstance(code, str) and _ERROR.fullmatch(code) else ""
    return Unauthenticated(f"the issuer does not take the code{said}", hint="log in again")


def _not_for_us(problems: list[ToolgateError]) -> ToolgateError:
    """One that was good, and gave no role, tells most."""
    for problem in problems:
        if isinstance(problem, Forbidden):
            return problem
    why = f": {problems[0]}" if problems else ""
    return Unauthenticated(
        f"the issuer gave no token that is good here{why}",
        hint="have it put `oidc.audience` into the `aud` of access tokens; see `docs/guides/console.md`",
    )
