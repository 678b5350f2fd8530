"""The directory of server files, read again on demand."""

from typing import Any, Final

from toolgate.errors import Conflict, InvalidRecord, NotFound, StorageFailed
from toolgate.govern.changes.permissions import check_unbounded
from toolgate.govern.control import Control
from toolgate.surfaces.rest.framework.response import NoBody, RestResponse
from toolgate.surfaces.rest.framework.routing import NO_BODY, Parameter, RestCall, RestEndpoint
from toolgate.surfaces.rest.resources.record_shapes import ReloadAnswer

_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}


async def reload_directory(control: Control, call: RestCall[NoBody]) -> RestResponse:
    """Make the registry agree with the directory of server files, or, in a dry run, only say how."""
    check_unbounded(call.caller, "the directory holds servers of all callers")
    loader = control.loader
    if loader is None:
        raise NotFound("there is no directory of server files", hint="start with `--mcp-registry-dir DIR`")
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


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    RestEndpoint(
        method="POST",
        path="/admin/api/registry/reload",
        role="admin",
        summary="Read the server files again",
        handler=reload_directory,
        body=NO_BODY,
        query=(Parameter("dry_run", "`true`: say what would change, and change nothing.", form="flag"),),
        answer=ReloadAnswer,
        errors=(NotFound, InvalidRecord, Conflict, StorageFailed),
    ),
)
