"""The keys an issuer signs its tokens with: fetched ahead of time, kept while it cannot be reached.

A key is looked up by its id among those the issuer published, and nowhere else: no part of a token is ever
taken for a place to look at.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from toolgate.upstream.http.fetch import FetchFailed

FRESH_S: Final = 3_600.0
"""How long keys are good for before the issuer is asked again, in the background."""
RETRY_S: Final = 30.0
"""How long after a failure it is asked again."""
ASK_EVERY_S: Final = 10.0
"""However many tokens name a key nobody knows, the issuer is asked once in this time."""
JITTER: Final = 0.2
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2_048

# Only asymmetric ones: whoever can verify must not be able to sign.
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
_EDWARDS: Final = ("EdDSA",)

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
Source = Callable[[], Awaitable[Any]]
"""Fetches the document with an issuer's keys. Raises FetchFailed."""

_log = logging.getLogger(__name__)


class SigningKey(NamedTuple):
    """A published key, and the algorithms it may be used with."""

    key: PublicKey
    algorithms: tuple[str, ...]


class SigningKeys:
    """The keys of one issuer. `clock_s` is monotonic."""

    def __init__(self, source: Source, *, clock_s: Callable[[], float]) -> None:
        self._source = source
        self._clock_s = clock_s
        self._keys: Mapping[str, SigningKey] = {}
        self._asked_s: float | None = None
        self._turn = asyncio.Lock()
        self.on_withdrawal: Callable[[], None] | None = None
        """Called when a key is published no more, or another under its id."""
        self.is_current = False
        """Whether the issuer answered when it was last asked."""

    def find(self, kid: str | None) -> SigningKey | None:
        """The key of that id. A token need not name one where there is no choice."""
        if kid is not None:
            return self._keys.get(kid)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    async def refresh(self) -> None:
        """Ask the issuer, unless that was done a moment ago. Never raises: what is known stays known."""
        async with self._turn:
            now = self._clock_s()
            if self._asked_s is not None and now - self._asked_s < ASK_EVERY_S:
                return
            self._asked_s = now
            await self._ask()

    async def keep_fresh(self) -> None:
        """Ask the issuer now, and again and again."""
        while True:
            await self.refresh()
            wait_s = FRESH_S if self.is_current else RETRY_S
            await asyncio.sleep(wait_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 (no secret)

    async def _ask(self) -> None:
        try:
            self._take(parse_keys(await self._source()))
        except FetchFailed as exc:
            # Once per outage, not once per try.
            log = _log.warning if self.is_current or not self._keys else _log.debug
            log("the keys of the token issuer cannot be fetched, those known stay in use: %s", exc)
            self.is_current = False
        else:
            self.is_current = True

    def _take(self, keys: Mapping[str, SigningKey]) -> None:
        known, self._keys = self._keys, keys
        is_withdrawn = any(keys.get(kid) != key for kid, key in known.items())
        if is_withdrawn and self.on_withdrawal is not None:
            self.on_withdrawal()


def parse_keys(document: Any) -> Mapping[str, SigningKey]:
    """The usable keys of a JWKS document by their ids; what cannot be used is passed over."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise FetchFailed("the issuer's keys are not a JWKS document")
    keys = {}
    for number, one in enumerate(listed[:MAX_KEYS]):
        found = _parse_key(one) if isinstance(one, dict) else None
        if found is not None:
            # Without an id it can only be found where it is the only one.
            keys[str(one.get("kid", f"\0{number}"))] = found
    return keys


def _parse_key(body: Mapping[str, Any]) -> SigningKey | None:
    if body.get("use", "sig") != "sig" or body.get("kty") not in {"RSA", "EC", "OKP"}:
        return None
    try:
        key = jwt.PyJWK(dict(body)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = _algorithms_of(key)
    if "alg" in body:
        algorithms = tuple(name for name in algorithms if name == body["alg"])
    return SigningKey(key, algorithms) if algorithms else None


def _algorithms_of(key: Any) -> tuple[str, ...]:
    """What a key may verify; nothing for one that is private, weak or of another kind."""
    match key:
        case RSAPublicKey():
            return _RSA if key.key_size >= MIN_RSA_BITS else ()
        case EllipticCurvePublicKey():
            return _CURVES.get(key.curve.name, ())
        case Ed25519PublicKey():
            return _EDWARDS
    return ()
