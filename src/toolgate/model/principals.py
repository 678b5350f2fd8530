"""Principals, keys and their ceilings, and the quotas of keys and tasks. It has no clock and no counters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, NamedTuple

HolderKind = Literal["key", "task"]
QuotaName = Literal["calls_per_minute", "calls_per_day", "tokens_per_day"]

# More than an installation can use in a day. Sums of them are integers that every JSON reader has (2**53).
MAX_CALLS: Final = 10**9
MAX_TOKENS: Final = 10**12  # a thousand for each of `MAX_CALLS`
MAX_LEASE_REQUESTS: Final = 256  # in one request of a node to the control plane


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits within a minute or a UTC day. None: unlimited."""

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
    """A node's request for more calls of one quota, or for its remaining tokens."""

    holder: QuotaHolder
    budget: QuotaName
    limit: int
    spent: int = 0
    """Tokens used since the last request."""
    returned: int = 0
    """Granted calls that the node returns unused. Such a request gets no new calls."""
    window_ms: int = 0
    """The window of the returned calls; they count in no other."""


class LeaseGrant(NamedTuple):
    """The response to a LeaseRequest."""

    amount: int
    """The calls that the node may make within the window, already counted; or the remaining tokens."""
    window_ms: int
    """The start of the window."""
    left_ms: int
    """The time until the window ends."""


class QuotaCount(NamedTuple):
    """The usage of one quota in a window."""

    window_ms: int = 0
    used: int = 0


class HolderUsage(NamedTuple):
    """A count with its holder and quota."""

    holder: QuotaHolder
    budget: QuotaName
    window_ms: int
    used: int


Role = Literal["admin", "publisher", "viewer", "agent", "node"]
"""A `node` key only lets a node follow the registry and report."""

IntegrationState = Literal["off", "read_only", "on"]
"""The state of a server for a caller: off, its read-only tools, or all its tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most a caller may reach. Null does not restrict; an empty list allows nothing."""

    tasks: tuple[str, ...] | None = None
    """The ids of the tasks that it may act for."""
    servers: tuple[str, ...] | None = None
    """The ids of the servers that it may reach."""
    allow: tuple[str, ...] | None = None
    """Allow patterns. A tool must match at least one."""
    deny: tuple[str, ...] = ()
    """Deny patterns. A tool that matches any of them is excluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller with a verified credential. There is no anonymous principal."""

    id: str
    role: Role
    ceiling: Ceiling = Ceiling()
    default_task: str | None = None
    expires_at_s: int | None = None
    """When its key expires, and with it everything the key delegated. None for a token, which is renewed."""
    budgets: Quotas | None = None
    """The quotas of its key."""
    integrations: IntegrationState = "on"
    """The default state of every server for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalSecret:
    """A secret that the processes of Toolgate share: no surface shows or accepts it."""

    secret_id: str
    hex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A stored credential: its hash, never the key itself."""

    key_id: str
    sha256: str
    role: Role
    ceiling: Ceiling = Ceiling()
    default_task: str | None = None
    expires_at_s: int | None = None
    budgets: Quotas | None = None
    """The quotas that all its users share."""
    integrations: IntegrationState = "on"
    """The default state of every server for its callers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationChoice:
    """The integrations (servers) that one caller switched on or off. It never widens a ceiling."""

    choice_id: str
    """See `make_choice_id`."""
    principal: str
    servers: Mapping[str, IntegrationState] = field(default_factory=dict)
    is_readable: bool = True
    """False if a newer release stored it or it is damaged: then every server is off for its caller."""


def make_choice_id(principal_id: str) -> str:
    """The id of a caller's choice: a hash, because the subject of an issuer may be too long for an id."""
    return sha256(principal_id.encode()).hexdigest()
