"""Who calls, and how far a key reaches."""

from dataclasses import dataclass
from typing import Literal

from toolgate.model.allowances import TimeBudgets

Role = Literal["admin", "publisher", "viewer", "agent", "node"]
"""`node` stands apart from the others: such a key only lets a node follow the registry and report."""


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
    budgets: TimeBudgets | None = None
    """What its key may use over time. Only keys have some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
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
    budgets: TimeBudgets | None = None
    """What all who use it may use over time, together."""
