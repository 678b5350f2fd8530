"""The registry as a whole: watching its changes, nodes, server files, backups.

Watch events name the changed records, not their content. If a reader is too slow or its credential expires,
its last event is `error`. It misses nothing if it resumes from its last id.
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
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import get, post


@get(
    "/admin/api/watch",
    "viewer",
    "Watch the registry",
    query=(
        Parameter("since", "The revision to start after. Default: the current revision.", "number"),
        Parameter("epoch", "The epoch of `since`. Fails with `compacted` if the registry has another one."),
        Parameter("digest", "The digest listed with `since`. Fails with `compacted` if it differs."),
        Parameter("kinds", "Only changes of these kinds: `server,task,profile,pin,chat_upstream,key`."),
    ),
    **{**streams.STREAM, "errors": (errors.Compacted, errors.SessionLimit)},
)
async def watch_changes(control: Control, call: RestCall[None]) -> RestResponse:
    """A stream of changes, one event per transaction.

    The first event is `start`, with the `epoch` of the registry. Each `change` has the `upserts` and
    `deletes` of a transaction; its id is the revision. A `bookmark` states that all events up to its revision
    were sent. Both have the `digest` of the log at that revision. If the watch ends with `error`, list again,
    and watch from the revision of the list.
    """
    if call.query.get("epoch", control.store.epoch) != control.store.epoch:
        raise errors.Compacted("the registry has another epoch than the watched one")
    last = streams.parse_last_event_id(call)
    since = call.number_or("since", control.store.revision) if last is None else last
    kinds = _parse_kinds(call)
    # The digest belongs to `since`, not to the id of the last event.
    digest = "" if last is not None else call.query.get("digest", "")
    return await streams.stream_response(
        control,
        call,
        control.store.watch(since, digest),
        first=streams.encode_named_event("start", {"epoch": control.store.epoch, "revision": since}),
        encode=lambda batch: _encode_batch(filter_batch(batch, kinds)),
    )


def _parse_kinds(call: RestCall[None]) -> frozenset[Kind]:
    may = watchable_kinds(call.caller)
    if "kinds" not in call.query:
        return may
    requested = set(call.query["kinds"].split(","))
    known = set(get_args(Kind)) - {"secret", "choice"}
    if not requested <= known:
        raise errors.InvalidRequest(f"`kinds` must be among {join_quoted(sorted(known))}")
    if not requested <= may:
        raise errors.Forbidden("watching keys needs the role `admin`")
    return frozenset(kind for kind in may if kind in requested)


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
    """The effect of the server files on the registry. In a dry run, nothing was changed."""

    revision: Revision
    applied: list[str]
    """The changes: `+` added, `~` changed, `-` removed, each with its file."""
    kept: list[str]
    """Servers that keep their last valid record, because their file is invalid now."""
    warnings: list[str]
    problems: list[str]
    """Errors in files, each with its position."""


@post(
    "/admin/api/registry/reload",
    "admin",
    "Reload the server files",
    service=DirectoryLoader,
    query=(Parameter("dry_run", "Report the changes without making them.", "flag"),),
    errors=(errors.InvalidRecord, errors.Conflict, errors.StorageFailed),
)
async def reload_directory(loader: DirectoryLoader, call: RestCall[NoBody]) -> ReloadResponse:
    """Apply the directory of server files to the registry, or report what would change."""
    check_unbounded(call.caller, "the directory contains servers of all callers")
    report = await (loader.preview() if call.flag("dry_run") else loader.reload(call.caller.id))
    return ReloadResponse.of(
        report,
        applied=[f"{_SIGNS[diff.operation]} {diff.details}" for diff in report.applied],
        problems=list(map(str, report.problems)),
    )


class BackupResponse(ResponseShape, frozen=True, kw_only=True):
    """A written backup."""

    path: str
    """The path of the file on the gateway's machine."""
    revision: Revision
    """The registry revision of the backup."""
    records: int


_BACKUP: Final[dict[str, Any]] = {"statuses": (201,), "errors": (errors.StorageFailed,)}


@post("/admin/api/backup", "admin", "Write a backup", BackupResponse, **_BACKUP)
async def make_backup(control: Control, call: RestCall[NoBody]) -> RestResponse:
    """Write the whole registry to a new file in the gateway's data directory.

    Only its owner can read the file: it contains the hashes of keys and the secrets in records.
    """
    check_unbounded(call.caller, "a backup contains the whole registry")
    name = f"backup-{control.clock_ms()}-{control.store.revision}.jsonl"
    path = control.data_dir.resolve() / name
    done = await control.store.export(path)
    audit_change(control, call.caller, operation="backup", kind="registry", record_id=name)
    return RestResponse(BackupResponse(path=str(path), revision=done.revision, records=done.records), 201)


class DataDirectoryResponse(ResponseShape, frozen=True, kw_only=True):
    """The data directory of the gateway."""

    path: str
    """The path on the gateway's machine."""


@get("/admin/api/data-directory", "admin", "Show the data directory")
async def show_data_directory(control: Control, _call: RestCall[None]) -> DataDirectoryResponse:
    """The directory that holds the audit log, packages and, without a database, the registry."""
    return DataDirectoryResponse(path=str(control.data_dir.resolve()))


class NodeShown(ResponseShape, frozen=True, kw_only=True):
    """A node, as of its last report."""

    node_id: str
    url: str
    """The URL of its endpoints, as the node reports it."""
    version: str
    revision: Revision
    """The registry revision it serves."""
    is_current: bool
    """Whether that is the newest revision."""
    is_degraded: bool
    """Whether it has lost the control plane and serves what it had."""
    is_lost: bool
    """Whether it has not reported for 30 s."""
    age_s: float
    """The age of its last report."""
    servers: int
    """The number of servers it knows."""


class NodesResponse(ResponseShape, frozen=True, kw_only=True):
    """All nodes with a report."""

    revision: Revision
    """The current registry revision."""
    nodes: list[NodeShown]


@get("/admin/api/nodes", "viewer", "List the nodes")
async def list_nodes(control: Control, _call: RestCall[None]) -> NodesResponse:
    """Every node, with its served revision, its state and the age of its last report."""
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
