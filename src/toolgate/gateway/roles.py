"""Roles in their order: each may do whatever those below it may. `node` stands apart from them."""

from collections.abc import Mapping
from typing import Final

from toolgate.model.principals import Role

_RANK: Final[Mapping[Role, int]] = {"agent": 0, "viewer": 1, "publisher": 2, "admin": 3}


def reaches(role: Role, needed: Role) -> bool:
    """Whether `role` is `needed` or above it."""
    if "node" in {role, needed}:
        return role == needed
    return _RANK[role] >= _RANK[needed]
