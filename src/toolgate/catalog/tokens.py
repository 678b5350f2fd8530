"""What a text costs a model, roughly, without any model's tokenizer.

The estimate is for comparing and for limits, not for billing: it takes no vocabulary, gives the same
number everywhere, and on JSON Schema and English stays near what common tokenizers count.
"""

import re
from typing import Final

# Each match is one piece: up to six letters (short words are one token, long identifiers several), up to
# three digits, up to four signs (tokenizers join `":{"`), or one character outside ASCII, counted by its
# leading byte. Spaces cost nothing: they belong to the word after them.
_PIECE: Final = re.compile(rb"[A-Za-z]{1,6}|[0-9]{1,3}|[!-/:-@\[-`{-~]{1,4}|[\xc2-\xf4]")


def estimate_tokens(text: bytes) -> int:
    """About how many tokens the UTF-8 `text` is."""
    return len(_PIECE.findall(text))
