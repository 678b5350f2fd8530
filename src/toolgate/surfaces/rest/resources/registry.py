"""The registry as a whole: watching its changes, the nodes that follow it, server files, backups.

Events of the watch are light: what was changed, not what it is now. A reader that is too slow, or whose
credential expires, gets an `error` event as its last. It misses nothing if it resumes from its last id.
"""

from typing import Any, Final, get_args

from toolgate import errors
from toolgate.govern.changes.commit import audit_change
from toolgate.govern.changes.permissions import check_unbounded
from toolgate.govern.control import Control
from toolgate.govern.watches import filter_batch, watchable_kinds
from toolgate.model.revisions import ChangeBatch, Kind
from toolgate.registry.files.reload import DirectoryLoader
from toolgate.surfaces.rest.framework import streams
from toolgate.surfaces.rest.framework.request import NoBody, Parameter, RestCall, join_quoted
from toolgate.surfaces.rest.framework.response import EVENTS, ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import get, post


@get(
    "/admin/api/watch",
    "viewer",
    "Watch the registry",
    EVENTS,
    query=(
        Parameter("since", "Begin after this revision, or the newest. Later ones are `compacted`.", "number"),
        Parameter("epoch", "The epoch `since` is of: another one is refused as `compacted`."),
        Parameter("digest", "The digest that came with `since`: another one is refused likewise."),
        Parameter("kinds", "Only changes of these kinds: `server,task,profile,pin,chat_upstream,key`."),
    ),
    headers=(streams.LAST_EVENT_ID,),
    errors=(errors.Compacted, errors.SessionLimit),
)
async def watch_changes(control: Control, call: RestCall[None]) -> RestResponse:
    """Changes as they are committed, one event a transaction.

    First comes `start`, with the `epoch` of the registry. Then `change`, whose id is its revision, with the
    `upserts` and `deletes` it made; and `bookmark`: everything up to its revision has been sent. Both have
    the `digest` of the log up to there. `error` is the last event of a watch that cannot go on: list again,
    and watch from the revision listed.
    """
    since, kinds = _parse_since(control, call), _parse_kinds(call)
    # The digest belongs to `since`; who resumes by the id of an event has another position.
    digest = "" if streams.parse_last_event_id(call) is not None else call.query.get("digest", "")
    return await streams.stream_response(
        control,
        call,
        control.store.watch(since, digest),
        first=streams.encode_named_event("start", {"epoch": control.store.epoch, "revision": since}),
        encode=lambda batch: _encode_batch(filter_batch(batch, kinds)),
    )


def _parse_since(control: Control, call: RestCall[None]) -> int:
    """The revision to go on after."""
    if "epoch" in call.query and call.query["epoch"] != control.store.epoch:
        raise errors.Compacted("this registry has another history than the one that was watched")
    last = streams.parse_last_event_id(call)
    since = call.number("since") if last is None else last
    return control.store.revision if since is None else since


def _parse_kinds(call: RestCall[None]) -> frozenset[Kind]:
    may = watchable_kinds(call.caller)
    if "kinds" not in call.query:
        return may
    asked = set(call.query["kinds"].split(","))
    known = set(get_args(Kind)) - {"secret", "choice"}
    if not asked <= known:
        raise errors.InvalidRequest(f"`kinds` are among {join_quoted(sorted(known))}")
    if not asked <= may:
        raise errors.Forbidden("watching keys needs the role `admin`")
    return frozenset(kind for kind in may if kind in asked)


def _encode_batch(batch: ChangeBatch) -> bytes:
    event: dict[str, Any] = {"revision": batch.revision, "digest": batch.digest}
    if not batch.changes:
        return streams.encode_named_event("bookmark", event, batch.revision)
    for member, operation in (("upserts", "put"), ("deletes", "delete")):
        changed = (one for one in batch.changes if one.operation == operation)
        event[member] = [{"kind": one.kind, "id": one.id} for one in changed]
    return streams.encode_named_event("change", event, batch.revision)


_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}


class ReloadResponse(ResponseShape, frozen=True, kw_only=True):
    """What the directory of server files did to the registry, or, in a dry run, would do."""

    revision: Revision
    applied: list[str]
    """`+` added, `~` changed, `-` removed, each with its file."""
    kept: list[str]
    """Servers that stay as they were last good, because their file is wrong now."""
    warnings: list[str]
    problems: list[str]
    """What is wrong with files, each with its place."""


@post(
    "/admin/api/registry/reload",
    "admin",
    "Read the server files again",
    service=DirectoryLoader,
    query=(Parameter("dry_run", "`true`: say what would change, and change nothing.", "flag"),),
    errors=(errors.InvalidRecord, errors.Conflict, errors.StorageFailed),
)
async def reload_directory(loader: DirectoryLoader, call: RestCall[NoBody]) -> ReloadResponse:
    """Make the registry agree with the directory of server files, or, in a dry run, only say how."""
    check_unbounded(call.caller, "the directory holds servers of all callers")
    report = await (loader.preview() if call.flag("dry_run") else loader.reload(call.caller.id))
    return ReloadResponse.of(
        report,
        applied=[f"{_SIGNS[diff.operation]} {diff.details}" for diff in report.applied],
        problems=list(map(str, report.problems)),
    )


class BackupResponse(ResponseShape, frozen=True, kw_only=True):
    """A copy that was written."""

    path: str
    """Where the gateway put it, on its own machine."""
    revision: Revision
    """The revision it is of."""
    records: int


_BACKUP: Final[dict[str, Any]] = {"statuses": (201,), "errors": (errors.StorageFailed,)}


@post("/admin/api/backup", "admin", "Write a backup", BackupResponse, **_BACKUP)
async def make_backup(control: Control, call: RestCall[NoBody]) -> RestResponse:
    """Write everything the registry holds into a new file in the gateway's data directory.

    The file can be read by its owner only: it holds the hashes of keys and what records hold of secrets.
    """
    check_unbounded(call.caller, "a backup holds all there is")
    name = f"backup-{control.clock_ms()}-{control.store.revision}.jsonl"
    path = control.data_dir.resolve() / name
    done = await control.store.export(path)
    audit_change(control, call.caller, operation="backup", kind="registry", record_id=name)
    return RestResponse(BackupResponse(path=str(path), revision=done.revision, records=done.records), 201)


class DataDirectoryResponse(ResponseShape, frozen=True, kw_only=True):
    """Where the gateway keeps its data."""

    path: str
    """On the gateway's own machine."""


@get("/admin/api/data-directory", "admin", "Show the data directory")
async def show_data_directory(control: Control, _call: RestCall[None]) -> DataDirectoryResponse:
    """The directory that holds the audit log, packages and, without a database, the registry."""
    return DataDirectoryResponse(path=str(control.data_dir.resolve()))


class NodeShown(ResponseShape, frozen=True, kw_only=True):
    """One node, as it reported last."""

    node_id: str
    url: str
    """Where its doors are, as it knows itself."""
    version: str
    revision: Revision
    """Of the registry, as it serves it."""
    is_current: bool
    """Whether that is the newest."""
    is_degraded: bool
    """It could not reach control for a while, and served what it had."""
    is_lost: bool
    """It has not reported for 30 seconds."""
    age_s: float
    """How long ago it reported."""
    servers: int
    """How many servers it knows."""


class NodesResponse(ResponseShape, frozen=True, kw_only=True):
    """All nodes there are reports of."""

    revision: Revision
    """Of the registry."""
    nodes: list[NodeShown]


@get("/admin/api/nodes", "viewer", "List the nodes")
async def list_nodes(control: Control, _call: RestCall[None]) -> NodesResponse:
    """Every node with what it serves, how old that is, and whether it is still there."""
    store, now_ms = control.store, control.clock_ms()
    reports = await store.reports.list_reports()
    shown = [
        NodeShown.of(
            one,
            is_current=(one.epoch, one.revision) == (store.epoch, store.revision),
            is_lost=one.is_lost(now_ms),
            age_s=max(0, now_ms - one.at_ms) / 1000,
            servers=len(one.servers),
        )
        for one in reports
    ]
    return NodesResponse(revision=store.revision, nodes=shown)
