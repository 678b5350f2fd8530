"""Uploads in parts, of package archives and modules; and the modules that tasks run."""

import hashlib
from typing import Annotated, Any, Final

from pydantic import Field

from toolgate.errors import BodyTooLarge, Conflict, InvalidModule, QueueFull, SessionLimit, StorageFailed
from toolgate.govern import packages
from toolgate.govern.control import Control
from toolgate.model.packages import SchemaVersion, Source
from toolgate.model.principals import Principal
from toolgate.packages.artifacts import StoredModule
from toolgate.packages.uploads import MAX_PARTS
from toolgate.registry.records.body import StrictBody
from toolgate.surfaces.rest.framework.request import BodySpec, RestCall
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse
from toolgate.surfaces.rest.framework.routing import delete, get, post, put
from toolgate.wasm.compiling import ModuleFacts

_UPLOAD: Final = "/api/uploads/{sha256}"


class UploadSent(StrictBody):
    """Finishes the upload of an archive."""

    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    """The number of parts of the archive."""
    dry_run: bool = False
    """Check the archive without storing it."""


class PartResponse(ResponseShape, frozen=True, kw_only=True):
    """An uploaded part."""

    part: int


class PartsResponse(ResponseShape, frozen=True, kw_only=True):
    """The uploaded parts of an archive or module."""

    parts: list[int]


class UploadResponse(ResponseShape, frozen=True, kw_only=True):
    """A valid archive."""

    package_id: str
    version: str
    sha256: str
    """The SHA-256 of the stored archive. Archives in other formats are repacked."""
    size: int
    files: int
    unpacked_bytes: int
    schema_version: SchemaVersion
    source: Source
    tools: list[str]
    """The tools that it declares."""
    kept: bool
    """Whether it is stored. False after a dry run."""


@put(
    f"{_UPLOAD}/{{part}}",
    "publisher",
    "Upload a part of an archive or module",
    body=BodySpec(None, bytes, media_type="application/octet-stream"),
    errors=(SessionLimit, StorageFailed),
)
async def put_part(control: Control, call: RestCall[bytes]) -> PartResponse:
    """Upload one part of an archive or module, of at most 4 MiB. Parts may arrive in any order, and
    repeatedly.

    An upload without a new part for an hour is deleted. No other caller sees it.
    """
    part = int(call.ids["part"])
    await control.uploads.put_part(call.caller.id, call.ids["sha256"], part, call.body)
    return PartResponse(part=part)


@get(_UPLOAD, "publisher", "List the parts of an upload")
async def list_parts(control: Control, call: RestCall[None]) -> PartsResponse:
    """The parts of your upload that the gateway has. You need not upload these again."""
    return PartsResponse(parts=await control.uploads.parts(call.caller.id, call.ids["sha256"]))


@delete(_UPLOAD, "publisher", "Discard an upload", errors=(StorageFailed,))
async def discard_upload(control: Control, call: RestCall[None]) -> PartsResponse:
    """Delete the parts of your upload. Succeeds also without any part."""
    await control.uploads.discard(call.caller.id, call.ids["sha256"])
    return PartsResponse(parts=[])


@post(_UPLOAD, "admin", "Finish an upload", errors=(BodyTooLarge, Conflict, SessionLimit, StorageFailed))
async def finish_upload(control: Control, call: RestCall[UploadSent]) -> UploadResponse:
    """Join the parts, check the archive, and store it as a version of its package.

    The archive is a gzipped tar with a `manifest.json` at its root, or an `.mcpb` bundle. The error lists all
    problems of the manifest. If the version exists with other content, the upload fails with `conflict`.
    """
    sent = call.body
    looked = await packages.publish_package(
        control, call.caller, call.ids["sha256"], parts=sent.parts, is_dry_run=sent.dry_run
    )
    package = looked.package
    return UploadResponse.of(package, looked, looked.summary, tools=package.declared, kept=not sent.dry_run)


_MODULES: Final = "/admin/api/modules"
_ONE: Final = f"{_MODULES}/{{sha256}}"


class ModulePartsSent(StrictBody):
    """Finishes the upload of a module."""

    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    """The number of parts of the module."""


class ModuleShown(StoredModule, ResponseShape, frozen=True, kw_only=True):
    """A stored module."""

    tasks: list[str]
    """The tasks that run it."""


class ModuleList(ResponseShape, frozen=True, kw_only=True):
    """All modules."""

    modules: list[ModuleShown]


class ModuleUploaded(ModuleFacts, ResponseShape, frozen=True, kw_only=True):
    """A valid and stored module."""

    sha256: str
    is_new: bool
    """Whether it was not stored before."""


class ModuleRemoved(ResponseShape, frozen=True, kw_only=True):
    """A deleted module."""

    sha256: str


_WASM: Final = BodySpec(None, bytes, media_type="application/wasm")
_UPLOADED: Final[dict[str, Any]] = {
    "response": ModuleUploaded,
    "statuses": (200, 201),
    "errors": (InvalidModule, BodyTooLarge, Conflict, QueueFull, SessionLimit, StorageFailed),
}
"""The common options of the two ways to upload a module."""


@get(_MODULES, "viewer", "List the modules")
async def show_modules(control: Control, _call: RestCall[None]) -> ModuleList:
    """All modules, the newest first, with the tasks that run them."""
    modules, users = await control.modules.list(), await packages.find_module_users(control)
    return ModuleList(modules=[ModuleShown.of(one, tasks=users.get(one.sha256, ())) for one in modules])


@get(_ONE, "viewer", "Read a module")
async def show_module(control: Control, call: RestCall[None]) -> ModuleShown:
    """One module, with the tasks that run it."""
    module, users = await control.modules.get(call.ids["sha256"]), await packages.find_module_users(control)
    return ModuleShown.of(module, tasks=users.get(module.sha256, ()))


@post(_MODULES, "publisher", "Upload a module", body=_WASM, **_UPLOADED)
async def post_module(control: Control, call: RestCall[bytes]) -> RestResponse:
    """Upload a module of at most 4 MiB. Upload a larger one, of up to 32 MiB, part by part.

    The gateway compiles it once, and rejects it if it imports unknown functions. Uploading it again succeeds.
    """
    sha256 = hashlib.sha256(call.body).hexdigest()
    await control.uploads.put_part(call.caller.id, sha256, 1, call.body)
    return await _finish_module(control, call.caller, sha256, parts=1)


@post(_ONE, "publisher", "Finish the upload of a module", **_UPLOADED)
async def post_parts(control: Control, call: RestCall[ModulePartsSent]) -> RestResponse:
    """Join the parts that were uploaded to `/api/uploads/{sha256}`, check the module, and store it."""
    return await _finish_module(control, call.caller, call.ids["sha256"], parts=call.body.parts)


@delete(_ONE, "admin", "Delete a module", errors=(Conflict, StorageFailed))
async def delete_module(control: Control, call: RestCall[None]) -> ModuleRemoved:
    """Delete a module that no task runs."""
    await packages.remove_module(control, call.caller, call.ids["sha256"])
    return ModuleRemoved(sha256=call.ids["sha256"])


async def _finish_module(control: Control, actor: Principal, sha256: str, *, parts: int) -> RestResponse:
    facts, is_new = await packages.finish_module(control, actor, sha256, parts=parts)
    shown = ModuleUploaded.of(facts, sha256=sha256, is_new=is_new)
    return RestResponse(shown, 201 if is_new else 200)
