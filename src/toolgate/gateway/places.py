"""So many places of a kind on a node, of which no principal takes all."""

from collections import Counter
from typing import Final

from toolgate.errors import SessionLimit

SHARE: Final = 10
"""The last fifth of all places is for principals that hold less than this part of them."""


def most_for_one(of: int) -> int:
    """How many of `of` places one principal gets while there is room. Above, each gets its share at most."""
    return -(-of * 4 // 5)


class Places:
    """Who holds how many."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._held: Counter[str] = Counter()
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def take(self, principal_id: str, *, of: int) -> None:
        """One more of `of` places. Raises SessionLimit; those that are taken stay so."""
        held = self._held[principal_id]
        if self._taken >= of:
            raise SessionLimit(f"this node holds {of} {self._what}")
        if self._taken >= most_for_one(of) and held * SHARE >= of:
            raise SessionLimit(
                f"you hold {held} {self._what}, and what is left is for others",
                hint="close those you do not need",
            )
        self._held[principal_id] = held + 1
        self._taken += 1

    def give_back(self, principal_id: str) -> None:
        self._taken -= 1
        self._held[principal_id] -= 1
        if not self._held[principal_id]:
            del self._held[principal_id]
