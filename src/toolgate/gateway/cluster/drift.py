"""Definitions that changed after they were approved: each is held back from then on, and told once.

What was found once counts until somebody approves the tool again, whatever its server lists by then: a server
could show one definition to who looks, and another to who calls. It is remembered here until it stands in the
pin's record, where every process that follows the registry, and the next one, finds it.

Only a list that arrives can show a change. What was listed before the pin came is not approved, and so not
offered, but it has not changed since: it may be that the server is about to become what was approved.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from toolgate.model.snapshot import Pin
from toolgate.model.tools import ServerTools, ToolDefinition


class DriftedTool(NamedTuple):
    """A tool of a pinned server that was not what was approved."""

    server_id: str
    tool: str
    approved: str
    """The digest of its pin."""
    found: str
    """The digest of what the server listed in its place."""


class DriftDetector:
    """The pins as they are recorded, and what was found since."""

    def __init__(self) -> None:
        self._recorded: Mapping[str, Pin] = {}
        self._found: dict[str, Mapping[str, DriftedTool]] = {}
        """Server id and tool → what no record holds yet."""
        self._listed: dict[str, Mapping[str, ToolDefinition]] = {}
        """Server id → its tools, as they were looked at last."""
        self.pins: Mapping[str, Pin] = MappingProxyType({})
        """What is served: as recorded, and with what was found."""

    @property
    def unrecorded(self) -> tuple[DriftedTool, ...]:
        """What was found and stands in no record yet."""
        return tuple(one for found in self._found.values() for one in found.values())

    def apply_pins(self, pins: Mapping[str, Pin]) -> None:
        """Take over the pins as they are recorded now."""
        if pins is self._recorded:
            return
        self._recorded = pins
        for server_id in tuple(self._found):
            pin, found = pins.get(server_id), self._found.pop(server_id)
            left = (
                {} if pin is None else {one.tool: one for one in found.values() if _is_unrecorded(pin, one)}
            )
            if left:
                self._found[server_id] = left
        self._merge()

    def check_servers(
        self, offers: Mapping[str, ServerTools], unverified: Container[str] = ()
    ) -> list[DriftedTool]:
        """What is new in the lists of all servers, sorted. None of the `unverified` listed anything yet."""
        news = [
            one
            for server_id in self._recorded
            if (offer := offers.get(server_id)) and server_id not in unverified
            for one in self._see(offer)
        ]
        self._listed = {
            server_id: offer.tools for server_id, offer in offers.items() if server_id not in unverified
        }
        if news:
            self._merge()
        return sorted(news)

    def confirm(self, offer: ServerTools) -> bool:
        """A server has listed what an earlier run knew of it. Whether something else was approved."""
        server_id = offer.record.server_id
        pin = self._recorded.get(server_id)
        if pin is not None and any(_find_differences(pin, offer.tools)):
            return True
        self._listed[server_id] = offer.tools
        return False

    def check_server(self, offer: ServerTools) -> list[DriftedTool]:
        """What is new in one server's lists, sorted."""
        news = sorted(self._see(offer))
        if news:
            self._merge()
        return news

    def _see(self, offer: ServerTools) -> Iterator[DriftedTool]:
        server_id, tools = offer.record.server_id, offer.tools
        pin, before = self._recorded.get(server_id), self._listed.get(server_id, {})
        self._listed[server_id] = tools
        # What did not change is the same object, and then there is nothing to compare.
        if pin is None or tools is before:
            return
        found = self._found.get(server_id, {})
        news = {
            one.tool: one
            for one in _find_differences(pin, tools)
            if one.tool not in found and (one.tool not in before or before[one.tool].digest != one.found)
        }
        if news:
            self._found[server_id] = {**found, **news}
            yield from news.values()

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


def _is_unrecorded(pin: Pin, one: DriftedTool) -> bool:
    """Whether `pin` neither holds what was found, nor approves of something else since."""
    return pin.tools.get(one.tool) == one.approved and one.tool not in pin.changed
