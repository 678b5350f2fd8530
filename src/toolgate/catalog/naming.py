"""Names for tools whose own name is not a tool name: with spaces, `/`, or letters beyond ASCII.

The alias is what everything here knows the tool by; only its server gets the native name. It depends on the
native name alone, so it is the same in every listing and on every node. A name that only looks like a plain
one gets no alias: it is made to be taken for another tool.

The names tools go by at the doors.

Inside the program a tool is a `ToolRef`; only here is it joined into one string. A joined name is never
split to decide a call: what it means is looked up in the table of the caller's own scope.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from toolgate.errors import InvalidRecord
from toolgate.model.chat import NameProfile
from toolgate.model.names import MAX_TOOL_NAME, ToolRef, is_tool_name, parse_server_id

MAX_NATIVE_NAME: Final = 256
"""Characters, as of a prompt's name."""
ALIAS_HASH_DIGITS: Final = range(8, 40)
"""Two names of one server share an alias of 8 once in 4 billion; then one gets more digits."""

_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LOOKALIKES: Final = str.maketrans(
    "асԁеһіјкморѕтухѵԝαεικνορτυχ",  # Cyrillic, then Greek, in lower case
    "acdehijkmopstyxvwaeiknoptux",
)


def can_have_alias(native: str) -> bool:
    """Whether a name can be seen and is not too long, so that an alias can stand for it."""
    return 0 < len(native) <= MAX_NATIVE_NAME and native.isprintable()


def make_alias(native: str, digits: int = ALIAS_HASH_DIGITS.start) -> str:
    """`native` as far as a tool name can spell it, and a hash of it: `list_files_3f2a9c1b`."""
    decomposed = unicodedata.normalize("NFKD", native)
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    readable = _NOT_IN_NAME.sub("_", plain).strip("_.-") or "tool"
    digest = hashlib.sha256(native.encode()).hexdigest()[:digits]
    return f"{readable[: MAX_TOOL_NAME - digits - 1]}_{digest}"


def fold_lookalikes(name: str) -> str:
    """What a name looks like: equal for those that differ only in case, width or letters that look alike."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_LOOKALIKES)


def is_disguised(native: str) -> bool:
    """Whether it looks like a plain name, and some of its letters are not: a Cyrillic A in `read`."""
    if not is_tool_name(fold_lookalikes(native)):
        return False
    is_mixed = any(char.isascii() and char.isalpha() for char in native)
    return is_mixed or unicodedata.normalize("NFKC", native) != native


MAX_CHAT_NAME: Final = 64
# What takes identifiers takes no digit first, either: the empty match before one becomes a `_` as well.
_INVALID_CHARS: Final[Mapping[NameProfile, re.Pattern[str]]] = {
    "default": re.compile(r"[^A-Za-z0-9_-]"),
    "identifier": re.compile(r"[^A-Za-z0-9_]|\A(?=[0-9])"),
}
_HASH_DIGITS: Final = range(8, 40)
_MODEL_PREFIX: Final = "mcp."


def join_tool_name(ref: ToolRef) -> str:
    """`<server_id>.<tool>`, as the MCP door lists it."""
    return f"{ref.server_id}.{ref.name}"


def parse_joined_name(text: str) -> ToolRef | None:
    """The tool that `text` would name, None if it could name none. Whether the caller has it is not said.

    A server id holds no dot, so the first one parts the two, whatever the tool's own name holds.
    """
    server_id, _, name = text.partition(".")
    try:
        parse_server_id(server_id)
    except InvalidRecord:
        return None
    return ToolRef(server_id, name) if is_tool_name(name) else None


def make_chat_names(
    refs: Iterable[ToolRef], namespaces: Mapping[str, str], *, profile: NameProfile = "default"
) -> Mapping[str, ToolRef]:
    """The function name of each tool in chat, `mcp__<server_id>__<tool>`, as a table from name to tool.

    `namespaces` maps a server id to the record's `tool_namespace`, where it has one. A name that chat (under
    this `profile`) does not take, or that two tools would share, becomes a readable alias that ends in a hash
    of the tool. The table depends on the set of `refs` alone, not on their order; and a name that is not
    shared depends on its tool alone, so that no other tool renames it in the middle of a conversation.
    """
    foreign = _INVALID_CHARS[profile]
    joined = {ref: _join_chat_name(ref, namespaces) for ref in sorted(set(refs))}
    uses = Counter(joined.values())
    names = {ref: name for ref, name in joined.items() if uses[name] == 1 and _is_fit(name, foreign)}
    taken = set(names.values())
    for ref, name in joined.items():
        if ref not in names:
            names[ref] = _make_chat_alias(ref, foreign.sub("_", name), taken)
            taken.add(names[ref])
    return {names[ref]: ref for ref in joined}


def _join_chat_name(ref: ToolRef, namespaces: Mapping[str, str]) -> str:
    namespace = namespaces.get(ref.server_id) or f"{_MODEL_PREFIX}{ref.server_id}"
    return f"{namespace.replace('.', '__')}__{ref.name}"


def _is_fit(name: str, foreign: re.Pattern[str]) -> bool:
    return 0 < len(name) <= MAX_CHAT_NAME and foreign.search(name) is None


def _make_chat_alias(ref: ToolRef, readable: str, taken: Collection[str]) -> str:
    """`readable`, with as many hash digits as it takes to be like no other."""
    digest = hashlib.sha256(str(ref).encode()).hexdigest()
    aliases = (f"{readable[: MAX_CHAT_NAME - digits - 1]}_{digest[:digits]}" for digits in _HASH_DIGITS)
    return next(alias for alias in aliases if alias not in taken)
