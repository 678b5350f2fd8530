"""The names of tools at the endpoints and for models, and aliases of native names that are not tool names.

Inside the program a tool is a `ToolRef`; only this module joins it into one string. A joined name is never
split to decide a call: it is looked up in the table of the caller's own scope.

A native name with spaces, `/` or letters beyond ASCII gets an alias. Everything but its server knows the tool
by this alias. It depends on the native name alone, so it is the same in every list and on every node. A name
that only looks like a plain one gets no alias: it is made to be mistaken for another tool.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from toolgate.errors import InvalidRecord
from toolgate.model.chat import NameProfile
from toolgate.model.names import MAX_TOOL_NAME, ToolRef, is_tool_name, parse_server_id

MAX_NATIVE_NAME: Final = 256  # characters, as of a prompt's name
ALIAS_HASH_DIGITS: Final = range(8, 40)
"""Two names of a server share 8 digits once in 4 billion; then one of them gets more digits."""

_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LOOKALIKES: Final = str.maketrans(
    "асԁеһіјкморѕтухѵԝαεικνορτυχ",  # Cyrillic, then Greek, in lower case
    "acdehijkmopstyxvwaeiknoptux",
)


def make_alias(native: str, digits: int = ALIAS_HASH_DIGITS.start) -> str:
    """The valid characters of `native`, and a hash: `list_files_3f2a9c1b`."""
    decomposed = unicodedata.normalize("NFKD", native)
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    readable = _NOT_IN_NAME.sub("_", plain).strip("_.-") or "tool"
    digest = hashlib.sha256(native.encode()).hexdigest()[:digits]
    return f"{readable[: MAX_TOOL_NAME - digits - 1]}_{digest}"


def fold_lookalikes(name: str) -> str:
    """Equal for names that differ only in case, width or similar letters."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_LOOKALIKES)


def is_disguised(native: str) -> bool:
    """Whether it looks like a plain name but has similar letters: a Cyrillic A in `read`."""
    if not is_tool_name(fold_lookalikes(native)):
        return False
    is_mixed = any(char.isascii() and char.isalpha() for char in native)
    return is_mixed or unicodedata.normalize("NFKC", native) != native


MAX_CHAT_NAME: Final = 64  # OpenAI's limit for the name of a function
# An identifier does not begin with a digit: the empty match before one becomes a `_`, too.
_INVALID_CHARS: Final[Mapping[NameProfile, re.Pattern[str]]] = {
    "default": re.compile(r"[^A-Za-z0-9_-]"),
    "identifier": re.compile(r"[^A-Za-z0-9_]|\A(?=[0-9])"),
}


def join_tool_name(ref: ToolRef) -> str:
    """`<server_id>.<tool>`, as the MCP endpoint lists it."""
    return f"{ref.server_id}.{ref.name}"


def parse_joined_name(text: str) -> ToolRef | None:
    """The tool that `text` names, whether or not the caller has it; None if it cannot be a name. A server id
    has no dot, so the first dot separates the two."""
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

    `namespaces` maps a server id to the `tool_namespace` of its record, if set. A name that is invalid under
    this `profile`, or that two tools would share, becomes a readable alias that ends in a hash. The table
    depends on the set of `refs`, not on their order. A unique name depends on its tool alone, so no other
    tool renames it during a conversation.
    """
    foreign = _INVALID_CHARS[profile]
    joined: dict[ToolRef, str] = {}
    for ref in sorted(set(refs)):
        namespace = namespaces.get(ref.server_id) or f"mcp.{ref.server_id}"
        joined[ref] = f"{namespace.replace('.', '__')}__{ref.name}"
    uses = Counter(joined.values())
    names = {
        ref: name
        for ref, name in joined.items()
        if uses[name] == 1 and 0 < len(name) <= MAX_CHAT_NAME and not foreign.search(name)
    }
    taken = set(names.values())
    for ref, name in joined.items():
        if ref not in names:
            readable, digest = foreign.sub("_", name), hashlib.sha256(str(ref).encode()).hexdigest()
            ends = (f"_{digest[:digits]}" for digits in ALIAS_HASH_DIGITS)  # enough to make it unique
            aliases = (readable[: MAX_CHAT_NAME - len(end)] + end for end in ends)
            names[ref] = next(alias for alias in aliases if alias not in taken)
            taken.add(names[ref])
    return {names[ref]: ref for ref in joined}
