"""What a client carries from one request to the next, in the ids of what it is to answer.

The model's server waits for an output of every call it made. Those of calls that were run beside one that the
client is to answer have nowhere else to be: no node keeps anything.
"""

import zlib
from typing import Final

import msgspec

from toolgate.chat.hidden_turns import MAX_BYTES, MAX_RAW_BYTES
from toolgate.chat.tool_calls import cut_text

_SHORTEST: Final = 256


class Carried(msgspec.Struct, array_like=True, frozen=True):
    """One call that is not answered yet, with what was done beside it."""

    call_id: str
    """As the model's server knows it."""
    outputs: tuple[tuple[str, str], ...] = ()
    """Call ids, and what came of them."""
    label: str = ""
    name: str = ""
    """In the caller's view: what an approval is asked for. Empty where the call is the caller's own."""
    arguments: str = ""


def encode_carried(carried: Carried, *, max_bytes: int = MAX_BYTES) -> bytes:
    """As few bytes as it takes, and no more than `max_bytes` unless the call itself has them.

    Nor does it take more memory than hidden turns do when it is opened.
    """
    most = max((len(output.encode()) for _, output in carried.outputs), default=0)
    raw = msgspec.json.encode(carried)
    data = zlib.compress(raw)
    while (len(raw) > MAX_RAW_BYTES or len(data) > max_bytes) and most > _SHORTEST:
        most //= 2
        outputs = tuple((call_id, cut_text(output, most)) for call_id, output in carried.outputs)
        raw = msgspec.json.encode(msgspec.structs.replace(carried, outputs=outputs))
        data = zlib.compress(raw)
    return data


def decode_carried(data: bytes) -> Carried:
    """What was encoded. `data` is of our own making: whoever calls has checked its seal."""
    return msgspec.json.decode(zlib.decompress(data), type=Carried)
