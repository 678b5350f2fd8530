"""The compiled views of a node. Callers make up what they ask for, so what is kept for them is bounded."""

from collections.abc import Set as AbstractSet
from typing import Final

from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.view import View

MAX_BYTES: Final = 32 * 1024 * 1024
"""What all views may weigh together, by estimate. A caller whose view was dropped costs one compilation."""


class Views:
    """Views by their callers; the oldest go when they weigh too much together."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._views: dict[Caller, View] = {}
        self.size = 0
        """In bytes, by estimate."""

    def __len__(self) -> int:
        return len(self._views)

    def get(self, caller: Caller) -> View | None:
        return self._views.get(caller)

    def add(self, view: View) -> None:
        self._views[view.caller] = view
        self._grow(view.size)

    def on_growth(self, view: View, grown: int) -> None:
        """A view holds more than when it was added. One that was dropped meanwhile is nobody's concern."""
        if self._views.get(view.caller) is view:
            self._grow(grown)

    def drop(self, principal_ids: AbstractSet[str]) -> None:
        """Forget the views of these callers."""
        for caller in [one for one in self._views if one.principal.id in principal_ids]:
            self.size -= self._views.pop(caller).size

    def clear(self) -> None:
        self._views.clear()
        self.size = 0

    def _grow(self, grown: int) -> None:
        self.size += grown
        while self.size > self._max_bytes and len(self._views) > 1:
            oldest = self._views.pop(next(iter(self._views)))
            self.size -= oldest.size
