"""The instructions a client gets: the gateway's notes, and what the servers of its scope say of themselves.

Instructions are a server's own words and reach a model unasked. So they are bounded, name their server, and
hold nothing that people do not see.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

MAX_INSTRUCTIONS: Final = 16_384
"""Of one server, in characters: as much as a description may have."""
MAX_MERGED_EACH: Final = 2_048
"""Of one server among others. Claude Code shows a model about as much of one connection."""
MAX_MERGED: Final = 8_192
"""Of all servers of a scope together: about 2,000 tokens."""

_SEEN_CONTROLS: Final = "\n\t"


class ServerInstructions(NamedTuple):
    """What one server says about itself."""

    server_id: str
    display_name: str
    text: str


def clean_instructions(text: str) -> str:
    """`text` within bounds, without control and format characters: those can hide words from people."""
    kept = (char for char in text[: 2 * MAX_INSTRUCTIONS] if char in _SEEN_CONTROLS or not _is_unseen(char))
    return _cut("".join(kept).strip(), MAX_INSTRUCTIONS)


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn"}


def compose_instructions(
    notes: Sequence[str], servers: Sequence[ServerInstructions], *, is_single: bool
) -> str:
    """The notes, then each server's text under its name; on the path of a single server the text alone."""
    texts = [server.text for server in servers] if is_single else list(_merged(servers))
    return "\n\n".join([" ".join(notes), *texts] if notes else texts)


def _merged(servers: Sequence[ServerInstructions]) -> Iterable[str]:
    left = MAX_MERGED
    for position, server in enumerate(servers):
        title = f" ({server.display_name})" if server.display_name else ""
        text = f"Server `{server.server_id}`{title}:\n{_cut(server.text, MAX_MERGED_EACH)}"
        if len(text) > left:
            yield f"Instructions of {len(servers) - position} more servers are left out."
            return
        left -= len(text)
        yield text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
