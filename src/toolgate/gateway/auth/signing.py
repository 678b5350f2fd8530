"""Signs what clients keep for us and hand back: session ids, and the state of requests that wait for input.

Signed, not encrypted: it says nothing that its client does not know. All nodes share the key.

Ids that hold what a client keeps for us between two requests, so that no node has to.

Signed, good for one principal and for a while, and opened by any node. One that does not open is nothing.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Final

import msgspec

_MAC_BYTES: Final = 32


class Signer:
    """Makes tokens, and opens those of its own key. A token for one purpose is none for another."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def sign(self, purpose: bytes, payload: bytes) -> bytes:
        """A token that holds `payload`, in characters that any header or URL keeps."""
        return base64.urlsafe_b64encode(self._mac(purpose, payload) + payload).rstrip(b"=")

    def open(self, purpose: bytes, token: bytes) -> bytes | None:
        """The payload of a token as it was made; None for any other bytes."""
        try:
            signed = base64.b64decode(token + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        payload = signed[_MAC_BYTES:]
        # The very bytes that were issued, and no other spelling of them: it would be another token.
        return payload if hmac.compare_digest(token, self.sign(purpose, payload)) else None

    def _mac(self, purpose: bytes, payload: bytes) -> bytes:
        return hmac.digest(self.key, b"%b\0%b" % (purpose, payload), hashlib.sha256)


SEAL_LIFETIME_S: Final = 30 * 60


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    principal: str
    expires_s: int
    data: bytes


class SealedIds:
    """Seals and opens the ids of one purpose. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float], *, purpose: bytes) -> None:
        self._signer = signer
        self._wall_s = wall_s
        self._purpose = purpose

    def seal(self, prefix: str, data: bytes, *, principal_id: str) -> str:
        """An id that begins with `prefix` and holds `data`, for this principal: see `fingerprint_of`."""
        sealed = _Sealed(principal_id, int(self._wall_s()) + SEAL_LIFETIME_S, data)
        token = self._signer.sign(self._purpose + prefix.encode(), msgspec.msgpack.encode(sealed))
        return prefix + token.decode("ascii")

    def open(self, prefix: str, sent: str, *, principal_id: str) -> bytes | None:
        """What an id holds for this principal; None where that is nothing, or nothing any more."""
        try:
            token = sent.removeprefix(prefix).encode("ascii")
        except UnicodeEncodeError:
            return None
        payload = self._signer.open(self._purpose + prefix.encode(), token)
        if payload is None:
            return None
        sealed = msgspec.msgpack.decode(payload, type=_Sealed)
        is_good = sealed.principal == principal_id and sealed.expires_s >= self._wall_s()
        return sealed.data if is_good else None
