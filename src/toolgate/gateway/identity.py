"""Authentication: a credential becomes a principal, or the request ends here.

A wrong credential is never anonymous, and no header, path or body field but `Authorization` says who
calls. Without any credential a caller is the local administrator, and only where the gateway listens
on loopback and is told to trust it.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from toolgate.errors import Unauthenticated
from toolgate.model.principals import Key, Principal

MIN_KEY_CHARS: Final = 32
LOCAL_ADMIN: Final = Principal(id="local", role="admin")
KEYED_ADMIN: Final = Principal(id="admin", role="admin")


def hash_key(secret: str) -> str:
    """What is stored of a key. Keys are long and random, so one round of SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Identities:
    """The keys in force, by their hashes."""

    def __init__(self, *, admin_key: str | None, trusts_local: bool, clock_s: Callable[[], float]) -> None:
        self._admin = hash_key(admin_key) if admin_key else None
        self._anyone = LOCAL_ADMIN if trusts_local else None
        self._clock_s = clock_s
        self._keys: Mapping[str, tuple[Key, Principal]] = {}

    def apply(self, keys: Mapping[str, Key]) -> None:
        """Replace the stored keys; takes effect with the next request of any session."""
        self._keys = {key.sha256: (key, principal_of(key)) for key in keys.values()}

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal behind an `Authorization` header, or Unauthenticated."""
        if authorization is None:
            if self._anyone is None:
                raise Unauthenticated("this gateway needs a key")
            return self._anyone
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("the `Authorization` header is not a bearer key")
        # Looked up by hash: how long it takes says nothing about the key.
        digest = hash_key(secret.strip())
        if digest == self._admin:
            return KEYED_ADMIN
        key, principal = self._keys.get(digest, (None, None))
        if key is None or principal is None or self._is_expired(key):
            raise Unauthenticated("the key is unknown, revoked or expired")
        return principal

    def _is_expired(self, key: Key) -> bool:
        return key.expires_at_s is not None and key.expires_at_s <= self._clock_s()


def principal_of(key: Key) -> Principal:
    """Whom a key proves."""
    return Principal(
        id=f"key:{key.key_id}", role=key.role, ceiling=key.ceiling, default_task=key.default_task
    )
