"""How much may be used over time, and who may: values only, no clock and no count."""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

HolderKind = Literal["key", "task"]
QuotaName = Literal["calls_per_minute", "calls_per_day", "tokens_per_day"]

MAX_CALLS: Final = 10**9
MAX_TOKENS: Final = 10**12
MAX_LEASE_REQUESTS: Final = 256
"""That a node sends to control in one request."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """The most that may be used within a minute or a day, each by UTC. None: as much as there is."""

    calls_per_minute: int | None = None
    calls_per_day: int | None = None
    tokens_per_day: int | None = None


class QuotaHolder(NamedTuple):
    """A key or a task: whose budgets, or grants, all who call with it or under it share."""

    kind: HolderKind
    id: str

    def __str__(self) -> str:
        return f"{self.kind} `{self.id}`"


class HolderQuotas(NamedTuple):
    """What one holder may use over time. Invariant: at least one budget is set."""

    holder: QuotaHolder
    budgets: Quotas


class LeaseRequest(NamedTuple):
    """What a node asks of one budget: for more calls, or what is left of its tokens."""

    holder: QuotaHolder
    budget: QuotaName
    limit: int
    spent: int = 0
    """Tokens that were used since this was last said."""
    returned: int = 0
    """Calls that were granted, and will not be made. Whoever returns some is granted none."""
    window_ms: int = 0
    """When the window began in which they were granted: to another they are worth nothing."""


class LeaseGrant(NamedTuple):
    """What it gets."""

    amount: int
    """So many calls may be made within the window, and are counted as made; or so many tokens are left."""
    window_ms: int
    """When the window began."""
    left_ms: int
    """How long it lasts yet."""


class QuotaCount(NamedTuple):
    """What was used of one budget, and in which window."""

    window_ms: int = 0
    used: int = 0


class HolderUsage(NamedTuple):
    """A count, and of what it is."""

    holder: QuotaHolder
    budget: QuotaName
    window_ms: int
    used: int
