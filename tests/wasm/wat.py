"""Guests written as WebAssembly text: compiled here, run in real slots."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from wasmtime import Module, wat2wasm

from toolgate.model.invocations import InvocationResult
from toolgate.model.tasks import Workload, WorkloadLimits
from toolgate.wasm.abi import SPEAR, HostFunction
from toolgate.wasm.compiler import new_engine
from toolgate.wasm.run import GuestJob, GuestRun
from toolgate.wasm.slots import Slots

C = TypeVar("C")

LIMITS = WorkloadLimits(wall_clock_ms=60_000)
IDLE = '(module (memory (export "memory") 1) (func (export "_start")))'
SPIN = '(module (memory (export "memory") 1) (func (export "_start") (loop $again (br $again))))'
TRAP = '(module (memory (export "memory") 1) (func (export "_start") unreachable))'


def compiled(wat_text: str, tmp_path: Path) -> Path:
    """The compiled file of a module; its name is the module's hash."""
    binary = wat2wasm(wat_text)
    path = tmp_path / f"{hashlib.sha256(binary).hexdigest()}.cwasm"
    if not path.exists():
        path.write_bytes(Module(new_engine(), bytes(binary)).serialize())
    return path


def job(
    module: Path,
    context: C,
    *,
    limits: WorkloadLimits = LIMITS,
    args: tuple[str, ...] = ("task",),
    env: Mapping[str, str] | None = None,
    input_: bytes = b"",
) -> GuestJob[C]:
    name, *rest = args
    workload = Workload(module=module.stem, args=tuple(rest), env=env or {}, limits=limits)
    return GuestJob(workload=workload, compiled=module, name=name, input=input_, context=context)


def spear(name: str, params: str, result: str, call: Callable[..., int | None]) -> HostFunction[Any]:
    """A function for a test."""
    return HostFunction(SPEAR, name, params, result, call)


async def run_wat(
    wat_text: str,
    tmp_path: Path,
    *,
    functions: Sequence[HostFunction[Any]] = (),
    limits: WorkloadLimits = LIMITS,
    context: Any = None,
    **given: Any,
) -> InvocationResult:
    """Run one guest in slots of its own; the host was at no fault."""
    async with Slots(functions, max_guests=1) as slots:
        ending = await slots.run(GuestRun(job(compiled(wat_text, tmp_path), context, limits=limits, **given)))
        assert slots.host_faults == 0
    return ending
