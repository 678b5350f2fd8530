"""Uploads in parts, of archives and of modules; and the modules that tasks run."""

from typing import Annotated, Any, Final

from pydantic import Field

from toolgate.errors import BodyTooLarge, Conflict, InvalidModule, QueueFull, SessionLimit, StorageFailed
from toolgate.govern import packages
from toolgate.govern.control import Control
from toolgate.model.packages import SchemaVersion, Source
from toolgate.packages.uploads import MAX_PARTS
from toolgate.registry.records.body import StrictBody
from toolgate.surfaces.rest.framework.request import BodySpec, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse
from toolgate.surfaces.rest.framework.routing import delete, get, post, put

_UPLOAD: Final = "/api/uploads/{sha256}"


class UploadSent(StrictBody):
    """The end of an upload."""

    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    """How many parts the archive was sent in."""
    dry_run: bool = False
    """Check the archive, and do not keep it."""


class PartResponse(ResponseShape, frozen=True, kw_only=True):
    """A part that was taken in."""

    part: int


class PartsResponse(ResponseShape, frozen=True, kw_only=True):
    """The parts of an upload that are there already."""

    parts: list[int]


class UploadResponse(ResponseShape, frozen=True, kw_only=True):
    """An archive that was found good."""

    package_id: str
    version: str
    sha256: str
    """Of the archive as it is kept; for one in another format, it was repacked."""
    size: int
    files: int
    unpacked_bytes: int
    schema_version: SchemaVersion
    source: Source
    tools: list[str]
    """Those it declares."""
    kept: bool
    """False: it was only checked."""


@put(
    f"{_UPLOAD}/{{part}}",
    "publisher",
    "Send a part of an archive or module",
    body=BodySpec(None, bytes, media_type="application/octet-stream"),
    errors=(SessionLimit, StorageFailed),
)
async def put_part(control: Control, call: RestCall[bytes]) -> PartResponse:
    """Send one part of an archive or module, of at most 4 MiB. Parts may come in any order, and again.

    What lies there for an hour without another part is forgotten. No other caller sees it.
    """
    part = int(call.ids["part"])
    await control.uploads.put_part(call.caller.id, call.ids["sha256"], part, call.body)
    return PartResponse(part=part)


@get(_UPLOAD, "publisher", "List the parts of an upload")
async def list_parts(control: Control, call: RestCall[None]) -> PartsResponse:
    """Which parts of your upload are there: those need not be sent again."""
    return PartsResponse(parts=await control.uploads.parts(call.caller.id, call.ids["sha256"]))


@delete(_UPLOAD, "publisher", "Discard an upload", errors=(StorageFailed,))
async def discard_upload(control: Control, call: RestCall[None]) -> PartsResponse:
    """Forget what you sent of an upload. What was not begun is no error."""
    await control.uploads.discard(call.caller.id, call.ids["sha256"])
    return PartsResponse(parts=[])


@post(_UPLOAD, "admin", "Finish an upload", errors=(BodyTooLarge, Conflict, SessionLimit, StorageFailed))
async def finish_upload(control: Control, call: RestCall[UploadSent]) -> UploadResponse:
    """Put the parts together, check the archive, and keep it as a version of the package it holds.

    It is a gzipped tar with a `manifest.json` at its root, or an `.mcpb` bundle. All that is wrong with its
    manifest is told at once. A version that is there already with other content is a conflict.
    """
    sent = call.body
    looked = await packages.publish_package(
        control, call.caller, call.ids["sha256"], parts=sent.parts, is_dry_run=sent.dry_run
    )
    return UploadResponse.of(looked.package, looked, tools=looked.package.declared, kept=not sent.dry_run)


_MODULES: Final = "/admin/api/modules"
_ONE: Final = f"{_MODULES}/{{sha256}}"


class ModulePartsSent(StrictBody):
    """The end of an upload in parts."""

    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    """How many parts the module was sent in."""


class ModuleShown(ResponseShape, frozen=True, kw_only=True):
    """A module that is kept."""

    sha256: str
    size: int
    at_ms: int
    """When it was uploaded."""
    tasks: list[str]
    """Those that run it."""


class ModuleList(ResponseShape, frozen=True, kw_only=True):
    """All modules."""

    modules: list[ModuleShown]


class ModuleUploaded(ResponseShape, frozen=True, kw_only=True):
    """A module that was found good, and is kept."""

    sha256: str
    size: int
    imports: list[str]
    """What it calls of its host: `module.name`."""
    exports: list[str]
    is_new: bool
    """False: it was there before."""
    warnings: list[str]
    """What is likely not meant, though it can be run."""


class ModuleRemoved(ResponseShape, frozen=True, kw_only=True):
    """A module that is not kept any more."""

    sha256: str


_WASM: Final = BodySpec(None, bytes, media_type="application/wasm")
_UPLOADED: Final[dict[str, Any]] = {
    "response": ModuleUploaded,
    "statuses": (200, 201),
    "errors": (InvalidModule, BodyTooLarge, Conflict, QueueFull, SessionLimit, StorageFailed),
}
"""What the two ways of uploading a module have in common."""


@get(_MODULES, "viewer", "List the modules")
async def show_modules(control: Control, _call: RestCall[None]) -> ModuleList:
    """All modules, the newest first, with the tasks that run them."""
    modules, users = await packages.list_modules(control)
    return ModuleList(modules=[ModuleShown.of(one, tasks=users.get(one.sha256, ())) for one in modules])


@get(_ONE, "viewer", "Read a module")
async def show_module(control: Control, call: RestCall[None]) -> ModuleShown:
    """One module, with the tasks that run it."""
    module, users = await packages.find_module(control, call.ids["sha256"])
    return ModuleShown.of(module, tasks=users)


@post(_MODULES, "publisher", "Upload a module", body=_WASM, **_UPLOADED)
async def post_module(control: Control, call: RestCall[bytes]) -> RestResponse:
    """Upload a module of at most 4 MiB. A larger one, of up to 32 MiB, is sent part by part.

    It is compiled once, and refused where it calls what is not there. The same again is fine.
    """
    return _show_upload(await packages.upload_module(control, call.caller, call.body))


@post(_ONE, "publisher", "Finish the upload of a module", **_UPLOADED)
async def post_parts(control: Control, call: RestCall[ModulePartsSent]) -> RestResponse:
    """Put the parts that were sent to `/api/uploads/{sha256}` together, check the module, and keep it."""
    sha256, parts = call.ids["sha256"], call.body.parts
    return _show_upload(await packages.finish_module(control, call.caller, sha256, parts=parts))


@delete(_ONE, "admin", "Remove a module", errors=(Conflict, StorageFailed))
async def delete_module(control: Control, call: RestCall[None]) -> ModuleRemoved:
    """Remove a module that no task runs."""
    await packages.remove_module(control, call.caller, call.ids["sha256"])
    return ModuleRemoved(sha256=call.ids["sha256"])


def _show_upload(taken: packages.UploadedModule) -> RestResponse:
    shown = ModuleUploaded.of(taken, taken.facts, imports=[".".join(one) for one in taken.facts.imports])
    return RestResponse(shown, 201 if taken.is_new else 200)
