"""Signs state that clients keep for the gateway: session ids, request state, hidden halves of chat turns.

The state is signed, not encrypted: it holds nothing that its client does not know, and grants nothing. All
nodes share the key.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

SEAL_LIFETIME_S: Final = 30 * 60  # how long a sealed id can be opened: as long as people let a chat wait
_MAC_BYTES: Final = 32  # of HMAC-SHA-256


class Signer:
    """Makes tokens, and opens tokens of the same key. A token for one purpose is invalid for another."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def sign(self, purpose: bytes, payload: bytes) -> bytes:
        """A token with `payload`, in characters that are safe in headers and URLs."""
        mac = hmac.digest(self.key, b"%b\0%b" % (purpose, payload), hashlib.sha256)
        return base64.urlsafe_b64encode(mac + payload).rstrip(b"=")

    def open(self, purpose: bytes, token: bytes) -> bytes | None:
        """The payload of a token; None if the token is invalid."""
        try:
            signed = base64.b64decode(token + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        payload = signed[_MAC_BYTES:]
        # Base64 has several spellings of the same bytes; only the issued one is valid.
        return payload if hmac.compare_digest(token, self.sign(purpose, payload)) else None


class _SealedData(msgspec.Struct, array_like=True, frozen=True):
    principal: str
    expires_s: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SealedIds:
    """Ids for one purpose that hold data for one principal, until they expire. `wall_s` is the wall clock."""

    signer: Signer
    wall_s: Callable[[], float]
    purpose: bytes

    def seal(self, prefix: str, data: bytes, *, principal_id: str) -> str:
        """An id that begins with `prefix` and holds `data`, for this principal. See `fingerprint_of`."""
        sealed = _SealedData(principal_id, int(self.wall_s()) + SEAL_LIFETIME_S, data)
        token = self.signer.sign(self.purpose + prefix.encode(), msgspec.msgpack.encode(sealed))
        return prefix + token.decode("ascii")

    def open(self, prefix: str, sent: str, *, principal_id: str) -> bytes | None:
        """The data of an id; None if it is invalid, expired or another principal's."""
        if not sent.isascii():
            return None
        token = sent.removeprefix(prefix).encode()
        payload = self.signer.open(self.purpose + prefix.encode(), token)
        if payload is None:
            return None
        sealed = msgspec.msgpack.decode(payload, type=_SealedData)
        is_good = sealed.principal == principal_id and sealed.expires_s >= self.wall_s()
        return sealed.data if is_good else None
