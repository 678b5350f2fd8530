"""Sessions that their clients have ended, as nodes tell each other of them."""

from typing import Final, NamedTuple

MAX_ENDED: Final = 20_000
"""How many are remembered, the newest. An older one could be revived, by its own principal only."""


class EndedSession(NamedTuple):
    """A session that no node serves any more."""

    nonce: str
    until_ms: int
    """When its id is good for nothing anyway. Wall clock."""
    at_ms: int = 0
    """When the registry's database took note of it, by its clock; 0: it has not."""
