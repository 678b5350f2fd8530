"""What clients of the Responses API keep for the gateway: sealed, good for one principal and for a while.

An approval is used once at a node. Nodes do not know what others have seen: a principal that sends the same
approval to another makes the same call again, of its own and within its scope of then.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from toolgate.chat.responses_carried import Carried, decode_carried, encode_carried
from toolgate.gateway.signing import Signer

LIFETIME_S: Final = 30 * 60
MAX_KEPT: Final = 10_000
"""Of what a node remembers for a while; the oldest goes first."""
_PURPOSE: Final = b"responses-call"


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    principal: str
    expires_s: int
    carried: bytes


class CarriedSeals:
    """Seals calls and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._signer = signer
        self._wall_s = wall_s

    def seal(self, prefix: str, carried: Carried, *, principal_id: str) -> str:
        """An id that begins with `prefix` and holds `carried`, for this principal."""
        sealed = _Sealed(principal_id, int(self._wall_s()) + LIFETIME_S, encode_carried(carried))
        purpose = _PURPOSE + prefix.encode()
        return prefix + self._signer.sign(purpose, msgspec.msgpack.encode(sealed)).decode("ascii")

    def open(self, prefix: str, sent: str, *, principal_id: str) -> Carried | None:
        """What an id holds for this principal; None where it is nothing, or nothing any more."""
        try:
            token = sent.removeprefix(prefix).encode("ascii")
        except UnicodeEncodeError:
            return None
        payload = self._signer.open(_PURPOSE + prefix.encode(), token)
        if payload is None:
            return None
        sealed = msgspec.msgpack.decode(payload, type=_Sealed)
        is_good = sealed.principal == principal_id and sealed.expires_s >= self._wall_s()
        return decode_carried(sealed.carried) if is_good else None


class Remembered:
    """What this node has seen lately, by principal: a bounded map that forgets the oldest."""

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._max_kept = max_kept
        self._kept: OrderedDict[bytes, str] = OrderedDict()

    def put(self, principal_id: str, key: str, value: str = "") -> None:
        self._kept[_digest(principal_id, key)] = value
        if len(self._kept) > self._max_kept:
            self._kept.popitem(last=False)

    def get(self, principal_id: str, key: str) -> str | None:
        return self._kept.get(_digest(principal_id, key))


def _digest(principal_id: str, key: str) -> bytes:
    return hashlib.sha256(msgspec.json.encode((principal_id, key))).digest()
