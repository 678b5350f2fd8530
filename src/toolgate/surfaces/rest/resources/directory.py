"""The directory of server files, read again on demand."""

from typing import Any, Final

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.govern.changes.permissions import check_unbounded
from toolgate.registry.files.reload import DirectoryLoader
from toolgate.surfaces.rest.framework.request import NO_BODY, NoBody, Parameter, RestCall
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, post
from toolgate.surfaces.rest.resources.record_shapes import ReloadAnswer

_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}


@post(
    "/admin/api/registry/reload",
    "admin",
    "Read the server files again",
    ReloadAnswer,
    service=DirectoryLoader,
    body=NO_BODY,
    query=(Parameter("dry_run", "`true`: say what would change, and change nothing.", form="flag"),),
    errors=(NotFound, InvalidRecord, Conflict, StorageFailed),
)
async def reload_directory(loader: DirectoryLoader, call: RestCall[NoBody]) -> RestResponse:
    """Make the registry agree with the directory of server files, or, in a dry run, only say how."""
    check_unbounded(call.caller, "the directory holds servers of all callers")
    report = await (loader.preview() if call.flag("dry_run") else loader.reload(call.caller.id))
    return RestResponse(
        ReloadAnswer(
            revision=report.revision,
            applied=[f"{_SIGNS[diff.operation]} {diff.details}" for diff in report.applied],
            kept=list(report.kept),
            warnings=list(report.warnings),
            problems=list(map(str, report.problems)),
        )
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (reload_directory,)
