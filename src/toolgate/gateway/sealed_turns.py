"""The hidden half of a turn in which a model called tools of ours and functions of the caller's.

It travels as the id of the first call that the caller gets, signed, so that any node can put it back when
the caller comes with its results, and nobody has to remember it. It is good for its principal and for a
while. One that does not open is nothing: what was hidden is then forgotten, and never run again.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from toolgate.chat.hidden import ID_PREFIX, HiddenTurn, decode_hidden, encode_hidden
from toolgate.gateway.signing import Signer

LIFETIME_S: Final = 30 * 60
MAX_BYTES: Final = 48 * 1024
"""Of what is sealed, compressed: it travels with every later request of its conversation."""
_PURPOSE: Final = b"chat-turn"


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    principal: str
    expires_s: int
    turn: bytes


class SealedTurns:
    """Seals turns and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._signer = signer
        self._wall_s = wall_s

    def seal(self, turn: HiddenTurn, *, principal_id: str) -> str:
        """An id that holds `turn`, for this principal."""
        encoded = encode_hidden(turn, max_bytes=MAX_BYTES)
        sealed = _Sealed(principal_id, int(self._wall_s()) + LIFETIME_S, encoded)
        return ID_PREFIX + self._signer.sign(_PURPOSE, msgspec.msgpack.encode(sealed)).decode("ascii")

    def open(self, call_id: str, *, principal_id: str) -> HiddenTurn | None:
        """What `call_id` holds for this principal; None where it is nothing, or nothing any more."""
        try:
            token = call_id.removeprefix(ID_PREFIX).encode("ascii")
        except UnicodeEncodeError:
            return None
        payload = self._signer.open(_PURPOSE, token)
        if payload is None:
            return None
        sealed = msgspec.msgpack.decode(payload, type=_Sealed)
        if sealed.principal != principal_id or sealed.expires_s < self._wall_s():
            return None
        return decode_hidden(sealed.turn)
