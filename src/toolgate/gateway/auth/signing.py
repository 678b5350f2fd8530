"""Ids that hold what a client keeps for us between two requests, so that no node has to.

Signed, good for one principal and for a while, and opened by any node. One that does not open is nothing.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from toolgate.gateway.signing import Signer

LIFETIME_S: Final = 30 * 60


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
        sealed = _Sealed(principal_id, int(self._wall_s()) + LIFETIME_S, data)
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
