"""Turns a credential into a principal, or rejects the request.

Only the `Authorization` header identifies a caller: no other header, path or body field does. An invalid
credential never makes an anonymous caller. Without a credential the caller is the local administrator, if the
gateway listens on loopback and trusts it. A stream that outlives its request ends when its credential lapses.
"""

import asyncio
import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from toolgate.audit.events import CredentialRefused
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import NotReady, TooManyAttempts, Unauthenticated
from toolgate.model.principals import Key, Principal, Role

MAX_ATTEMPTS: Final = 20
"""Invalid credentials that a peer may send in `WINDOW_S`: different ones, and to one path."""
WINDOW_S: Final = 60.0  # the limits here are per minute, as the hint of `TooManyAttempts` says
MAX_PEERS: Final = 2_000  # peers counted, about 40 MB at worst; past it, the oldest window is dropped
MAX_PATHS: Final = 128  # paths counted per peer: a caller chooses them, and each takes memory
MAX_AUDITED: Final = 1_000
"""Audit records in `WINDOW_S` for all peers together, so that no outsider can fill the disk."""


@dataclass(slots=True)
class _AttemptWindow:
    """The attempts of one peer within `WINDOW_S`. It keeps hashes only, never a credential."""

    began_s: float
    attempts: int = 0
    credentials: set[int] = field(default_factory=set)
    paths: Counter[int] = field(default_factory=Counter)

    def add(self, credential: str, path: str) -> bool:
        """Count one attempt. Returns whether it exceeds a limit."""
        self.attempts += 1
        if len(self.credentials) <= MAX_ATTEMPTS:
            self.credentials.add(hash(credential))
        number = hash(path)
        if number in self.paths or len(self.paths) < MAX_PATHS:
            self.paths[number] += 1
        return len(self.credentials) > MAX_ATTEMPTS or self.paths[number] > MAX_ATTEMPTS


@dataclass(slots=True)
class FailedAttempts:
    """Counts invalid credentials by peer address. `clock_s` is monotonic.

    An attacker sends new credentials, a broken client repeats one at one path: each pattern has its limit.
    A valid credential always passes, so a client never suffers for another one behind the same proxy.
    """

    audit: AuditLog | None = None
    _: KW_ONLY
    clock_s: Callable[[], float] = time.monotonic
    max_peers: int = MAX_PEERS
    max_audited: int = MAX_AUDITED
    peers: OrderedDict[str, _AttemptWindow] = field(default_factory=OrderedDict, init=False)
    """The oldest window first."""
    _audited_since_s: float = field(default=-math.inf, init=False)
    _audited: int = field(default=0, init=False)

    def record_attempt(self, peer: str, credential: str, *, path: str) -> None:
        """Count an invalid credential of `peer` at `path`. Raises TooManyAttempts beyond the limits."""
        now_s, network = self.clock_s(), _network_of(peer)
        window = self.peers.get(network)
        if window is None or now_s - window.began_s >= WINDOW_S:
            self.peers.pop(network, None)
            if len(self.peers) >= self.max_peers:
                self.peers.popitem(last=False)
            window = self.peers[network] = _AttemptWindow(now_s)
        is_too_many = window.add(credential, path)
        if window.attempts <= MAX_ATTEMPTS:
            self._record(peer, TooManyAttempts.code if is_too_many else Unauthenticated.code, now_s)
        if is_too_many:
            wait_s = max(1, round(window.began_s + WINDOW_S - now_s))
            raise TooManyAttempts(
                "this address sent too many invalid credentials",
                hint=f"wait {wait_s} s, or send a valid credential",
                data={"retry_after_s": wait_s},
            )

    def _record(self, peer: str, code: str, now_s: float) -> None:
        if now_s - self._audited_since_s >= WINDOW_S:
            self._audited_since_s, self._audited = now_s, 0
        self._audited += 1
        if self.audit is not None and self._audited <= self.max_audited:
            self.audit.record(CredentialRefused(at_ms=int(time.time() * 1e3), peer=peer, code=code))


def _network_of(peer: str) -> str:
    """The network whose attempts count together: an IPv6 host can use any address of a /64."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return peer
    return str(ipaddress.IPv6Network((address, 64), strict=False))


RECHECK_S: Final = 60.0  # the longest timer for an expiry: the wall clock may be corrected meanwhile
MIN_KEY_CHARS: Final = 32  # characters of a key: 192 bits in base64, so one hash is enough to store it
MAX_TOKENS: Final = 10_000
"""Verified tokens to cache, about 10 MB. Beyond it, the oldest is dropped, and verified again on next use."""
OF_ISSUER: Final = "oidc:"
"""The prefix of principal ids that come from an issuer's tokens."""
LOCAL_ADMIN: Final = Principal(id="local", role="admin")
KEYED_ADMIN: Final = Principal(id="admin", role="admin")

RANKED_ROLES: Final[tuple[Role, ...]] = ("admin", "publisher", "viewer", "agent")
"""Each role includes the permissions of the roles after it. `node` is not among them."""
_REACHES: Final[Mapping[Role, frozenset[Role]]] = {
    "node": frozenset({"node"}),
    **{role: frozenset(RANKED_ROLES[rank:]) for rank, role in enumerate(RANKED_ROLES)},
}


def reaches(role: Role, needed: Role) -> bool:
    return needed in _REACHES[role]


class Proof(NamedTuple):
    """The principal that a credential proves, and until when; None: until it is revoked."""

    principal: Principal
    expires_at_s: float | None = None


@dataclass(slots=True, eq=False)
class _HeldCredential:
    """A credential that something long-lived depends on, such as an open stream."""

    digest: bytes
    proof: Proof
    on_lapse: Callable[[], None]
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class CredentialExpiry:
    """Watches held credentials and reports when one lapses. `clock_s` is the time of day."""

    clock_s: Callable[[], float]
    held: set[_HeldCredential] = field(default_factory=set)

    @contextmanager
    def hold(self, digest: bytes, proof: Proof, *, on_lapse: Callable[[], None]) -> Iterator[None]:
        """Call `on_lapse` if, within the block, `proof` expires or `digest` proves something else."""
        held = _HeldCredential(digest, proof, on_lapse)
        self.held.add(held)
        self._check(held)
        try:
            yield
        finally:
            self._drop(held)

    def recheck(self, proofs: Mapping[bytes, Proof]) -> None:
        """Only `proofs` are valid now: every other held credential lapses."""
        for held in tuple(self.held):
            if proofs.get(held.digest) != held.proof:
                self._lapse(held)

    def _check(self, held: _HeldCredential) -> None:
        expires_at_s = held.proof.expires_at_s
        if expires_at_s is None:
            return
        left_s = expires_at_s - self.clock_s()
        if left_s <= 0:
            self._lapse(held)
        else:
            loop = asyncio.get_running_loop()
            held.timer = loop.call_later(min(left_s, RECHECK_S), self._check, held)

    def _lapse(self, held: _HeldCredential) -> None:
        self._drop(held)
        held.on_lapse()

    def _drop(self, held: _HeldCredential) -> None:
        self.held.discard(held)
        if held.timer is not None:
            held.timer.cancel()


class Credential(NamedTuple):
    """The credential of a caller, and when it expires; None: it is valid until it is revoked."""

    kind: Literal["key", "token", "loopback"]
    expires_at_s: float | None = None


class TokenVerifier(Protocol):
    """Verifies the tokens of an issuer."""

    async def verify(self, token: str) -> Proof:
        """Raises Unauthenticated; IssuerUnavailable if the keys are unknown; Forbidden without a role."""

    def on_key_withdrawn(self, forget: Callable[[], None]) -> None:
        """Call `forget` whenever valid tokens may have become invalid."""


class Identities:
    """The valid credentials, by their hashes. `clock_s` is the wall clock."""

    def __init__(
        self,
        *,
        admin_key: str | None,
        trusts_local: bool,
        clock_s: Callable[[], float],
        verifier: TokenVerifier | None = None,
        failed_attempts: FailedAttempts | None = None,
        awaits_keys: bool = False,
    ) -> None:
        """`awaits_keys`: until the first `apply`, no credential counts as invalid."""
        self._anonymous = LOCAL_ADMIN if trusts_local else None
        self._clock_s = clock_s
        self._verifier = verifier
        self._failed_attempts = FailedAttempts() if failed_attempts is None else failed_attempts
        self._held_keys, self._held_tokens = CredentialExpiry(clock_s), CredentialExpiry(clock_s)
        self._fixed = {_digest(admin_key): Proof(KEYED_ADMIN)} if admin_key else {}
        self._keys: Mapping[bytes, Proof] = self._fixed
        self._tokens: dict[bytes, Proof] = {}
        if verifier is not None:
            verifier.on_key_withdrawn(self._forget_tokens)
        self._awaits_keys = awaits_keys

    def apply(self, keys: Mapping[str, Key]) -> None:
        """Replace the keys, at once for new requests and for everything that holds a credential."""
        stored = {
            bytes.fromhex(key.sha256): Proof(principal_of(key), key.expires_at_s) for key in keys.values()
        }
        self._keys = stored | self._fixed
        self._awaits_keys = False
        self._held_keys.recheck(self._keys)

    def known(self, authorization: str | None) -> Principal | None:
        """The principal of an `Authorization` header if it is cached; if not, call `authenticate`."""
        if authorization is None:
            return self._anonymous
        scheme, _, secret = authorization.partition(" ")
        if scheme != "Bearer" and scheme.lower() != "bearer":
            return None
        digest = sha256(secret.strip().encode()).digest()
        # Looked up by hash, so the duration reveals nothing about the key.
        proof = self._keys.get(digest) or self._tokens.get(digest)
        # As `_find_proof`, inlined: every request runs through here.
        if proof is None or (proof.expires_at_s is not None and proof.expires_at_s <= self._clock_s()):
            return None
        return proof.principal

    async def authenticate(
        self, authorization: str | None, *, peer: str = "", path: str = "", trusts_local: bool = True
    ) -> Principal:
        """The principal of an `Authorization` header that address `peer` sent to `path`.

        Without a header, it is the local administrator if loopback is trusted and `trusts_local` is true.
        Raises Unauthenticated; NotReady before the first keys arrive; TooManyAttempts if the peer sent too
        many invalid credentials; and as `TokenVerifier.verify`.
        """
        is_trusted = authorization is not None or trusts_local
        principal = self.known(authorization) if is_trusted else None
        if principal is not None:
            return principal
        if self._awaits_keys:
            raise NotReady("this node has not received its keys from the control plane")
        if authorization is None:
            raise Unauthenticated("this gateway requires a key")
        try:
            return (await self.verify_token(_parse_bearer(authorization))).principal
        except Unauthenticated:
            self._failed_attempts.record_attempt(peer, authorization, path=path)
            raise

    def credential(self, authorization: str | None) -> Credential:
        """The credential in an authenticated header. Raises Unauthenticated if it has lapsed since."""
        if authorization is None:
            return Credential("loopback")
        digest, proof = self._find_proof(authorization)
        return Credential("key" if digest in self._keys else "token", proof.expires_at_s)

    async def verify_token(self, token: str) -> Proof:
        """Verify an issuer's token, without counting a failure. Raises as `TokenVerifier.verify`."""
        # A JWT has three parts; a Toolgate key has no dot.
        if self._verifier is None or token.count(".") != 2:
            raise _invalid_credential()
        proof = await self._verifier.verify(token)
        if len(self._tokens) >= MAX_TOKENS:
            self._tokens.pop(next(iter(self._tokens)))
        self._tokens[_digest(token)] = proof
        return proof

    @contextmanager
    def hold_credential(self, authorization: str | None, on_lapse: Callable[[], None]) -> Iterator[None]:
        """Call `on_lapse` once if the credential lapses within the block, for streams and sessions.

        A credential lapses when its key is revoked or changed, when it expires, or when the issuer withdraws
        the key that signed it. Raises Unauthenticated if it has lapsed already.
        """
        if authorization is None:
            yield
            return
        digest, proof = self._find_proof(authorization)
        held = self._held_keys if digest in self._keys else self._held_tokens
        with held.hold(digest, proof, on_lapse=on_lapse):
            yield

    def _find_proof(self, authorization: str) -> tuple[bytes, Proof]:
        """Raises Unauthenticated if the credential is not valid, or no longer valid."""
        digest = _digest(_parse_bearer(authorization))
        proof = self._keys.get(digest) or self._tokens.get(digest)
        if proof is None or (proof.expires_at_s is not None and proof.expires_at_s <= self._clock_s()):
            raise _invalid_credential()
        return digest, proof

    def _forget_tokens(self) -> None:
        # All tokens are verified again. Open streams that hold one end, so their clients authenticate again.
        self._tokens.clear()
        self._held_tokens.recheck({})


def hash_key(secret: str) -> str:
    """The hash of a key, to store. Keys are long and random, so one round of SHA-256 is enough."""
    return _digest(secret).hex()


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def principal_of(key: Key) -> Principal:
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
    """Identifies a credential, equally on every node: state between two requests is bound to it.

    A key's fingerprint is its id, even if its rights change. Tokens of one subject share the id and differ
    by their rights.
    """
    if not principal.id.startswith(OF_ISSUER):
        return principal.id
    return f"{principal.id}#{sha256(msgspec.json.encode(principal)).hexdigest()}"


def can_authenticate(principal_id: str, keys: Container[str]) -> bool:
    """Whether a principal can still authenticate. For one with a token only its issuer knows: True."""
    kind, _, key_id = principal_id.partition(":")
    return kind != "key" or key_id in keys


def credential_lapsed() -> Unauthenticated:
    """The error that ends a stream or session whose credential lapsed."""
    return Unauthenticated("the key was revoked or changed, or has expired")


def _parse_bearer(authorization: str) -> str:
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated("the `Authorization` header is not `Bearer` with a key")
    return secret.strip()


def _invalid_credential() -> Unauthenticated:
    return Unauthenticated("the key is unknown, revoked or expired")
