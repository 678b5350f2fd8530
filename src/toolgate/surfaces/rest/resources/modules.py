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
from toolgate.govern.modules import (
    TakenIn,
    find_module,
    finish_module,
    list_modules,
    remove_module,
    upload_module,
)
from toolgate.packages.modules import StoredModule
from toolgate.packages.uploads import MAX_PARTS
from toolgate.registry.records.server_bodies import Body
from toolgate.surfaces.rest.framework.response import Answer
from toolgate.surfaces.rest.framework.routing import MODULE, Call, Endpoint, checked
from toolgate.surfaces.rest.shapes import Shown

_MODULES: Final = "/admin/api/modules"
_ONE: Final = f"{_MODULES}/{{sha256}}"
_UPLOAD_ERRORS: Final = (InvalidModule, BodyTooLarge, Conflict, QueueFull, SessionLimit, StorageFailed)


class ModulePartsSent(Body):
    """The end of an upload in parts."""

    parts: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    """How many parts the module was sent in."""


class ModuleShown(Shown, frozen=True, kw_only=True):
    """A module that is kept."""

    sha256: str
    size: int
    at_ms: int
    """When it was uploaded."""
    tasks: list[str]
    """Those that run it."""


class ModuleList(Shown, frozen=True, kw_only=True):
    """All modules."""

    modules: list[ModuleShown]


class ModuleUploaded(Shown, frozen=True, kw_only=True):
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


class ModuleRemoved(Shown, frozen=True, kw_only=True):
    """A module that is not kept any more."""

    sha256: str


async def show_modules(control: Control, _call: Call[None]) -> Answer:
    """All modules, the newest first, with the tasks that run them."""
    modules, users = await list_modules(control)
    return Answer(ModuleList(modules=[_show(one, users.get(one.sha256, ())) for one in modules]))


async def show_module(control: Control, call: Call[None]) -> Answer:
    """One module, with the tasks that run it."""
    module, users = await find_module(control, call.ids["sha256"])
    return Answer(_show(module, users))


async def post_module(control: Control, call: Call[bytes]) -> Answer:
    """Upload a module of at most 4 MiB. A larger one, of up to 32 MiB, is sent part by part.

    It is compiled once, and refused where it calls what is not there. The same again is fine.
    """
    return _answer(await upload_module(control, call.caller, call.body))


async def post_parts(control: Control, call: Call[ModulePartsSent]) -> Answer:
    """Put the parts that were sent to `/api/uploads/{sha256}` together, check the module, and keep it."""
    return _answer(await finish_module(control, call.caller, call.ids["sha256"], parts=call.body.parts))


async def delete_module(control: Control, call: Call[None]) -> Answer:
    """Remove a module that no task runs."""
    await remove_module(control, call.caller, call.ids["sha256"])
    return Answer(ModuleRemoved(sha256=call.ids["sha256"]))


def _show(module: StoredModule, users: Sequence[str]) -> ModuleShown:
    return ModuleShown(sha256=module.sha256, size=module.size, at_ms=module.at_ms, tasks=list(users))


def _answer(taken: TakenIn) -> Answer:
    facts = taken.facts
    shown = ModuleUploaded(
        sha256=taken.sha256,
        size=facts.size,
        imports=[".".join(one) for one in facts.imports],
        exports=list(facts.exports),
        is_new=taken.is_new,
        warnings=list(facts.warnings),
    )
    return Answer(shown, 201 if taken.is_new else 200)


ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        method="GET",
        path=_MODULES,
        role="viewer",
        summary="List the modules",
        handler=show_modules,
        answer=ModuleList,
        errors=(NotFound,),
    ),
    Endpoint(
        method="POST",
        path=_MODULES,
        role="publisher",
        summary="Upload a module",
        handler=post_module,
        body=MODULE,
        answer=ModuleUploaded,
        statuses=(200, 201),
        errors=(InvalidRequest, *_UPLOAD_ERRORS),
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        role="viewer",
        summary="Read a module",
        handler=show_module,
        answer=ModuleShown,
        errors=(NotFound,),
    ),
    Endpoint(
        method="POST",
        path=_ONE,
        role="publisher",
        summary="Finish the upload of a module",
        handler=post_parts,
        body=checked(ModulePartsSent),
        answer=ModuleUploaded,
        statuses=(200, 201),
        errors=_UPLOAD_ERRORS,
    ),
    Endpoint(
        method="DELETE",
        path=_ONE,
        role="admin",
        summary="Remove a module",
        handler=delete_module,
        answer=ModuleRemoved,
        errors=(NotFound, Conflict, StorageFailed),
    ),
)
