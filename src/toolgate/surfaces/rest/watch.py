"""Changes of the registry as server-sent events, with the guarantees of every watch.

The events are light: what was changed, not what it is now. A reader that is too slow, or whose credential
lapses, is told why by a last event; who goes on from the id of the last event it got misses nothing.
"""

from functools import partial
from typing import Any, Final, get_args

import msgspec

from toolgate.errors import (
    Compacted,
    Forbidden,
    InvalidRequest,
    SessionLimit,
    StorageUnavailable,
    WatchLagged,
)
from toolgate.gateway.identity import has_lapsed
from toolgate.govern.control import Control
from toolgate.govern.watches import narrow_batch, watchable_kinds
from toolgate.model.revisions import Batch, Change, Kind
from toolgate.surfaces.rest.answers import EVENTS, Answer, Events, Stream
from toolgate.surfaces.rest.intake import parse_number
from toolgate.surfaces.rest.routing import Call, Endpoint, Parameter

HEARTBEAT_S: Final = 15.0
LAST_ID: Final = Parameter(
    "Last-Event-ID",
    "The id of the last event that was got: go on after it, whatever `since` says.",
    form="number",
)
KEEP_ALIVE: Final = b": keep-alive\n\n"


async def watch_changes(control: Control, call: Call[None]) -> Answer:
    """Changes as they are committed, one event a transaction.

    First comes `start`, with the `epoch` of the registry. Then `change`, whose id is its revision, with the
    `upserts` and `deletes` it made; and `bookmark`: everything up to its revision has been told. `error` is
    the last event of a watch that cannot go on: list again, and watch from the revision listed.
    """
    events = _events(control, call, since=_parse_since(control, call), kinds=_parse_kinds(call))
    # Begun here, so that a watch that cannot be had is refused like any other request.
    return Answer(Stream(await anext(events), events))


def _parse_since(control: Control, call: Call[None]) -> int:
    """The revision to go on after."""
    if "epoch" in call.query and call.query["epoch"] != control.store.epoch:
        raise Compacted("this registry has another history than the one that was watched")
    last = call.headers.get(LAST_ID.name)
    if last is not None:
        return parse_number(LAST_ID.name, last)
    since = call.number("since")
    return control.store.revision if since is None else since


def _parse_kinds(call: Call[None]) -> frozenset[Kind]:
    may = watchable_kinds(call.caller)
    if "kinds" not in call.query:
        return may
    asked = set(call.query["kinds"].split(","))
    known = set(get_args(Kind)) - {"secret"}
    if not asked <= known:
        raise InvalidRequest(f"`kinds` are among {', '.join(f'`{one}`' for one in sorted(known))}")
    if not asked <= may:
        raise Forbidden("watching keys needs the role `admin`")
    return frozenset(kind for kind in may if kind in asked)


async def _events(control: Control, call: Call[None], *, since: int, kinds: frozenset[Kind]) -> Events:
    with control.watches.admit(call.caller) as watch:
        lapse = partial(watch.end, has_lapsed())
        with control.identities.until_lapsed(call.authorization, lapse):
            async with control.store.watch(since) as batches:
                yield _encode("start", {"epoch": control.store.epoch, "revision": since})
                try:
                    while not watch.is_over:
                        batch = await watch.next(batches, within_s=HEARTBEAT_S)
                        if batch is not None:
                            yield _tell(narrow_batch(batch, kinds))
                        elif not watch.is_over:
                            yield KEEP_ALIVE
                except (Compacted, WatchLagged, StorageUnavailable) as exc:
                    watch.end(exc)
        if watch.reason is not None:
            yield _encode("error", watch.reason.detail)


def _tell(batch: Batch) -> bytes:
    told: dict[str, Any] = {"revision": batch.revision}
    if not batch.changes:
        return _encode("bookmark", told, batch.revision)
    told["upserts"] = [_name(change) for change in batch.changes if change.operation == "put"]
    told["deletes"] = [_name(change) for change in batch.changes if change.operation == "delete"]
    return _encode("change", told, batch.revision)


def _name(change: Change) -> dict[str, str]:
    return {"kind": change.kind, "id": change.id}


def _encode(event: str, data: Any, revision: int | None = None) -> bytes:
    event_id = b"" if revision is None else b"id: %d\n" % revision
    return b"%bevent: %b\ndata: %b\n\n" % (event_id, event.encode(), msgspec.json.encode(data))


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path="/admin/api/watch",
        role="viewer",
        summary="Watch the registry",
        handler=watch_changes,
        query=(
            Parameter("since", "The revision to begin after. Without it, the newest.", form="number"),
            Parameter("epoch", "The epoch `since` is of: another one is refused as `compacted`."),
            Parameter("kinds", "Only changes of these kinds: `server,task,profile,pin,chat_upstream,key`."),
        ),
        headers=(LAST_ID,),
        answer=EVENTS,
        errors=(Compacted, SessionLimit),
    ),
)
