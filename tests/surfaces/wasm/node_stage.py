"""A node in memory that runs invocations in real slots, and the queue that it takes them from."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.registry.memory_store import MemoryInvocations
from tests.surfaces.mcp.mcp_world import McpWorld, key, open_mcp_world, task
from tests.upstream.memory_link import MemoryNet
from tests.wasm.wat import compiled
from toolgate.audit.events import InvocationEnded
from toolgate.errors import ControlUnavailable, NotFound
from toolgate.gateway.auth.identity import principal_of
from toolgate.model.invocations import ENDED, Invocation, InvocationResult, LogLine
from toolgate.model.tasks import Task, Workload
from toolgate.registry.invocations import LeaseVerdict
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.surfaces.wasm.invoker import GuestServices, Invoker, LeaseTiming
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import Models
from toolgate.wasm.slots import Slots

ADA = key("ada", "ada" * 20)
BRISK = LeaseTiming(heartbeat_s=0.02, look_s=0.01)
ECHO = """
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1000))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (call $exit (i32.const 3)))"""
WAIT = """
  (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "spear" "sleep_ms" (func $sleep (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "waits")
  (func (export "_start")
    (drop (call $log (i32.const 3) (i32.const 8) (i32.const 5)))
    (call $sleep (i32.const 60000)))"""
CALL = """
  (import "spear" "mcp_open" (func $open (param i32 i32) (result i32)))
  (import "spear" "mcp_call_tool" (func $call (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "oneecho{}")
  (func (export "_start")
    (i32.store (i32.const 32) (i32.const 1000))
    (drop (call $call (call $open (i32.const 8) (i32.const 3)) (i32.const 11) (i32.const 4)
      (i32.const 15) (i32.const 2) (i32.const 64) (i32.const 32))))"""


class Line:
    """The queue, as a node reaches it: over a line that can be cut."""

    def __init__(self, queue: MemoryInvocations) -> None:
        self._queue = queue
        self.asked_by: set[str] = set()
        self.is_cut = False
        self.deafness = 0
        """How many reports are not heard."""
        self.endings_unheard = 0
        self.is_hanging = False
        """What is reported of those that run is not answered."""
        self.has_hung = asyncio.Event()

    async def claim(self, node_id: str, *, limit: int, wait_s: float = 0.0) -> Sequence[Invocation]:
        self._check()
        self.asked_by.add(node_id)
        return await self._queue.claim(node_id, limit=limit, wait_s=wait_s)

    async def report(
        self,
        invocation_id: str,
        attempt: int,
        *,
        lines: Sequence[LogLine] = (),
        ending: InvocationResult | None = None,
    ) -> LeaseVerdict:
        self._check()
        if self.deafness:
            self.deafness -= 1
            raise ControlUnavailable("not heard")
        if self.is_hanging and ending is None:
            self.has_hung.set()
            await asyncio.Event().wait()
        if ending is not None and self.endings_unheard:
            self.endings_unheard -= 1
            raise ControlUnavailable("its end is not heard")
        return await self._queue.report(invocation_id, attempt, lines=lines, ending=ending)

    def _check(self) -> None:
        if self.is_cut:
            raise ControlUnavailable("the line is cut")


@dataclass
class Node:
    """A node in memory, and the queue it takes from."""

    world: McpWorld
    queue: MemoryInvocations
    line: Line
    services: GuestServices
    texts: dict[str, str]
    directory: Path
    opened: list[str] = field(default_factory=list)

    async def open(self, sha256: str) -> Path:
        """The compiled module of that name."""
        self.opened.append(sha256)
        if sha256 not in self.texts:
            raise NotFound(f"there is no module `{sha256}`")
        return compiled(f"(module {self.texts[sha256]})", self.directory)

    def invoker(
        self, node_id: str = "n", *, max_guests: int = 4, drain_s: float = 0.0, timing: LeaseTiming = BRISK
    ) -> Invoker:
        return Invoker(
            services=self.services, node_id=node_id, max_guests=max_guests, drain_s=drain_s, timing=timing
        )

    async def begin(self, task_id: str, **fields: Any) -> str:
        """The id of a new invocation."""
        made = Invocation(
            invocation_id=f"{task_id}-{time.monotonic_ns()}",
            task_id=task_id,
            principal=fields.pop("principal", principal_of(ADA)),
            revision=fields.pop("revision", self.world.state.revision),
            input=fields.pop("input", b""),
            created_ms=0,
            **fields,
        )
        return (await self.queue.create(made)).invocation.invocation_id

    async def until(self, invocation_id: str, is_so: Callable[[Invocation], bool]) -> Invocation:
        """The invocation once it is so."""
        async with asyncio.timeout(60):
            while True:
                seen = await self.queue.changed(-1)
                found = await self.queue.get(invocation_id)
                assert found is not None
                if is_so(found):
                    return found
                await self.queue.changed(seen)

    async def ended(self, invocation_id: str) -> tuple[Invocation, InvocationResult]:
        found = await self.until(invocation_id, lambda one: one.state in ENDED)
        assert found.ending is not None
        return found, found.ending

    async def waits(self, invocation_id: str) -> None:
        """Passes once the guest has said that it waits."""
        async with asyncio.timeout(60):
            while not [one.text for one in await self.queue.lines(invocation_id)]:
                await self.queue.changed(await self.queue.changed(-1))

    @property
    def audited(self) -> list[InvocationEnded]:
        self.world.gateway.audit.flush()
        return [event for _, event in self.world.sink.events if isinstance(event, InvocationEnded)]


def runnable(task_id: str, module: str, **config: Any) -> Task:
    return replace(task(task_id, **config), workload=Workload(module=module, args=("x",)))


@asynccontextmanager
async def open_node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node that does not take from the queue yet, whose tasks are called after what they do."""
    texts = {"echo": ECHO, "wait": WAIT, "call": CALL}
    tasks = [runnable(name, name, default_server_ids=["one"]) for name in (*texts, "missing")]
    queue = MemoryInvocations(lambda: int(time.time() * 1000))
    line = Line(queue)
    async with (
        open_mcp_world(MemoryNet(), tasks=(*tasks, task("plain")), keys=(ADA,)) as world,
        Models(Secrets({}, None), Egress(allow_private=True)) as models,
        Slots(ALL_FUNCTIONS, max_guests=4) as slots,
    ):

        async def open_module(sha256: str) -> Path:
            return await node.open(sha256)

        services = GuestServices(
            gateway=world.gateway, models=models, queue=line, run_guest=slots.run, open_module=open_module
        )
        node = Node(world, queue, line, services, texts, tmp_path)
        yield node
        assert slots.host_faults == 0
