"""The definitions that pins name, by their digests: what a changed tool is compared with, and shown beside.

Kept beside the records, without revisions: a digest can only ever mean one definition. One suite in
`tests/contract/` runs against each implementation.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

MAX_KEPT_BYTES: Final = 1024 * 1024
"""Of one definition. A larger one is not kept: nobody could read what is different in it."""


class PinnedDefinitions(Protocol):
    """Definitions as their servers wrote them, by digest."""

    async def save(self, definitions: Mapping[str, bytes]) -> None:
        """Keep these. What is kept already, and what is too large, is passed over."""

    async def read(self, digests: Collection[str]) -> Mapping[str, bytes]:
        """Those of `digests` that are kept."""

    async def digests(self) -> frozenset[str]:
        """Of all that are kept."""

    async def forget(self, digests: Collection[str]) -> None:
        """Keep these no longer."""


class MemoryPinned:
    """Definitions in a dict."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def save(self, definitions: Mapping[str, bytes]) -> None:
        self._kept = {**keepable(definitions), **self._kept}

    async def read(self, digests: Collection[str]) -> Mapping[str, bytes]:
        return {digest: self._kept[digest] for digest in digests if digest in self._kept}

    async def digests(self) -> frozenset[str]:
        return frozenset(self._kept)

    async def forget(self, digests: Collection[str]) -> None:
        for digest in digests:
            self._kept.pop(digest, None)


def keepable(definitions: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those that are not too large."""
    return {digest: raw for digest, raw in definitions.items() if len(raw) <= MAX_KEPT_BYTES}
