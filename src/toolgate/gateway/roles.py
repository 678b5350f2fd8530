"""Roles in their order: each may do whatever those below it may.

`node` stands apart: it may follow the registry and report, and nothing else. An administrator may do that too.
"""

from collections.abc import Mapping
from typing import Final

from toolgate.model.principals import Role

ORDER: Final[tuple[Role, ...]] = ("admin", "publisher", "viewer", "agent")
"""Highest first."""

_REACHES: Final[Mapping[Role, frozenset[Role]]] = {
    "admin": frozenset({"admin", "publisher", "viewer", "agent", "node"}),
    "publisher": frozenset({"publisher", "viewer", "agent"}),
    "viewer": frozenset({"viewer", "agent"}),
    "agent": frozenset({"agent"}),
    "node": frozenset({"node"}),
}


def reaches(role: Role, needed: Role) -> bool:
    """Whether `role` may do what `needed` may."""
    return needed in _REACHES[role]
