"""Definitions that changed after they were approved: each change is told once, with both digests.

It only looks. That such a tool is neither listed nor callable is policy's doing.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from toolgate.model.pins import Pin
from toolgate.model.snapshot import Snapshot
from toolgate.model.tools import ServerTools


class Drifted(NamedTuple):
    """A tool of a pinned server that is not what was approved."""

    server_id: str
    tool: str
    approved: str
    """The digest of its pin."""
    found: str
    """The digest of what the server lists now."""


class _Looked(NamedTuple):
    pin: Pin
    offer: ServerTools
    drifted: frozenset[Drifted]


class Drift:
    """What was found so far, so that nothing is told twice while it lasts."""

    def __init__(self) -> None:
        self._looked: Mapping[str, _Looked] = {}

    def look(self, snapshot: Snapshot) -> list[Drifted]:
        """What is new in `snapshot`."""
        looked: dict[str, _Looked] = {}
        news: list[Drifted] = []
        for server_id, pin in snapshot.pins.items():
            offer = snapshot.servers.get(server_id)
            if offer is None:
                continue
            known = self._looked.get(server_id)
            # What did not change is the same object, and then there is nothing to compare.
            if known is None or known.pin is not pin or known.offer is not offer:
                drifted = frozenset(_differences(pin, offer))
                news += sorted(drifted - (known.drifted if known else frozenset()))
                known = _Looked(pin, offer, drifted)
            looked[server_id] = known
        self._looked = looked
        return news


def _differences(pin: Pin, offer: ServerTools) -> Iterator[Drifted]:
    for name, approved in pin.tools.items():
        tool = offer.tools.get(name)
        if tool is not None and tool.digest != approved:
            yield Drifted(pin.server_id, name, approved, tool.digest)
