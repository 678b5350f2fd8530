"""Modules of workloads: taken in, checked while they are still suspect, kept, and removed."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolgate.errors import Conflict
from toolgate.govern.changes.commit import note
from toolgate.govern.changes.permissions import check_boundless
from toolgate.govern.changes.workloads import modules_of, users_of_modules
from toolgate.govern.control import Control
from toolgate.govern.publishing import uploads_of
from toolgate.model.principals import Principal
from toolgate.packages.modules import StoredModule, check_module_size
from toolgate.wasm.compiling import ModuleFacts, check_module

Users = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """A module that was found good, and is kept."""

    sha256: str
    facts: ModuleFacts
    is_new: bool
    """False: it was there before."""


async def upload_module(control: Control, actor: Principal, content: bytes) -> TakenIn:
    """Keep a module that came in one piece. Raises whatever is wrong with it."""
    sha256 = hashlib.sha256(content).hexdigest()
    await uploads_of(control).put_part(actor.id, sha256, 1, content)
    return await finish_module(control, actor, sha256, parts=1)


async def finish_module(control: Control, actor: Principal, sha256: str, *, parts: int) -> TakenIn:
    """Keep a module whose parts were uploaded. Raises whatever is wrong with it."""
    path = await uploads_of(control).finish(actor.id, sha256, parts=parts)
    try:
        return await _keep(control, actor, path, sha256)
    finally:
        path.unlink(missing_ok=True)


async def _keep(control: Control, actor: Principal, path: Path, sha256: str) -> TakenIn:
    check_module_size((await asyncio.to_thread(path.stat)).st_size)
    facts = await check_module(path)
    is_new = await modules_of(control).put(path, sha256=sha256)
    if is_new:
        note(control, actor, operation="upload", kind="module", record_id=sha256)
    return TakenIn(sha256=sha256, facts=facts, is_new=is_new)


async def list_modules(control: Control) -> tuple[list[StoredModule], Users]:
    """All that are kept, the newest first, and who uses which."""
    return await modules_of(control).list(), await _all_users(control)


async def find_module(control: Control, sha256: str) -> tuple[StoredModule, list[str]]:
    """One of them, and the tasks that run it. Raises NotFound."""
    module = await modules_of(control).get(sha256)
    return module, await _users(control, sha256)


async def remove_module(control: Control, actor: Principal, sha256: str) -> None:
    """Remove one that no task runs. Raises NotFound, or Conflict while one does."""
    check_boundless(actor, "a module may be any caller's")
    async with control.turn:
        if users := await _users(control, sha256):
            more = f" and {len(users) - 1} more" if len(users) > 1 else ""
            raise Conflict(
                f"module `{sha256}` is run by task `{users[0]}`{more}",
                hint="give these tasks another module, or remove them",
                data={"tasks": users},
            )
        await modules_of(control).remove(sha256)
    note(control, actor, operation="remove", kind="module", record_id=sha256)


async def _users(control: Control, sha256: str) -> list[str]:
    return (await _all_users(control)).get(sha256, [])


async def _all_users(control: Control) -> Users:
    return users_of_modules((await control.store.list("task")).records)
