"""Who calls, and how far a key reaches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from toolgate.model.quotas import Quotas

Role = Literal["admin", "publisher", "viewer", "agent", "node"]
"""`node` stands apart from the others: such a key only lets a node follow the registry and report."""

IntegrationState = Literal["off", "read_only", "on"]
"""How much of a server a caller has switched on for itself: nothing, its read-only tools, or all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most a key may ever reach. None: this part does not restrict; empty: nothing passes."""

    tasks: tuple[str, ...] | None = None
    servers: tuple[str, ...] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A caller whose credential was verified. There is no anonymous principal."""

    id: str
    role: Role
    ceiling: Ceiling = Ceiling()
    default_task: str | None = None
    expires_at_s: int | None = None
    """When its key ends, and with it what it may give to others. A token's is not: it is renewed."""
    budgets: Quotas | None = None
    """What its key may use over time. Only keys have some."""
    integrations: IntegrationState = "on"
    """What it has of every server before it chooses for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalSecret:
    """Something only the parts of Toolgate itself know: no surface shows or takes one."""

    secret_id: str
    hex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A credential as stored: its hash, never itself."""

    key_id: str
    sha256: str
    role: Role
    ceiling: Ceiling = Ceiling()
    default_task: str | None = None
    expires_at_s: int | None = None
    budgets: Quotas | None = None
    """What all who use it may use over time, together."""
    integrations: IntegrationState = "on"
    """What its callers have of every server before they choose for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationChoice:
    """Which integrations (servers) one caller switched on and off for itself. It never adds to a ceiling."""

    choice_id: str
    """See `make_choice_id`."""
    principal: str
    servers: Mapping[str, IntegrationState] = field(default_factory=dict)
    is_readable: bool = True
    """False: it was stored by a newer release or is damaged. Nothing is on for its caller."""


def make_choice_id(principal_id: str) -> str:
    """The id of a caller's stored choice: a subject of an issuer is longer than the id of a record may be."""
    return sha256(principal_id.encode()).hexdigest()
