"""Roles in their order: each may do whatever those below it may. `node` stands apart from them."""

from collections.abc import Mapping
from typing import Final

from toolgate.model.principals import Role

_REACHES: Final[Mapping[Role, frozenset[Role]]] = {
    "admin": frozenset({"admin", "publisher", "viewer", "agent"}),
    "publisher": frozenset({"publisher", "viewer", "agent"}),
    "viewer": frozenset({"viewer", "agent"}),
    "agent": frozenset({"agent"}),
    "node": frozenset({"node"}),
}


def reaches(role: Role, needed: Role) -> bool:
    """Whether `role` is `needed` or above it."""
    return needed in _REACHES[role]
