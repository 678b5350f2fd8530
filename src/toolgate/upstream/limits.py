"""The numbers a pool goes by. Each has its origin; tests shorten them, operators do not see most."""

from dataclasses import dataclass
from typing import Final

from toolgate.upstream.connection.contract import START_TIMEOUT_S

CALL_CEILING_S: Final = 300.0
"""No call takes longer, whatever its record allows and however much progress it reports."""
LOOK_AGAIN_S: Final = 1.0
"""How soon a deadline that was moved is looked at again, because it may have been moved back."""

DEFAULT_MAX_CALLS: Final = 512
"""As many as 32 servers with the default concurrency take when all of them are full."""

GRACE_S: Final = 2.0
"""An opener keeps to the limit of a start itself, and may need this long to clear up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much at once, how often, how long."""

    max_starting: int = 8
    """Children started at once: starting interpreters is what a node's processors feel."""
    max_connecting: int = 64
    """Servers connected to at once. Their places are their own: those that never answer hold up no child."""
    start_slot_s: float = 2.0
    """How long a start counts as one of those. One that hangs longer burns nothing and frees its place."""
    start_timeout_s: float = START_TIMEOUT_S + GRACE_S
    """When an opener is given up, unless its record allows more."""
    slow_start_s: float = START_TIMEOUT_S
    """A start that takes longer downloads something. Calls and refreshes do not wait for it any longer."""

    backoff_s: float = 0.1
    backoff_max_s: float = 30.0
    """The wait before a restart doubles from the first to the second."""
    reconnect_max_s: float = 8.0
    """The same for a server behind a URL: asking costs little, and it is back within 10 s of its recovery."""
    max_starts: int = 5
    start_window_s: float = 10.0
    """So many starts within so long, and the server is down. A link that lived longer clears the count."""

    queue: int = 64
    """Calls that may wait for a server with no room; the next is refused at once."""
    max_calls: int = DEFAULT_MAX_CALLS
    """Calls in flight at all servers together. As many again may wait; see `NodeSlots`."""

    list_timeout_s: float = 10.0
    """For all pages of one list together."""
    list_together_s: float = 1.0
    """Lists read at once are shown at once, unless one takes longer than this."""
    list_ttl_s: float = 120.0
    """When a good list is read again, unless the server names a time of its own."""
    list_gap_s: float = 1.0
    """`list_changed` leads to at most one list in this time."""
    list_retry_s: float = 1.0
    list_retry_max_s: float = 5.0
    """The wait before a failed list is tried again doubles from the first to the second."""
    first_list_wait_s: float = 5.0
    """How long a caller's first list waits for a server that was never listed."""

    session_links: int = 64
    """Sessions that may each have a link of their own to one server; the next is refused at once."""
    principal_links: int = 1_024
    """Principals that may each have a link of their own to one server: each shows its own token."""
    session_idle_s: float = 300.0
    """When a link of a session's or principal's own is closed, unless the record names a time of its own."""

    drain_s: float = 10.0
    """What calls in flight are given when their link is replaced, and links when the pool closes."""


DEFAULT_LIMITS: Final = PoolLimits()
