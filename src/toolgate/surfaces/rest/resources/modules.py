"""Modules of workloads: what was uploaded, and which tasks run it."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from toolgate.errors import (
    BodyTooLarge,
    Conflict,
    InvalidModule,
    InvalidRequest,
    NotFound,
    QueueFull,
    SessionLimit,
    StorageFailed,
)
from toolgate.govern.control import Control
from toolgate.govern.packages import (
    UploadedModule,
    find_module,
    finish_module,
    list_modules,
    remove_module,
    upload_module,
)
from toolgate.packages.modules import StoredModule
from toolgate.packages.uploads import MAX_PARTS
from toolgate.registry.records.server_bodies import StrictBody
from toolgate.surfaces.rest.framework.request import WASM_BODY, RestCall, validate_as
from toolgate.surfaces.rest.framework.response import ResponseShape, RestResponse
from toolgate.surfaces.rest.framework.routing import RestEndpoint, delete, get, post

_MODULES: Final = "/admin/api/modules"
_ONE: Final = f"{_MODULES}/{{sha256}}"
_UPLOAD_ERRORS: Final = (InvalidModule, BodyTooLarge, Conflict, QueueFull, SessionLimit, StorageFailed)


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


@get(_MODULES, "viewer", "List the modules", ModuleList, errors=(NotFound,))
async def show_modules(control: Control, _call: RestCall[None]) -> RestResponse:
    """All modules, the newest first, with the tasks that run them."""
    modules, users = await list_modules(control)
    return RestResponse(ModuleList(modules=[_show(one, users.get(one.sha256, ())) for one in modules]))


@get(_ONE, "viewer", "Read a module", ModuleShown, errors=(NotFound,))
async def show_module(control: Control, call: RestCall[None]) -> RestResponse:
    """One module, with the tasks that run it."""
    module, users = await find_module(control, call.ids["sha256"])
    return RestResponse(_show(module, users))


@post(
    _MODULES,
    "publisher",
    "Upload a module",
    ModuleUploaded,
    body=WASM_BODY,
    statuses=(200, 201),
    errors=(InvalidRequest, *_UPLOAD_ERRORS),
)
async def post_module(control: Control, call: RestCall[bytes]) -> RestResponse:
    """Upload a module of at most 4 MiB. A larger one, of up to 32 MiB, is sent part by part.

    It is compiled once, and refused where it calls what is not there. The same again is fine.
    """
    return _show_upload(await upload_module(control, call.caller, call.body))


@post(
    _ONE,
    "publisher",
    "Finish the upload of a module",
    ModuleUploaded,
    body=validate_as(ModulePartsSent),
    statuses=(200, 201),
    errors=_UPLOAD_ERRORS,
)
async def post_parts(control: Control, call: RestCall[ModulePartsSent]) -> RestResponse:
    """Put the parts that were sent to `/api/uploads/{sha256}` together, check the module, and keep it."""
    return _show_upload(await finish_module(control, call.caller, call.ids["sha256"], parts=call.body.parts))


@delete(_ONE, "admin", "Remove a module", ModuleRemoved, errors=(NotFound, Conflict, StorageFailed))
async def delete_module(control: Control, call: RestCall[None]) -> RestResponse:
    """Remove a module that no task runs."""
    await remove_module(control, call.caller, call.ids["sha256"])
    return RestResponse(ModuleRemoved(sha256=call.ids["sha256"]))


def _show(module: StoredModule, users: Sequence[str]) -> ModuleShown:
    return ModuleShown(sha256=module.sha256, size=module.size, at_ms=module.at_ms, tasks=list(users))


def _show_upload(taken: UploadedModule) -> RestResponse:
    facts = taken.facts
    shown = ModuleUploaded(
        sha256=taken.sha256,
        size=facts.size,
        imports=[".".join(one) for one in facts.imports],
        exports=list(facts.exports),
        is_new=taken.is_new,
        warnings=list(facts.warnings),
    )
    return RestResponse(shown, 201 if taken.is_new else 200)


ENDPOINTS: Final[tuple[RestEndpoint[Any], ...]] = (
    show_modules,
    post_module,
    show_module,
    post_parts,
    delete_module,
)
