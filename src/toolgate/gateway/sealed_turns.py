"""The hidden half of a turn in which a model called tools of ours and functions of the caller's.

It travels as the id of the first call that the caller gets, so that any node can put it back when the caller
comes with its results. If it does not open, what was hidden is forgotten, and never run again.
"""

from collections.abc import Callable
from typing import Final

from toolgate.chat.hidden_turns import ID_PREFIX, HiddenTurn, decode_hidden, encode_hidden
from toolgate.gateway.auth.signing import SealedIds
from toolgate.gateway.signing import Signer

_PURPOSE: Final = b"chat-turn"


class SealedTurns:
    """Seals turns and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._ids = SealedIds(signer, wall_s, purpose=_PURPOSE)

    def seal(self, turn: HiddenTurn, *, principal_id: str) -> str:
        """An id that holds `turn`, for this principal."""
        return self._ids.seal(ID_PREFIX, encode_hidden(turn), principal_id=principal_id)

    def open(self, call_id: str, *, principal_id: str) -> HiddenTurn | None:
        """What `call_id` holds for this principal; None where it is nothing, or nothing any more."""
        data = self._ids.open(ID_PREFIX, call_id, principal_id=principal_id)
        return None if data is None else decode_hidden(data)
