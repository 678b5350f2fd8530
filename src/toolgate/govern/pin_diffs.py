"""How what a pinned server lists differs from what was approved, for a person to look at before agreeing."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from toolgate.catalog.diff import diff_definitions
from toolgate.errors import InvalidRecord
from toolgate.govern.changes.records import find_record
from toolgate.govern.control import Control
from toolgate.model.revisions import StoredRecord
from toolgate.model.snapshot import Pin
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.policy.rules import is_unlisted
from toolgate.registry.records.codec import parse_record

MAX_LINES: Final = 5_000
"""Of all tools together. Of those past that, it is said that they differ, and not how."""

ToolDiffState = Literal["changed", "new", "renamed", "missing"]
_NOTHING: Final = b"{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDifference:
    """One tool that is not, or was not, as it was approved."""

    tool: str
    state: ToolDiffState
    approved: str | None = None
    """Digest of the approved definition: for a renamed tool, of the one it had under its old name."""
    found: str | None = None
    """Digest of what is, or once was, in its place. None: it is missing."""
    listed: str | None = None
    """Digest of what the server lists now."""
    was: str | None = None
    """The old name of a renamed tool."""
    is_whole: bool = False
    """The lines show a whole definition: nothing was approved, or what was approved is not kept here."""
    lines: tuple[str, ...] = ()


async def diff_pin(control: Control, server_id: str, *, tool: str | None = None) -> list[ToolDifference]:
    """All that waits for approval or is gone, sorted by tool; or of one tool alone. Raises NotFound."""
    pin = read_pin(control, await find_record(control, "pin", server_id))
    kept = await control.store.pinned.read({*pin.tools.values(), *pin.changed.values()})
    seen = _PinnedServer(pin=pin, offer=control.gateway.snapshot.servers.get(server_id), kept=kept)
    # In a thread: many long definitions take longer to compare than the loop may stand still.
    return await asyncio.to_thread(_diff_tools, seen, tool)


def read_pin(control: Control, stored: StoredRecord) -> Pin:
    """The pin as it is served, with what was found and not recorded yet; or, not served yet, as recorded."""
    snapshot = control.gateway.snapshot
    if snapshot.revision >= stored.revision and stored.id in snapshot.pins:
        return snapshot.pins[stored.id]
    try:
        pin = parse_record("pin", stored.id, stored.body, strict=False)
    except InvalidRecord:
        return Pin(server_id=stored.id)
    assert isinstance(pin, Pin)
    return pin


def find_unapproved_tools(pin: Pin, offer: ServerTools | None) -> list[str]:
    """The tools of a pinned server that are not offered until somebody approves of them, sorted."""
    listed = {} if offer is None else offer.tools
    waiting = {name for name, tool in listed.items() if pin.tools.get(name) != tool.digest}
    return sorted(waiting | pin.changed.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class _PinnedServer:
    """All that is known of a pinned server."""

    pin: Pin
    offer: ServerTools | None
    kept: Mapping[str, bytes]

    @property
    def listed(self) -> Mapping[str, ToolDefinition]:
        return {} if self.offer is None else self.offer.tools

    @property
    def is_listed(self) -> bool:
        return self.offer is not None and not is_unlisted(self.offer)

    def raws(self) -> dict[str, bytes]:
        """Definitions by digest."""
        return {**self.kept, **{tool.digest: tool.raw for tool in self.listed.values()}}

    def renamed(self) -> Mapping[str, str]:
        """New names of approved tools → the old ones."""
        raws, approved = self.raws(), self.pin.tools
        gone = {
            name: raws[digest]
            for name, digest in approved.items()
            if name not in self.listed and digest in raws
        }
        come = {name: tool.raw for name, tool in self.listed.items() if name not in approved}
        return {new: old for old, new in diff_definitions(gone, come).renamed}


def _diff_tools(seen: _PinnedServer, only: str | None) -> list[ToolDifference]:
    raws, room = seen.raws(), MAX_LINES
    found = []
    for one in _compare(seen):
        if only in {None, one.tool}:
            old, new = raws.get(one.approved or ""), raws.get(one.found or "")
            lines = () if new is None or room <= 0 else _lines(old or _NOTHING, new)
            room -= len(lines)
            found.append(replace(one, is_whole=old is None and new is not None, lines=lines))
    return found


def _compare(seen: _PinnedServer) -> Iterator[ToolDifference]:
    pin, listed, renamed = seen.pin, seen.listed, seen.renamed()
    for name in sorted(pin.tools.keys() | listed.keys()):
        approved, now = pin.tools.get(name), listed[name].digest if name in listed else None
        if approved is None:
            was = renamed.get(name)
            yield ToolDifference(
                tool=name,
                state="new" if was is None else "renamed",
                approved=None if was is None else pin.tools[was],
                found=now,
                listed=now,
                was=was,
            )
        elif name in pin.changed or now not in {None, approved}:
            found = pin.changed.get(name) if now in {None, approved} else now
            yield ToolDifference(tool=name, state="changed", approved=approved, found=found, listed=now)
        elif now is None and seen.is_listed and name not in renamed.values():
            yield ToolDifference(tool=name, state="missing", approved=approved)


def _lines(old: bytes, new: bytes) -> tuple[str, ...]:
    return diff_definitions({"": old}, {"": new}).changed.get("", ())
