"""The `requestState` that clients of the stateless era hand back: ours, around what a server put into it.

A state is good for the credential (`fingerprint_of`), the request and the time it was made for, at any node.
Nothing in it is taken at its word before its seal is checked.
"""

import hashlib
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from toolgate.errors import InputStateRefused, InvalidParams, ServerUnavailable
from toolgate.gateway.signing import Signer
from toolgate.upstream.connection.contract import Params

LIFETIME_S: Final = 600
"""How long a person may take to answer."""
MAX_STATE_BYTES: Final = 256 * 1024
"""Of what a server puts into its state: it travels with every round."""

Kind = Literal["server", "parked", "again", "approval"]
"""Around a server's own state; a handle to a parked call; nothing but that the request was sent before; what
approval its client was asked for."""

_PURPOSE: Final = b"requestState"
_OF_THE_ROUND: Final = frozenset({"_meta", "inputResponses", "requestState"})
_decode_text = msgspec.json.Decoder(str).decode
_encode_canonical = msgspec.json.Encoder(order="sorted").encode


class State(msgspec.Struct, array_like=True, frozen=True):
    """What was sealed."""

    kind: Kind
    payload: str
    credential: str
    request: str
    expires_s: int
    rounds: int = 1
    """How often the client was asked, this time included."""


class Seals:
    """Seals states and opens them. `wall_s` is the time of day."""

    def __init__(self, signer: Signer, wall_s: Callable[[], float]) -> None:
        self._signer = signer
        self._wall_s = wall_s

    def seal(self, kind: Kind, payload: str, *, credential: str, request: str, rounds: int = 1) -> str:
        """A state for this credential's next round of this request. Raises ServerUnavailable if too long."""
        if len(payload) > MAX_STATE_BYTES:
            raise ServerUnavailable(f"the server's `requestState` is longer than {MAX_STATE_BYTES} bytes")
        expires_s = int(self._wall_s()) + LIFETIME_S
        state = State(kind, payload, credential, request, expires_s, rounds)
        return self._signer.sign(_PURPOSE, msgspec.json.encode(state)).decode("ascii")

    def open(self, raw: msgspec.Raw, *, credential: str, request: str) -> State:
        """The state as it was sealed. Raises InputStateRefused, which does not say what was wrong."""
        state = self._read(raw)
        if state is None or state.credential != credential or state.request != request:
            raise InputStateRefused("this `requestState` does not belong to this request")
        if state.expires_s < self._wall_s():
            raise InputStateRefused("this `requestState` has expired")
        return state

    def _read(self, raw: msgspec.Raw) -> State | None:
        try:
            token = _decode_text(raw).encode("ascii")
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
        payload = self._signer.open(_PURPOSE, token)
        return None if payload is None else msgspec.json.decode(payload, type=State)


def request_digest(method: str, params: Params, *, server_id: str) -> str:
    """Tells one request from another, and not one round of it from the next. Raises InvalidParams."""
    try:
        asked = {name: msgspec.json.decode(raw) for name, raw in params.items() if name not in _OF_THE_ROUND}
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidParams("`params` cannot be read") from exc
    return hashlib.sha256(_encode_canonical([server_id, method, asked])).hexdigest()
