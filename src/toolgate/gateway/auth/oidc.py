"""Verifies an OpenID Connect issuer's tokens by its published keys, and reads principals from claims.

Keys are fetched ahead of time and kept while the issuer is unreachable. A key is looked up by its id, among
the published keys only: no part of a token is ever used as an address. Tokens are never forwarded.

Loaded only if an issuer is configured: its libraries take longer to load than everything else.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from pydantic import ValidationError

from toolgate.errors import Forbidden, InvalidRecord, IssuerUnavailable, StartRefused, Unauthenticated
from toolgate.gateway.auth.identity import OF_ISSUER, RANKED_ROLES, Proof
from toolgate.gateway.auth.issuer import OidcSettings, read_metadata
from toolgate.model.names import parse_task_id
from toolgate.model.principals import Ceiling, Principal, Role
from toolgate.registry.records.policy_bodies import CeilingBody
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, parse_secure_target

JWKS_TTL_S: Final = 3_600.0  # how often keys are fetched, in the background
JWKS_RETRY_S: Final = 30.0  # after a failure; a choice: known keys stay in use meanwhile
MIN_REFRESH_S: Final = 10.0  # how often tokens with unknown key ids can trigger a fetch
JITTER: Final = 0.2  # of each pause, so that nodes started together do not fetch together
MAX_KEYS: Final = 100  # a choice: an issuer that rotates publishes a few
MIN_RSA_BITS: Final = 2_048  # NIST SP 800-57: shorter keys are too weak
MAX_TOKEN_CHARS: Final = 16 * 1024  # a choice: a quarter of the limit of a request's head
MAX_TIME_S: Final = 10**12  # the year 33,658: JSON can hold numbers that are read as infinity
MAX_SUBJECT_CHARS: Final = 255  # OIDC Core, section 2: the longest `sub`
# Only asymmetric algorithms: a verifier must not be able to sign.
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""The types of token to accept. Not, for example, logout tokens: the same keys sign those."""
_CHECKS: Final[dict[str, Any]] = {
    "require": ["iss", "aud", "exp", "sub"],
    # `_check_times` checks times by the gateway's clock.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}

FetchJwks = Callable[[], Awaitable[Any]]
"""Fetches the document with an issuer's keys. Raises FetchFailed."""

_log = logging.getLogger(__name__)


class SigningKey(NamedTuple):
    """A published key, and the algorithms it may be used with."""

    key: RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
    algorithms: tuple[str, ...]


@dataclass(slots=True)
class SigningKeys:
    """The keys of one issuer. `clock_s` is monotonic."""

    fetch: FetchJwks
    clock_s: Callable[[], float]
    keys: Mapping[str, SigningKey] = field(default_factory=dict)
    fetched_s: float | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    on_withdrawal: Callable[[], None] | None = None
    """Called when a key is no longer published, or its id has another key."""
    is_current: bool = False
    """Whether the last fetch succeeded."""

    def find(self, kid: str | None) -> SigningKey | None:
        """The key with that id. If there is only one key, a token need not name it."""
        if kid is not None:
            return self.keys.get(kid)
        return next(iter(self.keys.values())) if len(self.keys) == 1 else None

    async def refresh(self) -> None:
        """Fetch the keys, unless they were fetched a moment ago. Never raises: known keys stay in use."""
        async with self.lock:
            now_s = self.clock_s()
            if self.fetched_s is not None and now_s - self.fetched_s < MIN_REFRESH_S:
                return
            self.fetched_s = now_s
            try:
                keys = parse_keys(await self.fetch())
            except FetchFailed as exc:
                # Once per outage, not once per attempt.
                log = _log.warning if self.is_current or not self.keys else _log.debug
                log("cannot fetch the token issuer's keys; known keys stay in use: %s", exc)
                self.is_current = False
                return
            self.is_current = True
            known, self.keys = self.keys, keys
            if self.on_withdrawal is not None and any(keys.get(kid) != key for kid, key in known.items()):
                self.on_withdrawal()

    async def keep_fresh(self) -> None:
        while True:
            await self.refresh()
            wait_s = JWKS_TTL_S if self.is_current else JWKS_RETRY_S
            await asyncio.sleep(wait_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 (no secret)


def parse_keys(document: Any) -> Mapping[str, SigningKey]:
    """The usable keys of a JWKS document by id; unusable ones are ignored. Raises FetchFailed."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise FetchFailed("the issuer's keys are not a JWKS document")
    keys = {}
    for number, one in enumerate(listed[:MAX_KEYS]):
        key = _parse_key(one) if isinstance(one, dict) else None
        if key is not None:
            # `find` returns a key without an id only if it is the only key.
            keys[str(one.get("kid", f"\0{number}"))] = key
    return keys


def _parse_key(body: Mapping[str, Any]) -> SigningKey | None:
    if body.get("use", "sig") != "sig" or body.get("kty") not in {"RSA", "EC", "OKP"}:
        return None
    try:
        key = jwt.PyJWK(dict(body)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms: tuple[str, ...] = ()  # empty for a private key, a weak one, or one of another type
    match key:
        case RSAPublicKey():
            algorithms = _RSA if key.key_size >= MIN_RSA_BITS else ()
        case EllipticCurvePublicKey():
            algorithms = _CURVES.get(key.curve.name, ())
        case Ed25519PublicKey():
            algorithms = ("EdDSA",)
    if "alg" in body:
        algorithms = tuple(name for name in algorithms if name == body["alg"])
    return SigningKey(key, algorithms) if algorithms else None


@dataclass(frozen=True, slots=True)
class OidcVerifier:
    """Verifies the tokens of one issuer. `clock_s` is the wall clock."""

    config: OidcSettings
    keys: SigningKeys
    clock_s: Callable[[], float]

    async def verify(self, token: str) -> Proof:
        kid = _parse_header(token).get("kid")
        key = self.keys.find(kid)
        if key is None:
            await self.keys.refresh()
            key = self.keys.find(kid)
        if key is None and not self.keys.is_current:
            raise IssuerUnavailable("cannot fetch the keys of the token's issuer")
        if key is None:
            raise Unauthenticated("the token is signed with a key that its issuer does not publish")
        claims = self._decode(token, key)
        expires_at_s = self._check_times(claims)
        return Proof(principal_of_claims(claims, self.config), expires_at_s)

    def on_key_withdrawn(self, forget: Callable[[], None]) -> None:
        self.keys.on_withdrawal = forget

    def _decode(self, token: str, key: SigningKey) -> Mapping[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=self.config.audience,
                issuer=self.config.issuer,
                options=_CHECKS,  # type: ignore[arg-type]
            )
        except jwt.InvalidAudienceError:
            raise Unauthenticated("the token is for another audience") from None
        except jwt.InvalidIssuerError:
            raise Unauthenticated("the token is from another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise Unauthenticated("the token cannot be verified") from None
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        """When the token expires. Raises Unauthenticated if it has expired, or is not valid yet."""
        now_s = self.clock_s()
        expires_at_s = _parse_time(claims, "exp")
        if expires_at_s <= now_s:
            raise Unauthenticated("the token has expired")
        for name in ("nbf", "iat"):
            if name in claims and _parse_time(claims, name) > now_s + self.config.leeway_s:
                raise Unauthenticated("the token is not valid yet")
        return expires_at_s


@asynccontextmanager
async def open_oidc(config: OidcSettings, fetcher: Fetcher) -> AsyncIterator[OidcVerifier]:
    """A verifier that refreshes its keys while the block runs. Opens even if the issuer is unreachable.

    Raises StartRefused if `config` would accept tokens that prove nothing.
    """
    for name, url in (("issuer", config.issuer), ("jwks_url", config.jwks_url)):
        try:
            _ = url is None or parse_secure_target(url)
        except EgressRefused as exc:
            raise StartRefused(f"setting `oidc.{name}`: {exc}") from exc
    if not config.audience:
        raise StartRefused(
            "setting `oidc.audience` is empty: the gateway would accept tokens for any audience",
            hint="set it to the issuer's name for this gateway",
        )
    if not config.roles and config.default_role is None:
        raise StartRefused(
            "setting `oidc.roles` is empty: the gateway would reject every token",
            hint="map values of the claim `oidc.role_claim` to roles, or set `oidc.default_role`",
        )
    keys = SigningKeys(jwks_source(config, fetcher), clock_s=time.monotonic)
    async with asyncio.TaskGroup() as tasks:
        refreshing = tasks.create_task(keys.keep_fresh())
        try:
            yield OidcVerifier(config, keys, clock_s=time.time)
        finally:
            refreshing.cancel()


def jwks_source(config: OidcSettings, fetcher: Fetcher) -> FetchJwks:
    """Fetches the keys from the configured URL, or from the `jwks_uri` in the issuer's metadata."""

    async def fetch() -> Any:
        url = config.jwks_url or (await read_metadata(config.issuer, fetcher)).get("jwks_uri")
        if not isinstance(url, str):
            raise FetchFailed("the issuer's metadata has no `jwks_uri`")
        return await fetcher.get_json(url)

    return fetch


def _parse_header(token: str) -> Mapping[str, Any]:
    if len(token) > MAX_TOKEN_CHARS:
        raise Unauthenticated(f"the token has more than {MAX_TOKEN_CHARS} characters")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise Unauthenticated("the token is not a JWT") from None
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise Unauthenticated("the token is not an access token: its `typ` is not `JWT` or `at+jwt`")
    return header


def _parse_time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_TIME_S:
        return float(value)
    raise Unauthenticated(f"the token's `{name}` is not a time")


def principal_of_claims(claims: Mapping[str, Any], config: OidcSettings) -> Principal:
    """The principal of verified claims. Raises Unauthenticated; Forbidden if no claim maps to a role."""
    subject = claims.get("sub")
    if not (isinstance(subject, str) and subject.isprintable() and 0 < len(subject) <= MAX_SUBJECT_CHARS):
        raise Unauthenticated(f"the token's `sub` is not text of 1 to {MAX_SUBJECT_CHARS} characters")
    return Principal(
        id=f"{OF_ISSUER}{subject}",
        role=_parse_role(claims, config),
        ceiling=_parse_ceiling(claims, config),
        default_task=_parse_task(claims, config.task_claim),
        integrations=config.integrations,
    )


def _parse_role(claims: Mapping[str, Any], config: OidcSettings) -> Role:
    granted = {config.roles.get(value) for value in _parse_texts(claims, config.role_claim) or ()}
    role = next((one for one in (*RANKED_ROLES, "node") if one in granted), config.default_role)
    if role is None:
        raise Forbidden(
            f"the token's `{config.role_claim}` maps to no role of this gateway",
            hint="ask an administrator of the issuer for a role that `oidc.roles` maps",
        )
    return role


def _parse_ceiling(claims: Mapping[str, Any], config: OidcSettings) -> Ceiling:
    names = {
        "tasks": config.tasks_claim,
        "servers": config.servers_claim,
        "allow": config.tools_claim,
        "deny": config.denied_tools_claim,
    }
    parts = {part: _parse_texts(claims, name) for part, name in names.items() if name is not None}
    try:
        present = {part: texts for part, texts in parts.items() if texts is not None}
        ceiling: Ceiling = CeilingBody.model_validate(present).value()
    except ValidationError as exc:
        name = names[str(exc.errors()[0]["loc"][0])]
        raise Unauthenticated(f"the token's `{name}` is not a list of names or patterns") from exc
    return ceiling


def _parse_task(claims: Mapping[str, Any], name: str | None) -> str | None:
    value = None if name is None else _find_claim(claims, name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse_task_id(value)
    except InvalidRecord:
        pass
    raise Unauthenticated(f"the token's `{name}` is not a task id")


def _parse_texts(claims: Mapping[str, Any], name: str) -> list[str] | None:
    """The values of a claim; None if the token does not have it."""
    value = _find_claim(claims, name)
    if isinstance(value, str):
        return value.split()
    if value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return value
    raise Unauthenticated(f"the token's `{name}` is not a list of strings")


def _find_claim(claims: Mapping[str, Any], name: str) -> Any:
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
