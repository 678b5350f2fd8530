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
from toolgate.gateway.auth.signing import SealedIds
from toolgate.gateway.signing import Signer

MAX_KEPT: Final = 10_000
"""Of what a node remembers for a while; the oldest goes first."""
_PURPOSE: Final = b"responses-call"


class CarriedSeals:
    """Seals calls and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._ids = SealedIds(signer, wall_s, purpose=_PURPOSE)

    def seal(self, prefix: str, carried: Carried, *, principal_id: str) -> str:
        """An id that begins with `prefix` and holds `carried`, for this principal."""
        return self._ids.seal(prefix, encode_carried(carried), principal_id=principal_id)

    def open(self, prefix: str, sent: str, *, principal_id: str) -> Carried | None:
        """What an id holds for this principal; None where it is nothing, or nothing any more."""
        data = self._ids.open(prefix, sent, principal_id=principal_id)
        return None if data is None else decode_carried(data)


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
