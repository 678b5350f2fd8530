"""The servers of this node, or of all nodes.

On a node, the gateway's servers are its pool. On a control plane they are `ReportedServers`, built from the
reports of nodes.

- `node`  sends a node's reports to the control plane
- `reported_servers`  the servers as nodes report them, on the control plane

`DriftDetector` quarantines tools whose definitions changed since approval. It never trusts a good list after
a bad one: a server could show one definition to an admin and another to callers. So a changed tool stays
quarantined until it is approved again. The detector remembers a change until the pin's record has it, where
every process that follows the registry reads it (ADR 23). Only a new list can show a change. A definition
that was listed before the pin is not approved and not offered, but it does not count as changed: the server
may still update to the approved one.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from toolgate.model.tools import Pin, ServerTools, ToolDefinition

if TYPE_CHECKING:  # a process imports only the one that it uses
    from toolgate.gateway.cluster.reported_servers import ReportedServers
    from toolgate.upstream.pool.pool import Pool


class DriftedTool(NamedTuple):
    """A tool of a pinned server that differs from its approved definition."""

    server_id: str
    tool: str
    approved: str
    """The digest of its pin."""
    found: str
    """The digest of the definition that the server listed instead."""


class DriftDetector:
    """The recorded pins, and the changes found since."""

    def __init__(self) -> None:
        self._recorded: Mapping[str, Pin] = {}
        self._found: dict[str, Mapping[str, DriftedTool]] = {}
        """Server id and tool → changes that no record has so far."""
        self._listed: dict[str, Mapping[str, ToolDefinition]] = {}
        """Server id → its tools, as last checked."""
        self.pins: Mapping[str, Pin] = MappingProxyType({})
        """The pins to serve: the recorded ones, with the changes found since."""

    @property
    def unrecorded(self) -> tuple[DriftedTool, ...]:
        return tuple(one for found in self._found.values() for one in found.values())

    def apply_pins(self, pins: Mapping[str, Pin]) -> None:
        if pins is self._recorded:
            return
        self._recorded = pins
        for server_id in tuple(self._found):
            pin, found = pins.get(server_id), self._found.pop(server_id)
            # Neither recorded meanwhile, nor voided by another approval.
            left = {
                one.tool: one
                for one in found.values()
                if pin is not None and pin.tools.get(one.tool) == one.approved and one.tool not in pin.changed
            }
            if left:
                self._found[server_id] = left
        self._merge()

    def check_servers(
        self, offers: Mapping[str, ServerTools], unverified: Container[str] = ()
    ) -> list[DriftedTool]:
        """The new changes in all lists, sorted. The `unverified` servers have listed nothing in this run."""
        verified = {one: offer for one, offer in offers.items() if one not in unverified}
        new = [change for one in self._recorded if one in verified for change in self._check(verified[one])]
        self._listed = {server_id: offer.tools for server_id, offer in verified.items()}
        if new:
            self._merge()
        return sorted(new)

    def check_server(self, offer: ServerTools) -> list[DriftedTool]:
        new = sorted(self._check(offer))
        if new:
            self._merge()
        return new

    def confirm(self, offer: ServerTools) -> bool:
        """Check a list that equals the one kept from an earlier run. Whether a tool differs from its pin."""
        server_id = offer.record.server_id
        pin = self._recorded.get(server_id)
        if pin is not None and any(_find_differences(pin, offer.tools)):
            return True
        self._listed[server_id] = offer.tools
        return False

    def _check(self, offer: ServerTools) -> Iterator[DriftedTool]:
        server_id, tools = offer.record.server_id, offer.tools
        pin, before = self._recorded.get(server_id), self._listed.get(server_id, {})
        self._listed[server_id] = tools
        if pin is None or tools is before:  # an unchanged list is the same object
            return
        found = self._found.get(server_id, {})
        new = {
            one.tool: one
            for one in _find_differences(pin, tools)
            if one.tool not in found and (one.tool not in before or before[one.tool].digest != one.found)
        }
        if new:
            self._found[server_id] = {**found, **new}
            yield from new.values()

    def _merge(self) -> None:
        pins = dict(self._recorded)
        for server_id, found in self._found.items():
            changed = {tool: one.found for tool, one in found.items()}
            pins[server_id] = replace(pins[server_id], changed={**pins[server_id].changed, **changed})
        self.pins = MappingProxyType(pins)


def _find_differences(pin: Pin, tools: Mapping[str, ToolDefinition]) -> Iterator[DriftedTool]:
    for name, approved in pin.tools.items():
        tool = tools.get(name)
        if tool is not None and tool.digest != approved and name not in pin.changed:
            yield DriftedTool(pin.server_id, name, approved, tool.digest)


Servers: TypeAlias = "Pool | ReportedServers"
"""The servers of the registry, with their tools and health. Both classes have the same methods."""
