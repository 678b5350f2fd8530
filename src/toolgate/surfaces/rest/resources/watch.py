"""Changes of the registry as server-sent events, with the guarantees of every watch.

The events are light: what was changed, not what it is now. A reader that is too slow, or whose credential
lapses, is told why by a last event; who goes on from the id of the last event it got misses nothing.
"""

from typing import Any, Final, get_args

from toolgate.errors import Compacted, Forbidden, InvalidRequest, SessionLimit
from toolgate.govern.control import Control
from toolgate.govern.watches import filter_batch, watchable_kinds
from toolgate.model.revisions import ChangeBatch, Kind, RecordChange
from toolgate.surfaces.rest.framework.request import Parameter, RestCall, join_quoted
from toolgate.surfaces.rest.framework.response import EVENTS, RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get
from toolgate.surfaces.rest.framework.streams import (
    LAST_EVENT_ID,
    encode_named_event,
    parse_last_event_id,
    stream_response,
)


@get(
    "/admin/api/watch",
    "viewer",
    "Watch the registry",
    EVENTS,
    query=(
        Parameter(
            "since",
            "The revision to begin after. Without it, the newest. "
            "One that is not reached yet is refused as `compacted`.",
            form="number",
        ),
        Parameter("epoch", "The epoch `since` is of: another one is refused as `compacted`."),
        Parameter("digest", "The digest that was told with `since`: another one is refused likewise."),
        Parameter("kinds", "Only changes of these kinds: `server,task,profile,pin,chat_upstream,key`."),
    ),
    headers=(LAST_EVENT_ID,),
    errors=(Compacted, SessionLimit),
)
async def watch_changes(control: Control, call: RestCall[None]) -> RestResponse:
    """Changes as they are committed, one event a transaction.

    First comes `start`, with the `epoch` of the registry. Then `change`, whose id is its revision, with the
    `upserts` and `deletes` it made; and `bookmark`: everything up to its revision has been told. Both have
    the `digest` of the log up to there. `error` is the last event of a watch that cannot go on: list again,
    and watch from the revision listed.
    """
    since, kinds = _parse_since(control, call), _parse_kinds(call)
    # The digest belongs to `since`; who resumes by the id of an event has another position.
    digest = "" if parse_last_event_id(call) is not None else call.query.get("digest", "")
    return await stream_response(
        control,
        call,
        control.store.watch(since, digest),
        first=encode_named_event("start", {"epoch": control.store.epoch, "revision": since}),
        tell=lambda batch: _encode_batch(filter_batch(batch, kinds)),
    )


def _parse_since(control: Control, call: RestCall[None]) -> int:
    """The revision to go on after."""
    if "epoch" in call.query and call.query["epoch"] != control.store.epoch:
        raise Compacted("this registry has another history than the one that was watched")
    last = parse_last_event_id(call)
    since = call.number("since") if last is None else last
    return control.store.revision if since is None else since


def _parse_kinds(call: RestCall[None]) -> frozenset[Kind]:
    may = watchable_kinds(call.caller)
    if "kinds" not in call.query:
        return may
    asked = set(call.query["kinds"].split(","))
    known = set(get_args(Kind)) - {"secret", "choice"}
    if not asked <= known:
        raise InvalidRequest(f"`kinds` are among {join_quoted(sorted(known))}")
    if not asked <= may:
        raise Forbidden("watching keys needs the role `admin`")
    return frozenset(kind for kind in may if kind in asked)


def _encode_batch(batch: ChangeBatch) -> bytes:
    told: dict[str, Any] = {"revision": batch.revision, "digest": batch.digest}
    if not batch.changes:
        return encode_named_event("bookmark", told, batch.revision)
    told["upserts"] = [_name(change) for change in batch.changes if change.operation == "put"]
    told["deletes"] = [_name(change) for change in batch.changes if change.operation == "delete"]
    return encode_named_event("change", told, batch.revision)


def _name(change: RecordChange) -> dict[str, str]:
    return {"kind": change.kind, "id": change.id}


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (watch_changes,)
