"""The registry as a node serves it: every record parsed, at one revision, updated as it changes.

A record that does not parse is omitted and logged. It never prevents others from being served, and is never
served in part.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, get_args

from toolgate.errors import Compacted, InvalidRecord, StorageUnavailable, WatchLagged
from toolgate.model.chat import ChatUpstream
from toolgate.model.packages import Package
from toolgate.model.principals import IntegrationChoice, InternalSecret, Key
from toolgate.model.revisions import Body, ChangeBatch, Kind, RecordList
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import Profile, Task
from toolgate.model.tools import Pin
from toolgate.registry.records.codec import Record, parse_record

if TYPE_CHECKING:  # a node loads no SQL
    from toolgate.registry.store.sql_store import Store

SESSION_SECRET_ID: Final = "session"  # noqa: S105 - the name of the record, not a secret
"""The id of the secret that signs session ids."""
LIST_AGAIN_S: Final = 1.0  # a database that fails over is back within seconds
PARSED_AT_ONCE: Final = 100  # a thread parses larger transactions: they would delay every caller
_log = logging.getLogger(__name__)
_KINDS: Final = frozenset(get_args(Kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryState:
    """The registry half of a snapshot."""

    revision: int
    epoch: str
    digest: str = field(default="", compare=False)
    """The digest of the log up to `revision`."""
    servers: Mapping[str, ServerRecord] = field(default_factory=lambda: MappingProxyType({}))
    tasks: Mapping[str, Task] = field(default_factory=lambda: MappingProxyType({}))
    profiles: Mapping[str, Profile] = field(default_factory=lambda: MappingProxyType({}))
    keys: Mapping[str, Key] = field(default_factory=lambda: MappingProxyType({}))
    pins: Mapping[str, Pin] = field(default_factory=lambda: MappingProxyType({}))
    packages: Mapping[str, Package] = field(default_factory=lambda: MappingProxyType({}))
    chat_upstreams: Mapping[str, ChatUpstream] = field(default_factory=lambda: MappingProxyType({}))
    choices: Mapping[str, IntegrationChoice] = field(default_factory=lambda: MappingProxyType({}))
    secrets: Mapping[str, InternalSecret] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def session_key(self) -> bytes | None:
        """The key that signs session ids on every node. None until the control plane has created it."""
        secret = self.secrets.get(SESSION_SECRET_ID)
        return None if secret is None else bytes.fromhex(secret.hex)


async def watch_registry(store: "Store") -> AsyncGenerator[RegistryState, None]:
    """Yield the current state, then a new one after each commit. Ends when the store is closed.

    A watch that ends early (slow reader, compacted log) resumes by listing. The first listing must succeed.
    Later ones are retried, and the last state stays valid meanwhile.
    """
    listing = await store.list()
    while True:
        # In a thread: parsing thousands of records would delay every caller.
        state = await asyncio.to_thread(parse_listing, listing)
        yield state
        try:
            async with store.watch(state.revision, state.digest) as batches:
                async for batch in batches:
                    if batch.changes:
                        state = await apply_batch(state, batch)
                        yield state
        except (Compacted, WatchLagged, StorageUnavailable) as exc:
            _log.warning("the registry watch ended, listing again: %s", exc)
        else:
            return
        listing = await _list_again(store)


async def _list_again(store: "Store") -> RecordList:
    while True:
        try:
            return await store.list()
        except StorageUnavailable as exc:
            _log.warning("cannot list the registry: %s", exc)
            await asyncio.sleep(LIST_AGAIN_S)


def parse_listing(listing: RecordList) -> RegistryState:
    empty = RegistryState(revision=listing.revision, epoch=listing.epoch, digest=listing.digest)
    return _apply_bodies(empty, ((stored.kind, stored.id, stored.body) for stored in listing.records))


async def apply_batch(state: RegistryState, batch: ChangeBatch) -> RegistryState:
    """Return `state` after one transaction. Only the maps of the kinds it touches are replaced."""
    moved = replace(state, revision=batch.revision, digest=batch.digest)
    bodies = [(change.kind, change.id, change.after) for change in batch.changes]
    if len(bodies) <= PARSED_AT_ONCE:
        return _apply_bodies(moved, bodies)
    return await asyncio.to_thread(_apply_bodies, moved, bodies)


def find_changed_principals(before: RegistryState | None, after: RegistryState) -> frozenset[str] | None:
    """Return the callers whose integrations changed, if nothing else changed. None: something else did, or
    may have.

    Compares by identity: `apply_batch` keeps the maps of the kinds that a transaction does not touch.
    """
    if before is None or before.epoch != after.epoch:
        return None
    if any(getattr(before, f"{kind}s") is not getattr(after, f"{kind}s") for kind in _KINDS - {"choice"}):
        return None
    ids = before.choices.keys() | after.choices.keys()
    pairs = [(before.choices.get(one), after.choices.get(one)) for one in ids]
    changed = [one for pair in pairs if pair[0] is not pair[1] for one in pair if one is not None]
    if not changed or not all(one.is_readable for one in changed):
        return None
    return frozenset(one.principal for one in changed)


def _apply_bodies(state: RegistryState, bodies: Iterable[tuple[Kind, str, Body | None]]) -> RegistryState:
    maps: dict[str, dict[str, Any]] = {}
    for kind, record_id, body in bodies:
        if kind not in _KINDS:
            continue  # a kind of a newer control plane
        name = f"{kind}s"  # the field of the state
        if name not in maps:
            maps[name] = dict(getattr(state, name))
        records = maps[name]
        record = None if body is None else _parse_or_report(kind, record_id, body)
        if record is None:
            records.pop(record_id, None)
        else:
            records[record_id] = record
    changed: dict[str, Any] = {name: MappingProxyType(records) for name, records in maps.items()}
    return replace(state, **changed)


def _parse_or_report(kind: Kind, record_id: str, body: Body) -> Record | None:
    try:
        # Lenient: a newer control plane may have written fields that this node does not know.
        return parse_record(kind, record_id, body, strict=False)
    except InvalidRecord as exc:
        _log.warning("%s `%s` is omitted because it is invalid: %s", kind, record_id, exc)
    # A substitute, if callers could reach more without the record.
    if kind == "pin":
        return Pin(server_id=record_id)  # the server offers nothing
    if kind == "choice":  # its caller reaches nothing
        return IntegrationChoice(choice_id=record_id, principal="", is_readable=False)
    return None
