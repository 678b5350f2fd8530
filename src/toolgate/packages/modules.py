"""The modules of workloads, each under the hash of its content: none ever changes, none is kept twice."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolgate.errors import BodyTooLarge, Conflict, NotFound
from toolgate.model.names import parse_sha256
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.packages.objects import ObjectStore

ROOT: Final = "modules"
MAX_MODULES: Final = 1_000

_MODULE: Final = re.compile(rf"{ROOT}/([0-9a-f]{{64}})\.wasm")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModule:
    """One module, as it is kept."""

    sha256: str
    size: int
    at_ms: int
    """When it was uploaded."""


class ModuleStore:
    """Every uploaded module. The registry says which tasks run it."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def put(self, content: Path, *, sha256: str) -> bool:
        """Keep a module; the caller has checked its hash. Whether it is new."""
        size = (await asyncio.to_thread(content.stat)).st_size
        check_module_size(size)
        name = _name(sha256)
        if await self._objects.size(name) == size:
            return False
        await self._refuse_too_many()
        await self._objects.put(name, content)
        return True

    async def has(self, sha256: str) -> bool:
        """Whether it is there."""
        return await self._objects.size(_name(sha256)) is not None

    async def get(self, sha256: str) -> StoredModule:
        """One module. Raises NotFound."""
        found = [one for one in await self.list() if one.sha256 == parse_sha256(sha256)]
        if not found:
            raise _module_not_found(sha256)
        return found[0]

    async def list(self) -> list[StoredModule]:
        """All of them, the newest first."""
        found = [
            StoredModule(sha256=match[1], size=one.size, at_ms=one.modified_ms)
            for one in await self._objects.list(ROOT)
            if (match := _MODULE.fullmatch(one.name))
        ]
        return sorted(found, key=lambda one: (-one.at_ms, one.sha256))

    async def read(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Its content, in pieces. Raises NotFound. The reader bounds the size and checks the hash."""
        try:
            async for piece in self._objects.read(_name(sha256)):
                yield piece
        except NotFound as exc:
            raise _module_not_found(sha256) from exc

    async def remove(self, sha256: str) -> None:
        """Forget it. Raises NotFound."""
        if not await self.has(sha256):
            raise _module_not_found(sha256)
        await self._objects.delete([_name(sha256)])

    async def _refuse_too_many(self) -> None:
        if len(await self.list()) >= MAX_MODULES:
            raise Conflict(
                f"the gateway keeps {MAX_MODULES} modules, which is the limit",
                hint="`toolgate modules list` shows those that no task uses: delete some",
            )


def check_module_size(size: int) -> None:
    """Raises BodyTooLarge."""
    if size > MAX_MODULE_BYTES:
        raise BodyTooLarge(
            f"a module is at most {MAX_MODULE_BYTES} bytes, and this one has {size}",
            hint="build it for release, and strip it of names and debug information",
        )


def _name(sha256: str) -> str:
    """Where a module is. Raises InvalidRecord: nothing in it can lead elsewhere."""
    return f"{ROOT}/{parse_sha256(sha256)}.wasm"


def _module_not_found(sha256: str) -> NotFound:
    return NotFound(
        f"there is no module `{sha256}`", hint="`toolgate modules upload FILE` uploads one; `list` shows them"
    )
