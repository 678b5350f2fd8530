"""Archives and modules on their way in, part by part. An archive is then checked and kept as a version of its
package; of modules, see `modules`.
"""

from typing import Any, Final

from toolgate.errors import BodyTooLarge, Conflict, InvalidRecord, InvalidRequest, SessionLimit, StorageFailed
from toolgate.govern.control import Control
from toolgate.govern.packages import InspectedArchive, publish_package
from toolgate.surfaces.rest.framework.request import OCTETS_BODY, RestCall, validate_as
from toolgate.surfaces.rest.framework.response import RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, delete, get, post, put
from toolgate.surfaces.rest.resources.package_shapes import PartAnswer, PartsAnswer, UploadAnswer, UploadSent

_UPLOAD: Final = "/api/uploads/{sha256}"


@put(
    f"{_UPLOAD}/{{part}}",
    "publisher",
    "Send a part of an archive or module",
    PartAnswer,
    body=OCTETS_BODY,
    errors=(InvalidRequest, SessionLimit, StorageFailed),
)
async def put_part(control: Control, call: RestCall[bytes]) -> RestResponse:
    """Send one part of an archive or module, of at most 4 MiB. Parts may come in any order, and again.

    What lies there for an hour without another part is forgotten. Nobody else sees it.
    """
    number = int(call.ids["part"])
    await control.uploads.put_part(call.caller.id, call.ids["sha256"], number, call.body)
    return RestResponse(PartAnswer(part=number))


@get(_UPLOAD, "publisher", "List the parts of an upload", PartsAnswer)
async def list_parts(control: Control, call: RestCall[None]) -> RestResponse:
    """Which parts of your upload are there: those need not be sent again."""
    return RestResponse(PartsAnswer(parts=await control.uploads.parts(call.caller.id, call.ids["sha256"])))


@delete(_UPLOAD, "publisher", "Discard an upload", PartsAnswer, errors=(StorageFailed,))
async def discard_upload(control: Control, call: RestCall[None]) -> RestResponse:
    """Forget what you sent of an upload. What was not begun is no error."""
    await control.uploads.discard(call.caller.id, call.ids["sha256"])
    return RestResponse(PartsAnswer(parts=[]))


@post(
    _UPLOAD,
    "admin",
    "Finish an upload",
    UploadAnswer,
    body=validate_as(UploadSent),
    errors=(InvalidRecord, BodyTooLarge, Conflict, SessionLimit, StorageFailed),
)
async def finish_upload(control: Control, call: RestCall[UploadSent]) -> RestResponse:
    """Put the parts together, check the archive, and keep it as a version of the package it holds.

    It is a gzipped tar with a `manifest.json` at its root, or an `.mcpb` bundle. All that is wrong with its
    manifest is told at once. A version that is there already with other content is a conflict.
    """
    sent = call.body
    looked = await publish_package(
        control, call.caller, call.ids["sha256"], parts=sent.parts, is_dry_run=sent.dry_run
    )
    return RestResponse(_show_upload(looked, is_kept=not sent.dry_run))


def _show_upload(looked: InspectedArchive, *, is_kept: bool) -> UploadAnswer:
    package = looked.package
    return UploadAnswer(
        package_id=package.package_id,
        version=package.version,
        sha256=package.sha256,
        size=looked.size,
        files=looked.files,
        unpacked_bytes=looked.unpacked_bytes,
        schema_version=package.schema_version,
        source=package.source,
        tools=list(package.declared),
        kept=is_kept,
    )


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (put_part, list_parts, discard_upload, finish_upload)
