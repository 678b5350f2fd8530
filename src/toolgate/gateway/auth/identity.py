"""Credentials that something long rests on, such as an open stream: it is told when one lapses.

Roles in their order: each may do whatever those below it may. `node` stands apart from them.

Authentication: a credential becomes a principal, or the request ends here.

A wrong credential is never anonymous, and no header, path or body field but `Authorization` says who
calls. Without any credential a caller is the local administrator, and only where the gateway listens
on loopback and is told to trust it.
"""

import asyncio
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from toolgate.errors import NotReady, Unauthenticated
from toolgate.gateway.auth.failed_attempts import FailedAttempts
from toolgate.model.principals import Key, Principal, Role

RECHECK_S: Final = 60.0
"""The longest an expiry is slept through: the time of day may be set anew meanwhile."""


class Proof(NamedTuple):
    """Whom a credential proves, and until when; None: until it is revoked."""

    principal: Principal
    expires_at_s: float | None = None


class _HeldCredential:
    """One that is held: what the credential of that digest proved when it began."""

    __slots__ = ("digest", "on_lapse", "proof", "timer")

    def __init__(self, digest: bytes, proof: Proof, on_lapse: Callable[[], None]) -> None:
        self.digest = digest
        self.proof = proof
        self.on_lapse = on_lapse
        self.timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class CredentialExpiry:
    """All that are held. `clock_s` is the time of day, which expiries are given in."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._held: set[_HeldCredential] = set()

    @contextmanager
    def hold(self, digest: bytes, proof: Proof, *, on_lapse: Callable[[], None]) -> Iterator[None]:
        """Have `on_lapse` called if, within the block, `proof` expires or is no more that of `digest`."""
        tenure = _HeldCredential(digest, proof, on_lapse)
        self._held.add(tenure)
        self._look_again(tenure)
        try:
            yield
        finally:
            self._held.discard(tenure)
            tenure.stop()

    def recheck(self, proofs: Mapping[bytes, Proof]) -> None:
        """What is in force is now this: end what rests on something else."""
        for tenure in tuple(self._held):
            if proofs.get(tenure.digest) != tenure.proof:
                self._lapse(tenure)

    def _look_again(self, tenure: _HeldCredential) -> None:
        expires_at_s = tenure.proof.expires_at_s
        if expires_at_s is None:
            return
        left_s = expires_at_s - self._clock_s()
        if left_s <= 0:
            self._lapse(tenure)
            return
        loop = asyncio.get_running_loop()
        tenure.timer = loop.call_later(min(left_s, RECHECK_S), self._look_again, tenure)

    def _lapse(self, tenure: _HeldCredential) -> None:
        self._held.discard(tenure)
        tenure.stop()
        tenure.on_lapse()


_REACHES: Final[Mapping[Role, frozenset[Role]]] = {
    "admin": frozenset({"admin", "publisher", "viewer", "agent"}),
    "publisher": frozenset({"publisher", "viewer", "agent"}),
    "viewer": frozenset({"viewer", "agent"}),
    "agent": frozenset({"agent"}),
    "node": frozenset({"node"}),
}


def reaches(role: Role, needed: Role) -> bool:
    """Whether `role` is `needed` or above it."""
    return needed in _REACHES[role]


MIN_KEY_CHARS: Final = 32
MAX_TOKENS: Final = 10_000
"""Verified tokens remembered; past it the one verified first is verified anew."""
OF_ISSUER: Final = "oidc:"
"""How the id of a principal begins whose tokens an issuer makes."""
LOCAL_ADMIN: Final = Principal(id="local", role="admin")
KEYED_ADMIN: Final = Principal(id="admin", role="admin")


class Credential(NamedTuple):
    """What a caller proved itself by, and until when that holds; None: until it is revoked."""

    kind: Literal["key", "token", "loopback"]
    expires_at_s: float | None = None


def hash_key(secret: str) -> str:
    """What is stored of a key. Keys are long and random, so one round of SHA-256 is enough."""
    return _digest(secret).hex()


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


class TokenVerifier(Protocol):
    """Knows whom the tokens of an issuer prove."""

    async def verify(self, token: str) -> Proof:
        """Raises Unauthenticated; IssuerUnavailable where nothing can be said; Forbidden without a role."""

    def on_withdrawal(self, forget: Callable[[], None]) -> None:
        """Have `forget` called whenever tokens that were good may be so no more."""


class Identities:
    """The credentials in force, by their hashes. `clock_s` is the time of day."""

    def __init__(
        self,
        *,
        admin_key: str | None,
        trusts_local: bool,
        clock_s: Callable[[], float],
        verifier: TokenVerifier | None = None,
        refusals: FailedAttempts | None = None,
    ) -> None:
        self._anyone = LOCAL_ADMIN if trusts_local else None
        self._clock_s = clock_s
        self._verifier = verifier
        self._refusals = FailedAttempts() if refusals is None else refusals
        self._on_keys, self._on_tokens = CredentialExpiry(clock_s), CredentialExpiry(clock_s)
        self._fixed = {_digest(admin_key): Proof(KEYED_ADMIN)} if admin_key else {}
        self._keys: Mapping[bytes, Proof] = self._fixed
        self._tokens: dict[bytes, Proof] = {}
        if verifier is not None:
            verifier.on_withdrawal(self._forget_tokens)
        self._awaits_keys = False

    def wait_for_keys(self) -> None:
        """Call no credential wrong before the first `apply`: the keys are still to come."""
        self._awaits_keys = True

    def apply(self, keys: Mapping[str, Key]) -> None:
        """Replace the stored keys: at once for requests to come, and for all that `until_lapsed` holds."""
        stored = {
            bytes.fromhex(key.sha256): Proof(principal_of(key), key.expires_at_s) for key in keys.values()
        }
        self._keys = stored | self._fixed
        self._awaits_keys = False
        self._on_keys.recheck(self._keys)

    def known(self, authorization: str | None) -> Principal | None:
        """The principal behind an `Authorization` header, if that can be said at once; else ask `admit`."""
        if authorization is None:
            return self._anyone
        scheme, _, secret = authorization.partition(" ")
        if scheme != "Bearer" and scheme.lower() != "bearer":
            return None
        digest = sha256(secret.strip().encode()).digest()
        # Looked up by hash: how long it takes says nothing about the key.
        proof = self._keys.get(digest) or self._tokens.get(digest)
        # As in `_proof`, without the call: every request of a busy client comes by here.
        if proof is None or (proof.expires_at_s is not None and proof.expires_at_s <= self._clock_s()):
            return None
        return proof.principal

    async def admit(
        self, authorization: str | None, *, peer: str = "", place: str = "", trusts_local: bool = True
    ) -> Principal:
        """The principal behind an `Authorization` header that came from address `peer` to `place`, a path.

        Without one it is the local administrator where callers are trusted, unless `trusts_local` is false.
        Raises Unauthenticated; NotReady while keys are awaited; TooManyAttempts where wrong ones keep coming
        from there; and what `TokenVerifier.verify` raises.
        """
        is_trusted = authorization is not None or trusts_local
        principal = self.known(authorization) if is_trusted else None
        if principal is not None:
            return principal
        if self._awaits_keys:
            raise NotReady("this node has not heard from control yet")
        if authorization is None:
            raise Unauthenticated("this gateway needs a key")
        try:
            return (await self._verified(_parse_bearer(authorization))).principal
        except Unauthenticated:
            self._refusals.note(peer, authorization, place=place)
            raise

    def credential(self, authorization: str | None) -> Credential:
        """What a header is that was admitted. Raises Unauthenticated if it has lapsed since."""
        if authorization is None:
            return Credential("loopback")
        digest = _digest(_parse_bearer(authorization))
        proof = self._proof(digest)
        if proof is None:
            raise _invalid_credential()
        return Credential("key" if digest in self._keys else "token", proof.expires_at_s)

    async def verify_token(self, token: str) -> Proof:
        """Whom a token proves that its issuer gave to us. What it lacks is nobody's attempt to guess.

        Raises Unauthenticated, and what `TokenVerifier.verify` raises.
        """
        return await self._verified(token)

    @contextmanager
    def hold_credential(self, authorization: str | None, on_lapse: Callable[[], None]) -> Iterator[None]:
        """Have `on_lapse` called, once, when the credential stops proving what it proves now.

        For what outlives its request, and while the block runs: the key is revoked or changed, or it or the
        token expires, or the issuer withdraws what signed it. Raises Unauthenticated where it is so already.
        """
        if authorization is None:
            yield
            return
        digest = _digest(_parse_bearer(authorization))
        proof = self._proof(digest)
        if proof is None:
            raise _invalid_credential()
        tenures = self._on_keys if digest in self._keys else self._on_tokens
        with tenures.hold(digest, proof, on_lapse=on_lapse):
            yield

    def _proof(self, digest: bytes) -> Proof | None:
        proof = self._keys.get(digest) or self._tokens.get(digest)
        if proof is None or proof.expires_at_s is None or proof.expires_at_s > self._clock_s():
            return proof
        return None

    async def _verified(self, secret: str) -> Proof:
        if self._verifier is None or not _looks_like_token(secret):
            raise _invalid_credential()
        proof = await self._verifier.verify(secret)
        if len(self._tokens) >= MAX_TOKENS:
            self._tokens.pop(next(iter(self._tokens)))
        self._tokens[_digest(secret)] = proof
        return proof

    def _forget_tokens(self) -> None:
        """Whoever comes with one is verified anew; open streams end, so that theirs are, too."""
        self._tokens.clear()
        self._on_tokens.recheck({})


def principal_of(key: Key) -> Principal:
    """Whom a key proves."""
    return Principal(
        id=f"key:{key.key_id}",
        role=key.role,
        ceiling=key.ceiling,
        default_task=key.default_task,
        expires_at_s=key.expires_at_s,
        budgets=key.budgets,
        integrations=key.integrations,
    )


def fingerprint_of(principal: Principal) -> str:
    """Tells credentials apart, on every node alike: for what is kept between one request and the next.

    A key is its id, also when its rights change. Tokens of one subject share its id, and what they may do
    tells them apart.
    """
    if not principal.id.startswith(OF_ISSUER):
        return principal.id
    return f"{principal.id}#{sha256(msgspec.json.encode(principal)).hexdigest()}"


def can_authenticate(principal_id: str, keys: Container[str]) -> bool:
    """Whether a principal can still prove itself, as far as is known: about tokens their issuer decides."""
    kind, _, key_id = principal_id.partition(":")
    return kind != "key" or key_id in keys


def credential_lapsed() -> Unauthenticated:
    """What whoever `until_lapsed` ends is told."""
    return Unauthenticated("the key was revoked or changed, or it has expired")


def _parse_bearer(authorization: str) -> str:
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated("the `Authorization` header is not a bearer key")
    return secret.strip()


def _looks_like_token(secret: str) -> bool:
    """Three parts: keys of our own hold no dot."""
    return secret.count(".") == 2


def _invalid_credential() -> Unauthenticated:
    return Unauthenticated("the key is unknown, revoked or expired")
