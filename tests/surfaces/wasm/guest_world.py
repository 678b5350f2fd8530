"""A gateway in memory with one task, and guests of it that a test plays itself, call by call.

A played guest is on the event loop: what a call awaits is awaited there, without threads in between, so
that hundreds of thousands of calls are made in seconds. Guests that run are in the tests' WebAssembly.
"""

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy.util import await_only, greenlet_spawn

from tests.surfaces.mcp.mcp_world import McpWorld, open_mcp_world, task
from tests.upstream.memory_link import MemoryNet
from toolgate.errors import ToolgateError
from toolgate.gateway.scope.caller import Caller
from toolgate.model.principals import Principal
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import WorkloadLimits
from toolgate.surfaces.wasm.context import CallLog, HostLimits, TaskContext
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import Models
from toolgate.wasm.abi import Errno, FdTable, HostcallFault, HostFunction, OnThread
from toolgate.wasm.guest import find_errno

T = TypeVar("T")

TASK = "job"
AGENT = Principal(id="agent", role="agent")
ROOM = 4_096
"""Of a played guest's buffer for results."""
_LIMITS = WorkloadLimits()
_HOST_LIMITS = HostLimits()
_MEMORY = 65_536
_OUT = 32_768
_U32_MAX = 0xFFFF_FFFF


@dataclass
class GuestWorld:
    """A world with a task of which guests are runs."""

    world: McpWorld
    models: Models
    task_id: str
    host_limits: HostLimits = _HOST_LIMITS

    @property
    def net(self) -> MemoryNet:
        return self.world.net

    def context(self, *, max_calls: int = 1_000, principal: Principal = AGENT) -> TaskContext:
        return TaskContext(
            gateway=self.world.gateway,
            models=self.models,
            caller=Caller(principal, self.task_id),
            invocation_id="run-1",
            calls=CallLog(max_calls),
            wall_s=lambda: 1.0,
            deadline_s=1e9,
            limits=self.host_limits,
        )

    async def play(
        self,
        functions: Iterable[HostFunction[Any]],
        story: Callable[["PlayedGuest"], T],
        *,
        principal: Principal = AGENT,
        limits: WorkloadLimits = _LIMITS,
    ) -> T:
        """Have `story` play a guest that may call `functions`."""
        context = self.context(max_calls=limits.max_calls, principal=principal)
        return await greenlet_spawn(story, PlayedGuest(context, functions, limits))


@asynccontextmanager
async def open_guest_world(
    net: MemoryNet,
    *servers: ServerRecord,
    config: Mapping[str, Any] | None = None,
    host_limits: HostLimits = _HOST_LIMITS,
    **options: Any,
) -> AsyncIterator[GuestWorld]:
    """`config` are the ends of the task's `mcp.` keys; without, it may use the server `one`."""
    of_task = {"default_server_ids": ["one"]} if config is None else config
    tasks = (task(TASK, **of_task), *options.pop("tasks", ()))
    async with (
        open_mcp_world(net, *servers, tasks=tasks, **options) as world,
        Models(Secrets({}, None), Egress(allow_private=True), pauses_s=(0.0, 0.0)) as models,
    ):
        await world.gateway.servers.settled(one.server_id for one in servers)
        yield GuestWorld(world, models, TASK, host_limits)


class PlayedGuest:
    """A `Guest` with a memory of one page."""

    def __init__(
        self, context: TaskContext, functions: Iterable[HostFunction[Any]], limits: WorkloadLimits
    ) -> None:
        self.context = context
        self.limits = limits
        self.fds = FdTable(limits.max_fds)
        self.memory = bytearray(_MEMORY)
        self.slept_s: list[float | None] = []
        self.table: dict[int, Callable[..., int]] = {}
        """The functions of its own."""
        self._functions = {one.name: one for one in functions}
        self._free = 0

    # As a test plays it

    def call(self, name: str, *args: int | str | bytes) -> int:
        """What the function returns to the guest. A text refers to its pointer and its length."""
        self._free = 0
        flat: list[int] = []
        for arg in args:
            flat.extend((arg,) if isinstance(arg, int) else self._place(arg))
        try:
            result = self._functions[name].call(self, *flat)
        except HostcallFault as fault:
            return -fault.errno
        except ToolgateError as exc:
            return -find_errno(exc)
        assert isinstance(result, int)
        return result

    def hostcall(self, name: str, *args: int | str | bytes, room: int = ROOM) -> tuple[int, bytes]:
        """The same of a function that ends in a buffer of `room`: what it returns, and puts there."""
        length_at = _OUT - 4
        self.write_u32(length_at, room)
        self.memory[_OUT : _OUT + room] = b"\xee" * room
        code = self.call(name, *args, _OUT, length_at)
        return code, bytes(self.memory[_OUT : _OUT + min(self.read_u32(length_at), room)])

    def received(self, name: str, *args: int | str | bytes, room: int = ROOM) -> Any:
        """The JSON that such a function gives."""
        code, data = self.hostcall(name, *args, room=room)
        assert code == len(data), (name, code)
        return json.loads(data)

    def set_param(self, fd: int, key: str, value: Any) -> int:
        data = json.dumps({"key": key, "value": value}).encode()
        self.write_u32(_OUT - 4, len(data))
        self.write(0, data)
        return self.call("cchat_ctl", fd, 1, 0, _OUT - 4)

    @property
    def needed(self) -> int:
        """What the last buffer should have had room for."""
        return self.read_u32(_OUT - 4)

    def _place(self, data: str | bytes) -> tuple[int, int]:
        data = data.encode() if isinstance(data, str) else data
        at, self._free = self._free, self._free + len(data)
        self.memory[at : self._free] = data
        return at, len(data)

    # As functions see it

    def read(self, pointer: int, length: int, *, most: int) -> bytes:
        pointer, length = self._bounds(pointer, length)
        if length > most:
            raise HostcallFault(Errno.EINVAL)
        return bytes(self.memory[pointer : pointer + length])

    def read_u32(self, pointer: int) -> int:
        return int.from_bytes(self.read(pointer, 4, most=4), "little")

    def write(self, pointer: int, data: bytes) -> None:
        pointer, length = self._bounds(pointer, len(data))
        self.memory[pointer : pointer + length] = data

    def write_u32(self, pointer: int, value: int) -> None:
        self.write(pointer, value.to_bytes(4, "little"))

    def check_out(self, out_pointer: int, out_length_pointer: int) -> int:
        capacity = self.read_u32(out_length_pointer)
        self._bounds(out_pointer, capacity)
        return capacity

    def put_out(self, out_pointer: int, out_length_pointer: int, data: bytes) -> int:
        capacity = self.check_out(out_pointer, out_length_pointer)
        self.write_u32(out_length_pointer, len(data))
        if len(data) > capacity:
            raise HostcallFault(Errno.ENOSPC)
        self.write(out_pointer, data)
        return len(data)

    def sleep(self, seconds: float | None) -> None:
        self.slept_s.append(seconds)

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await_only(work())

    def serve(self, work: Callable[[OnThread[Any]], Coroutine[Any, Any, T]]) -> T:
        return await_only(work(greenlet_spawn))

    def call_table(self, index: int, *args: int) -> int:
        if index not in self.table:
            raise HostcallFault(Errno.EINVAL)
        return self.table[index](*args)

    def _bounds(self, pointer: int, length: int) -> tuple[int, int]:
        pointer, length = pointer & _U32_MAX, length & _U32_MAX
        if pointer + length > _MEMORY:
            raise HostcallFault(Errno.EFAULT)
        return pointer, length
