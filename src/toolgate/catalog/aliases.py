"""Names for tools whose own name is not a tool name: with spaces, `/`, or letters beyond ASCII.

The alias is what everything here knows the tool by; only its server gets the native name. It depends on the
native name alone, so it is the same in every listing and on every node. A name that only looks like a plain
one gets no alias: it is made to be taken for another tool.
"""

import hashlib
import re
import unicodedata
from typing import Final

from toolgate.model.names import MAX_TOOL_NAME, is_tool_name

MAX_NATIVE_NAME: Final = 256
"""Characters, as of a prompt's name."""
HASH_DIGITS: Final = range(8, 40)
"""Two names of one server share an alias of 8 once in 4 billion; then one gets more digits."""

_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LOOK_ALIKE: Final = str.maketrans(
    "асԁеһіјкморѕтухѵԝαεικνορτυχ",  # Cyrillic, then Greek, in lower case
    "acdehijkmopstyxvwaeiknoptux",
)


def can_have_alias(native: str) -> bool:
    """Whether a name can be seen and is not too long, so that an alias can stand for it."""
    return 0 < len(native) <= MAX_NATIVE_NAME and native.isprintable()


def alias_of(native: str, digits: int = HASH_DIGITS.start) -> str:
    """`native` as far as a tool name can spell it, and a hash of it: `list_files_3f2a9c1b`."""
    decomposed = unicodedata.normalize("NFKD", native)
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    readable = _NOT_IN_NAME.sub("_", plain).strip("_.-") or "tool"
    digest = hashlib.sha256(native.encode()).hexdigest()[:digits]
    return f"{readable[: MAX_TOOL_NAME - digits - 1]}_{digest}"


def skeleton(name: str) -> str:
    """What a name looks like: equal for those that differ only in case, width or letters that look alike."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_LOOK_ALIKE)


def is_disguised(native: str) -> bool:
    """Whether it looks like a plain name, and some of its letters are not: a Cyrillic A in `read`."""
    if not is_tool_name(skeleton(native)):
        return False
    is_mixed = any(char.isascii() and char.isalpha() for char in native)
    return is_mixed or unicodedata.normalize("NFKC", native) != native
