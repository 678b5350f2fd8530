"""Tokens of an OpenID Connect issuer: verified here, by the keys it publishes, and never passed on.

Imported only where an issuer is configured: the libraries behind it take longer to load than all the rest.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import jwt

from toolgate.errors import IssuerUnavailable, Unauthenticated
from toolgate.gateway.auth.oidc import OidcConfig, principal_of_claims
from toolgate.gateway.issuer import read_metadata
from toolgate.gateway.jwks import SigningKey, SigningKeys, Source
from toolgate.gateway.tenures import Proof
from toolgate.upstream.http.fetch import Fetcher, FetchFailed

MAX_TOKEN_CHARS: Final = 16 * 1024
MAX_TIME_S: Final = 10**12
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""Kinds of token that may be shown here. Not, say, the notice of a logout: the same keys sign those."""
_CHECKS: Final[dict[str, Any]] = {
    "require": ["iss", "aud", "exp", "sub"],
    # Times are checked here, against the clock that was handed in.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


class OidcVerifier:
    """Knows whom the tokens of one issuer prove. `clock_s` is the time of day."""

    def __init__(self, config: OidcConfig, keys: SigningKeys, *, clock_s: Callable[[], float]) -> None:
        self._config = config
        self._keys = keys
        self._clock_s = clock_s

    async def verify(self, token: str) -> Proof:
        """Whom the token proves, and until when."""
        kid = _parse_header(token).get("kid")
        key = self._keys.find(kid)
        if key is None:
            await self._keys.refresh()
            key = self._keys.find(kid)
        if key is None and not self._keys.is_current:
            raise IssuerUnavailable("the issuer of the token cannot be asked for its keys")
        if key is None:
            raise Unauthenticated("the token is signed with a key that its issuer does not publish")
        claims = self._claims(token, key)
        expires_at_s = self._check_times(claims)
        return Proof(principal_of_claims(claims, self._config), expires_at_s)

    def on_withdrawal(self, forget: Callable[[], None]) -> None:
        """Have `forget` called when the issuer withdraws a key."""
        self._keys.on_withdrawal = forget

    def _claims(self, token: str, key: SigningKey) -> Mapping[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=self._config.audience,
                issuer=self._config.issuer,
                options=_CHECKS,  # type: ignore[arg-type]
            )
        except jwt.InvalidAudienceError:
            raise Unauthenticated("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise Unauthenticated("the token is of another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise Unauthenticated("the token cannot be verified") from None
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """When the token expires. Raises Unauthenticated where that is over, or it is not good yet."""
        now, leeway_s = self._clock_s(), self._config.leeway_s
        expires_at_s = _time(claims, "exp")
        if expires_at_s <= now:
            raise Unauthenticated("the token has expired")
        for name in ("nbf", "iat"):
            if name in claims and _time(claims, name) > now + leeway_s:
                raise Unauthenticated("the token is not valid yet")
        return expires_at_s


@asynccontextmanager
async def open_oidc(
    config: OidcConfig, fetcher: Fetcher, *, clock_s: Callable[[], float] = time.time
) -> AsyncIterator[OidcVerifier]:
    """A verifier whose keys are kept fresh while the block runs. It opens without the issuer, too."""
    keys = SigningKeys(published_by(config, fetcher), clock_s=time.monotonic)
    async with asyncio.TaskGroup() as tasks:
        refreshing = tasks.create_task(keys.keep_fresh())
        try:
            yield OidcVerifier(config, keys, clock_s=clock_s)
        finally:
            refreshing.cancel()


def published_by(config: OidcConfig, fetcher: Fetcher) -> Source:
    """The source of the issuer's keys: where it says they are, unless the configuration does."""

    async def fetch() -> Any:
        return await fetcher.get_json(config.jwks_url or await discover())

    async def discover() -> str:
        url = (await read_metadata(config.issuer, fetcher)).get("jwks_uri")
        if not isinstance(url, str):
            raise FetchFailed("the issuer does not say where its keys are")
        return url

    return fetch


def _parse_header(token: str) -> Mapping[str, Any]:
    if len(token) > MAX_TOKEN_CHARS:
        raise Unauthenticated(f"the token has more than {MAX_TOKEN_CHARS} characters")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Unauthenticated("the token cannot be read") from None
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise Unauthenticated("the token is of another kind than an access token")
    return header


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= MAX_TIME_S:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise Unauthenticated(f"the token's `{name}` is not a time")
