"""The names tools go by at the doors.

Inside the program a tool is a `ToolRef`; only here is it joined into one string. A joined name is never
split to decide a call: what it means is looked up in the table of the caller's own scope.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from toolgate.errors import InvalidRecord
from toolgate.model.chat import NameProfile
from toolgate.model.names import ToolRef, is_tool_name, parse_server_id

MAX_CHAT_NAME: Final = 64
# What takes identifiers takes no digit first, either: the empty match before one becomes a `_` as well.
_FOREIGN: Final[Mapping[NameProfile, re.Pattern[str]]] = {
    "default": re.compile(r"[^A-Za-z0-9_-]"),
    "identifier": re.compile(r"[^A-Za-z0-9_]|\A(?=[0-9])"),
}
_HASH_DIGITS: Final = range(8, 40)
_MODEL_PREFIX: Final = "mcp."


def door_name(ref: ToolRef) -> str:
    """`<server_id>.<tool>`, as the MCP door lists it."""
    return f"{ref.server_id}.{ref.name}"


def parse_door_name(text: str) -> ToolRef | None:
    """The tool that `text` would name, None if it could name none. Whether the caller has it is not said.

    A server id holds no dot, so the first one parts the two, whatever the tool's own name holds.
    """
    server_id, _, name = text.partition(".")
    try:
        parse_server_id(server_id)
    except InvalidRecord:
        return None
    return ToolRef(server_id, name) if is_tool_name(name) else None


def chat_names(
    refs: Iterable[ToolRef], namespaces: Mapping[str, str], *, profile: NameProfile = "default"
) -> Mapping[str, ToolRef]:
    """The function name of each tool in chat, `mcp__<server_id>__<tool>`, as a table from name to tool.

    `namespaces` maps a server id to the record's `tool_namespace`, where it has one. A name that chat (under
    this `profile`) does not take, or that two tools would share, becomes a readable alias that ends in a hash
    of the tool. The table depends on the set of `refs` alone, not on their order; and a name that is not
    shared depends on its tool alone, so that no other tool renames it in the middle of a conversation.
    """
    foreign = _FOREIGN[profile]
    joined = {ref: _joined(ref, namespaces) for ref in sorted(set(refs))}
    uses = Counter(joined.values())
    names = {ref: name for ref, name in joined.items() if uses[name] == 1 and _is_fit(name, foreign)}
    taken = set(names.values())
    for ref, name in joined.items():
        if ref not in names:
            names[ref] = _alias(ref, foreign.sub("_", name), taken)
            taken.add(names[ref])
    return {names[ref]: ref for ref in joined}


def _joined(ref: ToolRef, namespaces: Mapping[str, str]) -> str:
    namespace = namespaces.get(ref.server_id) or f"{_MODEL_PREFIX}{ref.server_id}"
    return f"{namespace.replace('.', '__')}__{ref.name}"


def _is_fit(name: str, foreign: re.Pattern[str]) -> bool:
    return 0 < len(name) <= MAX_CHAT_NAME and foreign.search(name) is None


def _alias(ref: ToolRef, readable: str, taken: Collection[str]) -> str:
    """`readable`, with as many hash digits as it takes to be like no other."""
    digest = hashlib.sha256(str(ref).encode()).hexdigest()
    aliases = (f"{readable[: MAX_CHAT_NAME - digits - 1]}_{digest[:digits]}" for digits in _HASH_DIGITS)
    return next(alias for alias in aliases if alias not in taken)
