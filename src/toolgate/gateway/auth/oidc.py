"""The keys an issuer signs its tokens with: fetched ahead of time, kept while it cannot be reached.

A key is looked up by its id among those the issuer published, and nowhere else: no part of a token is ever
taken for a place to look at.

What the claims of a verified token mean here: who it is, in which role, and how far it reaches.

Tokens of an OpenID Connect issuer: verified here, by the keys it publishes, and never passed on.

Imported only where an issuer is configured: the libraries behind it take longer to load than all the rest.
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
from toolgate.gateway.auth.identity import OF_ISSUER, Proof
from toolgate.gateway.auth.issuer import read_metadata
from toolgate.model.names import parse_task_id
from toolgate.model.principals import Ceiling, IntegrationState, Principal, Role
from toolgate.registry.records.policy_bodies import CeilingBody
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, FetchFailed, parse_secure_target

JWKS_TTL_S: Final = 3_600.0
"""How long keys are good for before the issuer is asked again, in the background."""
JWKS_RETRY_S: Final = 30.0
"""How long after a failure it is asked again."""
MIN_REFRESH_S: Final = 10.0
"""However many tokens name a key nobody knows, the issuer is asked once in this time."""
JITTER: Final = 0.2
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2_048

# Only asymmetric ones: whoever can verify must not be able to sign.
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
_EDWARDS: Final = ("EdDSA",)

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
FetchJwks = Callable[[], Awaitable[Any]]
"""Fetches the document with an issuer's keys. Raises FetchFailed."""

_log = logging.getLogger(__name__)


class SigningKey(NamedTuple):
    """A published key, and the algorithms it may be used with."""

    key: PublicKey
    algorithms: tuple[str, ...]


class SigningKeys:
    """The keys of one issuer. `clock_s` is monotonic."""

    def __init__(self, source: FetchJwks, *, clock_s: Callable[[], float]) -> None:
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
            if self._asked_s is not None and now - self._asked_s < MIN_REFRESH_S:
                return
            self._asked_s = now
            await self._ask()

    async def keep_fresh(self) -> None:
        """Ask the issuer now, and again and again."""
        while True:
            await self.refresh()
            wait_s = JWKS_TTL_S if self.is_current else JWKS_RETRY_S
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


MAX_SUBJECT_CHARS: Final = 255
MAX_LEEWAY_S: Final = 300
_BY_RANK: Final[tuple[Role, ...]] = ("admin", "publisher", "viewer", "agent", "node")


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """Whose tokens are taken, and how they are read. Raises StartRefused where that would not be safe.

    A claim is named as it stands in the token, or by a path of names with dots in between.
    """

    issuer: str
    """As it stands in `iss`; its keys are found by discovery."""
    audience: str
    """What `aud` must hold: a token for somebody else is none for us."""
    jwks_url: str | None = None
    """Where the issuer's keys are, without discovery."""
    role_claim: str = "roles"
    """A list of texts, or one text of words, such as `scope`."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Value of the claim to role; of several, the highest counts."""
    default_role: Role | None = None
    """Of a token none of whose values has a role. None: such a token is refused."""
    tasks_claim: str | None = None
    """These claims list what the token may reach; as in a key's ceiling, one left out does not restrict."""
    servers_claim: str | None = None
    tools_claim: str | None = None
    denied_tools_claim: str | None = None
    task_claim: str | None = None
    """Names the task of a request that names none."""
    integrations: IntegrationState = "on"
    """What a token's subject has of each server before it chooses for itself; see the field of keys."""
    leeway_s: float = 30.0
    """How far the issuer's clock may be ahead of ours. A token is never good for longer than it says."""

    def __post_init__(self) -> None:
        for name, url in (("issuer", self.issuer), ("jwks_url", self.jwks_url)):
            try:
                _ = url is None or parse_secure_target(url)
            except EgressRefused as exc:
                raise StartRefused(f"setting `oidc.{name}`: {exc}") from exc
        if not self.audience:
            raise StartRefused("setting `oidc.audience` is empty: tokens for anybody would be taken")
        if not 0 <= self.leeway_s <= MAX_LEEWAY_S:
            raise StartRefused(f"setting `oidc.leeway_s` is not between 0 and {MAX_LEEWAY_S}")
        if not self.roles and self.default_role is None:
            raise StartRefused("setting `oidc.roles` is empty: no token would be let in")


def principal_of_claims(claims: Mapping[str, Any], config: OidcConfig) -> Principal:
    """Whom verified claims prove. Raises Unauthenticated; Forbidden where they give no role."""
    return Principal(
        id=f"{OF_ISSUER}{_subject(claims)}",
        role=_role(claims, config),
        ceiling=_ceiling(claims, config),
        default_task=_default_task(claims, config.task_claim),
        integrations=config.integrations,
    )


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if isinstance(subject, str) and subject.isprintable() and 0 < len(subject) <= MAX_SUBJECT_CHARS:
        return subject
    raise Unauthenticated(f"the token's `sub` is not a name of at most {MAX_SUBJECT_CHARS} characters")


def _role(claims: Mapping[str, Any], config: OidcConfig) -> Role:
    granted = {config.roles.get(value) for value in _parse_texts(claims, config.role_claim) or ()}
    for role in _BY_RANK:
        if role in granted:
            return role
    if config.default_role is not None:
        return config.default_role
    raise Forbidden(
        f"the token's `{config.role_claim}` gives no role here",
        hint="ask an administrator of the issuer for a role that this gateway knows",
    )


def _ceiling(claims: Mapping[str, Any], config: OidcConfig) -> Ceiling:
    names = {
        "tasks": config.tasks_claim,
        "servers": config.servers_claim,
        "allow": config.tools_claim,
        "deny": config.denied_tools_claim,
    }
    parts = {part: _parse_texts(claims, name) for part, name in names.items() if name is not None}
    given = {part: texts for part, texts in parts.items() if texts is not None}
    try:
        return CeilingBody.model_validate(given).value()
    except ValidationError as exc:
        name = names[str(exc.errors()[0]["loc"][0])]
        raise Unauthenticated(f"the token's `{name}` is not a list of names or patterns") from exc


def _default_task(claims: Mapping[str, Any], name: str | None) -> str | None:
    value = None if name is None else _find_claim(claims, name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            return parse_task_id(value)
    except InvalidRecord:
        pass
    raise Unauthenticated(f"the token's `{name}` is not the name of a task")


def _parse_texts(claims: Mapping[str, Any], name: str) -> list[str] | None:
    """The values of a claim, or None where the token has none of that name."""
    value = _find_claim(claims, name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    raise Unauthenticated(f"the token's `{name}` is not a list of texts")


def _find_claim(claims: Mapping[str, Any], name: str) -> Any:
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


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

    def on_key_withdrawn(self, forget: Callable[[], None]) -> None:
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
        expires_at_s = _parse_time(claims, "exp")
        if expires_at_s <= now:
            raise Unauthenticated("the token has expired")
        for name in ("nbf", "iat"):
            if name in claims and _parse_time(claims, name) > now + leeway_s:
                raise Unauthenticated("the token is not valid yet")
        return expires_at_s


@asynccontextmanager
async def open_oidc(
    config: OidcConfig, fetcher: Fetcher, *, clock_s: Callable[[], float] = time.time
) -> AsyncIterator[OidcVerifier]:
    """A verifier whose keys are kept fresh while the block runs. It opens without the issuer, too."""
    keys = SigningKeys(jwks_source(config, fetcher), clock_s=time.monotonic)
    async with asyncio.TaskGroup() as tasks:
        refreshing = tasks.create_task(keys.keep_fresh())
        try:
            yield OidcVerifier(config, keys, clock_s=clock_s)
        finally:
            refreshing.cancel()


def jwks_source(config: OidcConfig, fetcher: Fetcher) -> FetchJwks:
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


def _parse_time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= MAX_TIME_S:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise Unauthenticated(f"the token's `{name}` is not a time")
