"""What runs guests, in `up` and `node`. It is loaded with the first guest: most processes never have one."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from toolgate.app.components import node_id_of
from toolgate.gateway.gateway import Gateway
from toolgate.model.invocations import Ending
from toolgate.registry.invocations.contract import Queue
from toolgate.settings import Settings
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.invocation import Means
from toolgate.surfaces.wasm.invoker import Invoker
from toolgate.upstream.models.client import Models
from toolgate.wasm.run import Run

if TYPE_CHECKING:
    from toolgate.wasm.module_cache import CompiledModules, FetchModule
    from toolgate.wasm.slots import Slots

CACHE: Final = "modules-cache"
"""In the data directory: what was compiled, and can be compiled again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Where invocations come from, and the modules that they run."""

    queue: Queue
    fetch: "FetchModule"


class LazyRuntime:
    """Slots and modules. What runs guests takes a quarter of a second to load, and memory from then on."""

    def __init__(self, settings: Settings, gateway: Gateway, fetch: "FetchModule") -> None:
        self._settings = settings
        self._gateway = gateway
        self._fetch = fetch
        self._turn = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._slots: Slots[TaskContext] | None = None
        self._modules: CompiledModules | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    async def open(self, sha256: str) -> Path:
        """See `CompiledModules`."""
        async with self._turn:
            modules = self._modules
            if modules is None:
                compiled = await asyncio.to_thread(import_module, "toolgate.wasm.module_cache")
                modules = compiled.CompiledModules(
                    self._settings.data_dir / CACHE, self._fetch, named=self._named
                )
                self._modules = await self._stack.enter_async_context(modules)
        return await modules.open(sha256)

    async def run(self, run: Run[TaskContext]) -> Ending:
        """See `Slots`."""
        async with self._turn:
            slots = self._slots
            if slots is None:
                runs = await asyncio.to_thread(import_module, "toolgate.wasm.slots")
                calls = await asyncio.to_thread(import_module, "toolgate.surfaces.wasm.functions")
                slots = runs.Slots(calls.ALL_FUNCTIONS, max_guests=self._settings.max_guests)
                self._slots = await self._stack.enter_async_context(slots)
        return await slots.run(run)

    def _named(self) -> Collection[str] | None:
        snapshot = self._gateway.snapshot
        if not snapshot.revision:  # nothing is known of tasks yet
            return None
        return {task.workload.module for task in snapshot.tasks.values() if task.workload is not None}


@asynccontextmanager
async def open_invoker(
    settings: Settings, gateway: Gateway, models: Models, work: Work
) -> AsyncIterator[Invoker]:
    """Has this process run guests, up to `max_guests` at once."""
    async with LazyRuntime(settings, gateway, work.fetch) as runtime:
        invoker = Invoker(
            Means(gateway=gateway, models=models, queue=work.queue, slots=runtime, modules=runtime),
            node_id=node_id_of(settings),
            max_guests=settings.max_guests,
            drain_s=settings.drain_s,
        )
        gateway.metrics.gauge("toolgate_guests", "Guests that run.", lambda: float(len(invoker)))
        async with invoker:
            yield invoker
