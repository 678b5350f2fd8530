"""Quarantines pinned tools that changed since approval, and compares their definitions for people.

A tool stays quarantined until someone approves it (see `changes.records`). Never approves anything.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Final, Literal

from toolgate.catalog.definitions import diff_definitions
from toolgate.errors import Conflict, InvalidRecord, ToolgateError
from toolgate.gateway.cluster import DriftedTool
from toolgate.gateway.gateway import Gateway
from toolgate.govern.changes.records import find_record, read_mapping
from toolgate.govern.control import Control
from toolgate.model.revisions import RecordWrite, StoredRecord
from toolgate.model.tools import Pin, ServerTools, ToolDefinition
from toolgate.policy.rules import is_unlisted
from toolgate.registry.records.codec import parse_record
from toolgate.registry.store.sql_store import Store

ACTOR: Final = "toolgate"
ATTEMPTS: Final = 8  # lost races are rare, and the next snapshot tries again
GAP_S: Final = 0.05  # changes within this time are written together
RETRY_S: Final = 1.0  # the pause while the database is unavailable: short, and does not flood the log

_log: Final = logging.getLogger(__name__)

ChangedTools = Mapping[str, Mapping[str, str]]
"""Server id and tool → the digest found in place of the approved one."""


async def record_quarantined(store: Store, changed: ChangedTools, *, seen: int) -> list[DriftedTool]:
    """Quarantine tools that changed as of revision `seen`. Returns the new ones.

    Leaves out pins that were written since: a node that has the new pin reports again.
    """
    for _ in range(ATTEMPTS):
        news: list[DriftedTool] = []
        writes: list[RecordWrite] = []
        for pin in [await store.get("pin", server_id) for server_id in changed]:
            if pin is None or pin.revision > seen:
                continue
            approved, known = read_mapping(pin.body, "tools"), read_mapping(pin.body, "changed")
            differing = {
                tool: digest
                for tool, digest in changed[pin.id].items()
                if approved.get(tool, digest) != digest and tool not in known
            }
            news += [DriftedTool(pin.id, tool, approved[tool], found) for tool, found in differing.items()]
            body = {**pin.body, "changed": {**known, **differing}} if differing else pin.body
            writes.append(RecordWrite(kind="pin", id=pin.id, body=body, if_revision=pin.revision))
        if not news:
            return []
        try:
            await store.write(writes, actor=ACTOR)
        except Conflict:
            continue
        return news
    _log.warning("cannot quarantine changed tools: their pins change at the same time")
    return []


async def follow_pins(
    store: Store, gateway: Gateway, *, gap_s: float = GAP_S, retry_s: float = RETRY_S
) -> None:
    """Quarantine changed tools of the served snapshots, and store pinned definitions. Never returns."""
    known: Sequence[object] = ()
    serial, is_failing = -1, False
    while True:
        serial = await gateway.wait_for_swap(serial)
        try:
            changed: defaultdict[str, dict[str, str]] = defaultdict(dict)
            for one in gateway.drift.unrecorded:
                changed[one.server_id][one.tool] = one.found
            await record_quarantined(store, changed, seen=gateway.snapshot.revision)
            snapshot = gateway.snapshot
            lists = [snapshot.servers[one].tools for one in snapshot.pins if one in snapshot.servers]
            # Unchanged pins and lists are the same objects.
            now: list[object] = [snapshot.pins, *lists]
            if len(now) != len(known) or not all(map(is_, now, known)):
                await _store_definitions(store, lists)
                known = now
            is_failing = False
        except Exception as exc:  # a bug with one pin must not stop the quarantine of others
            if not isinstance(exc, ToolgateError):
                _log.exception("cannot check pinned tools; retrying")
            elif not is_failing:
                _log.warning("cannot store changes of pinned tools; retrying: %s", exc)
                is_failing = True
            serial = -1
            await asyncio.sleep(retry_s)
        await asyncio.sleep(gap_s)


async def _store_definitions(store: Store, lists: Sequence[Mapping[str, ToolDefinition]]) -> None:
    """Store the definitions in `lists` that pins name, approved or quarantined. Delete all others."""
    kept = await store.pinned.digests()
    # In this order: a definition that is saved for a pin written meanwhile is not in `kept`, so it stays.
    named = {
        digest
        for stored in (await store.list("pin")).records
        for member in ("tools", "changed")
        for digest in read_mapping(stored.body, member).values()
    }
    found = {tool.digest: tool.raw for tools in lists for tool in tools.values()}
    missing = (found.keys() & named) - kept
    await store.pinned.save({digest: found[digest] for digest in missing})
    await store.pinned.forget(kept - named)


MAX_LINES: Final = 5_000  # of all tools together; a choice: later tools are listed without lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDifference:
    """A tool of a pinned server that differs, or once differed, from its approved definition."""

    tool: str
    state: Literal["changed", "new", "renamed", "missing"]
    approved: str | None = None
    """Digest of the approved definition. For a renamed tool, the one under its old name."""
    found: str | None = None
    """Digest of the definition that differs, or once differed. Null: the tool is missing."""
    listed: str | None = None
    """Digest of the definition the server lists now. A tool that changed back still needs an approval."""
    was: str | None = None
    """The old name of a renamed tool."""
    is_whole: bool = False
    """Whether the diff shows a whole definition, because no approved one is kept."""
    diff: tuple[str, ...] = ()
    """A unified diff of both definitions as JSON. Empty: one is not kept, or the diff is too long; then send
    `tool`."""


async def diff_pin(control: Control, server_id: str, *, tool: str | None = None) -> list[ToolDifference]:
    """The tools that need approval or are missing, sorted; or only `tool`. Raises NotFound."""
    pin = read_pin(control, await find_record(control, "pin", server_id))
    kept = await control.store.pinned.read({*pin.tools.values(), *pin.changed.values()})
    offer = control.gateway.snapshot.servers.get(server_id)
    # In a thread: comparing many long definitions would block the event loop.
    return await asyncio.to_thread(_diff_tools, pin, offer, kept, only=tool)


def read_pin(control: Control, stored: StoredRecord) -> Pin:
    """The served pin, with changes that are not recorded so far; the stored one before it is served."""
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
    """The tools of a pinned server that are quarantined until someone approves them, sorted."""
    listed = {} if offer is None else offer.tools
    waiting = {name for name, tool in listed.items() if pin.tools.get(name) != tool.digest}
    return sorted(waiting | pin.changed.keys())


def _diff_tools(
    pin: Pin, offer: ServerTools | None, kept: Mapping[str, bytes], *, only: str | None
) -> list[ToolDifference]:
    """`kept`: the stored definitions, by digest."""
    listed = {} if offer is None else offer.tools
    raws = {**kept, **{tool.digest: tool.raw for tool in listed.values()}}
    gone = {name: raws[it] for name, it in pin.tools.items() if name not in listed and it in raws}
    come = {name: tool.raw for name, tool in listed.items() if name not in pin.tools}
    renamed = {one.after: one.before for one in diff_definitions(gone, come).renamed}
    room, found = MAX_LINES, []
    for one in _compare(pin, offer, renamed):
        if only in {None, one.tool}:
            old, new = raws.get(one.approved or ""), raws.get(one.found or "")
            lines: tuple[str, ...] = ()
            if new is not None and room > 0:
                lines = diff_definitions({"": old or b"{}"}, {"": new}).changed.get("", ())
            room -= len(lines)
            found.append(replace(one, is_whole=old is None and new is not None, diff=lines))
    return found


def _compare(pin: Pin, offer: ServerTools | None, renamed: Mapping[str, str]) -> Iterator[ToolDifference]:
    """`renamed`: new names of approved tools → their old names."""
    listed = {} if offer is None else offer.tools
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
        elif now is None and offer is not None and not is_unlisted(offer) and name not in renamed.values():
            yield ToolDifference(tool=name, state="missing", approved=approved)
