"""Tools that changed after they were approved, in the record of their pin: how they get there, and out again.

Only an approval lets such a tool go: another digest for it, or a word about just this tool. Whoever sends
back what was read some time ago, or a file that knows nothing of it, approves of nothing.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolgate.errors import Conflict, InvalidRequest, ToolgateError
from toolgate.gateway.cluster.drift import DriftedTool
from toolgate.gateway.gateway import Gateway
from toolgate.model.revisions import Body, RecordWrite, StoredRecord
from toolgate.model.snapshot import Pin, Snapshot
from toolgate.model.tools import ToolDefinition
from toolgate.registry.store.contract import Store

ACTOR: Final = "toolgate"
ATTEMPTS: Final = 8
GAP_S: Final = 0.05
"""What is found together is written together."""
RETRY_S: Final = 1.0

_log: Final = logging.getLogger(__name__)

ChangedTools = Mapping[str, Mapping[str, str]]
"""Server id and tool → the digest that was found in place of the approved one."""


def merge_quarantined(before: Body | None, sent: Body) -> dict[str, Any]:
    """The member `changed` of a pin that is to be stored over `before`.

    What is held back stays so as long as the same definition of it is the approved one, whatever `sent` says
    of others. A tool that is sent with null is approved of. A shape that is wrong is left for others to say.
    """
    spoken = sent.get("changed", {})
    if not isinstance(spoken, Mapping):
        return {"changed": spoken}
    approved, was = _mapping(sent, "tools"), _mapping(before or {}, "tools")
    kept = {
        tool: found
        for tool, found in _mapping(before or {}, "changed").items()
        if tool in approved and approved[tool] == was.get(tool)
    }
    changed = {tool: found for tool, found in {**kept, **spoken}.items() if found is not None}
    return {"changed": changed} if changed else {}


def roll_back_pin(now: StoredRecord | None, then: Body | None) -> Body | None:
    """`then` as the pin `now` may be taken back to it: what is held back stays so. Raises InvalidRequest."""
    held = {} if now is None else _mapping(now.body, "changed")
    if then is None:
        if held:
            raise InvalidRequest(
                f"there was no pin then, and without one {len(held)} changed tools would be offered",
                hint="approve them with `toolgate pins set`, or delete the pin if that is what you want",
            )
        return None
    return {**then, "changed": {**_mapping(then, "changed"), **held}}


async def record_quarantined(store: Store, changed: ChangedTools, *, seen: int) -> list[DriftedTool]:
    """Write into the pins what was found by who knew the registry as of the revision `seen`; what is new.

    A pin that was written since is left alone: whoever found it will look again.
    """
    for _ in range(ATTEMPTS):
        pins = [(await store.get("pin", server_id), found) for server_id, found in changed.items()]
        known = [(pin, found) for pin, found in pins if pin is not None and pin.revision <= seen]
        news = [one for pin, found in known for one in _find_new(pin, found)]
        if not news:
            return []
        try:
            await store.write([_build_write(pin, news) for pin, _ in known], actor=ACTOR)
        except Conflict:
            continue
        return news
    _log.warning("pins change too fast to note in them which tools have changed")
    return []


def _find_new(pin: StoredRecord, found: Mapping[str, str]) -> Iterator[DriftedTool]:
    approved, changed = _mapping(pin.body, "tools"), _mapping(pin.body, "changed")
    for tool, digest in found.items():
        if tool in approved and approved[tool] != digest and tool not in changed:
            yield DriftedTool(pin.id, tool, approved[tool], digest)


def _build_write(pin: StoredRecord, news: Sequence[DriftedTool]) -> RecordWrite:
    changed = {one.tool: one.found for one in news if one.server_id == pin.id}
    body = {**pin.body, "changed": {**_mapping(pin.body, "changed"), **changed}} if changed else pin.body
    return RecordWrite(kind="pin", id=pin.id, body=body, if_revision=pin.revision)


async def follow_pins(store: Store, gateway: Gateway) -> None:
    """Follow what `gateway` serves: note what has changed, and keep the definitions that pins name.

    Ends by cancellation alone.
    """
    kept = _PinnedDefinitions(store)
    serial, is_failing = -1, False
    while True:
        serial = await gateway.wait_for_swap(serial)
        try:
            await _record_drift(store, gateway)
            await kept.follow(gateway.snapshot)
            is_failing = False
        except ToolgateError as exc:
            if not is_failing:
                _log.warning("what has changed in pinned tools cannot be stored, trying again: %s", exc)
            serial, is_failing = -1, True
            await asyncio.sleep(RETRY_S)
        except Exception:
            # What nobody was prepared for must not end the following of all others.
            _log.exception("what has changed in pinned tools was not understood, trying again")
            serial = -1
            await asyncio.sleep(RETRY_S)
        await asyncio.sleep(GAP_S)


async def _record_drift(store: Store, gateway: Gateway) -> None:
    changed: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for one in gateway.drift.unrecorded:
        changed[one.server_id][one.tool] = one.found
    if changed:
        await record_quarantined(store, changed, seen=gateway.snapshot.revision)


class _PinnedDefinitions:
    """The definitions that pins name: what was approved, and what was found in its place."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pins: Mapping[str, Pin] = {}
        self._lists: Mapping[str, Mapping[str, ToolDefinition]] = {}

    async def follow(self, snapshot: Snapshot) -> None:
        """Keep those that `snapshot` has, and forget those that no pin names any more."""
        servers = snapshot.servers
        lists = {one: servers[one].tools for one in snapshot.pins if one in servers}
        # What did not change is the same object, and then there is nothing to do.
        is_known = len(lists) == len(self._lists) and all(
            self._lists.get(one) is tools for one, tools in lists.items()
        )
        if is_known and snapshot.pins is self._pins:
            return
        kept = await self._store.pinned.digests()
        # In this order: whatever is saved for a pin that is written later is not among those known here.
        named = {
            digest
            for stored in (await self._store.list("pin")).records
            for member in ("tools", "changed")
            for digest in _mapping(stored.body, member).values()
        }
        await self._store.pinned.save(
            {
                tool.digest: tool.raw
                for tools in lists.values()
                for tool in tools.values()
                if tool.digest in named and tool.digest not in kept
            }
        )
        await self._store.pinned.forget(kept - named)
        self._pins, self._lists = snapshot.pins, lists


def _mapping(body: Body, member: str) -> Mapping[str, Any]:
    value = body.get(member)
    return value if isinstance(value, Mapping) else {}
