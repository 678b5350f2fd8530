"""Principals, keys, and how far they reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from toolgate.model.quotas import Quotas

Role = Literal["admin", "publisher", "viewer", "agent", "node"]
"""A `node` key only lets a node follow the registry and report."""

IntegrationState = Literal["off", "read_only", "on"]
"""What a caller switched on of a server: nothing, its read-only tools, or all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most a key may reach. None: no restriction; empty: nothing is allowed."""

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
    """When its key expires, and with it all that it delegates. None for a token, which is renewed."""
    budgets: Quotas | None = None
    """The quotas of its key."""
    integrations: IntegrationState = "on"
    """Its default state of every server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalSecret:
    """A secret among processes of Toolgate: no surface shows or accepts it."""

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
    """The quotas of all its users together."""
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
    """False: a newer release stored it, or it is damaged. Everything is off for its caller."""


def make_choice_id(principal_id: str) -> str:
    """The id of a caller's choice: a hash, because the subject of an issuer may be too long for an id."""
    return sha256(principal_id.encode()).hexdigest()
