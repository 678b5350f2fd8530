"""The data directory, and a copy of the whole registry, written into it while everything goes on."""

from typing import Any, Final

from toolgate.errors import NotFound, StorageFailed
from toolgate.govern.changes.commit import audit_change
from toolgate.govern.changes.permissions import check_unbounded
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.request import NO_BODY, NoBody, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse, Revision
from toolgate.surfaces.rest.framework.routing import RestEndpoint, get, post


class BackupAnswer(ResponseShape, frozen=True, kw_only=True):
    """A copy that was written."""

    path: str
    """Where the gateway put it, on its own machine."""
    revision: Revision
    """The revision it is of."""
    records: int


@post(
    "/admin/api/backup",
    "admin",
    "Write a backup",
    BackupAnswer,
    body=NO_BODY,
    statuses=(201,),
    errors=(NotFound, StorageFailed),
)
async def make_backup(control: Control, call: RestCall[NoBody]) -> RestResponse:
    """Write everything the registry holds into a new file in the gateway's data directory.

    The file can be read by its owner only: it holds the hashes of keys and what records hold of secrets.
    """
    check_unbounded(call.caller, "a backup holds all there is")
    name = f"backup-{control.clock_ms()}-{control.store.revision}.jsonl"
    path = control.data_dir.resolve() / name
    done = await control.store.export(path)
    audit_change(control, call.caller, operation="backup", kind="registry", record_id=name)
    return RestResponse(BackupAnswer(path=str(path), revision=done.revision, records=done.records), 201)


class DataDirectoryAnswer(ResponseShape, frozen=True, kw_only=True):
    """Where the gateway keeps its data."""

    path: str
    """On the gateway's own machine."""


@get("/admin/api/data-directory", "admin", "Show the data directory", DataDirectoryAnswer, errors=(NotFound,))
async def show_data_directory(control: Control, _call: RestCall[None]) -> RestResponse:
    """The directory that holds the audit log, packages and, without a database, the registry."""
    return RestResponse(DataDirectoryAnswer(path=str(control.data_dir.resolve())))


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (make_backup, show_data_directory)
