"""Rate limits and quotas of keys and tasks: values only, no clock and no count."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

HolderKind = Literal["key", "task"]
QuotaName = Literal["calls_per_minute", "calls_per_day", "tokens_per_day"]

MAX_CALLS: Final = 10**9
MAX_TOKENS: Final = 10**12
MAX_LEASE_REQUESTS: Final = 256
"""In one request of a node to the control plane."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits within a minute or a day of UTC. None: unlimited."""

    calls_per_minute: int | None = None
    calls_per_day: int | None = None
    tokens_per_day: int | None = None


class QuotaHolder(NamedTuple):
    """A key or a task, whose callers share its quotas."""

    kind: HolderKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind} `{self.id}`"


class HolderQuotas(NamedTuple):
    """The quotas of one holder. Invariant: at least one is set."""

    holder: QuotaHolder
    budgets: Quotas


class LeaseRequest(NamedTuple):
    """A request of a node for more calls of one quota, or for its remaining tokens."""

    holder: QuotaHolder
    budget: QuotaName
    limit: int
    spent: int = 0
    """Tokens used since the last request."""
    returned: int = 0
    """Granted calls that will not be made. A request that returns calls gets none."""
    window_ms: int = 0
    """The window of the returned calls; they count in no other."""


class LeaseGrant(NamedTuple):
    """The response to a LeaseRequest."""

    amount: int
    """Calls that the node may make within the window, counted as made; or the remaining tokens."""
    window_ms: int
    """The beginning of the window."""
    left_ms: int
    """The time until its end."""


class QuotaCount(NamedTuple):
    """What was used of one quota in a window."""

    window_ms: int = 0
    used: int = 0


class HolderUsage(NamedTuple):
    """A count with its holder and quota."""

    holder: QuotaHolder
    budget: QuotaName
    window_ms: int
    used: int
