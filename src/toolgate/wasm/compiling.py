"""Checks and compiles modules in `compiler`, a child process with limits, and never in this process.

It compiles one module at a time, because compiling uses the processors; a bounded number waits. Whatever an
untrusted module does to the compiler ends with that child, and becomes an error of the module.
"""

import asyncio
import difflib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from toolgate.errors import InvalidModule, QueueFull, StorageFailed, ToolgateError
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.wasm.abi import ABI_SIGNATURES, SPEAR

MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024  # of the child's output, which includes the names in the module
MAX_NAMED: Final = 20  # problems of one kind in a message
MAX_NAME: Final = 100  # characters of a name in a message: names in modules may have any length

_TYPES: Final = {"i": "i32", "I": "i64"}
_SPEAR_ONLY: Final = ("user_stream_", "mic_", "rtasr_")
"""Prefixes of SPEAR's host functions that Toolgate does not have: user streams and audio."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLimits:
    cpu_s: int = 60
    deadline_s: float = 300.0
    """Wall-clock time of one compilation. The child has low priority, so it may wait most of that time."""
    max_waiting: int = 64
    """Modules in the queue; further ones are rejected. With a minute each, the last waits an hour at most."""
    queue_timeout_s: float = 300.0
    """How long to wait in the queue: as long as one compilation, because an upload waits for its response."""
    memory_bytes: int = 1024 * 1024 * 1024
    """Address space. A module of a hundred thousand small functions uses two thirds of it."""
    compiled_bytes: int = 256 * 1024 * 1024
    functions: int = 100_000
    """This number takes about 12 s to compile."""
    imports: int = 1_000
    exports: int = 1_000
    """Each run processes them before its deadline can end it: 50 ms, and four times that for twice the
    number."""


LIMITS: Final = CompileLimits()


class ModuleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The imports and exports of a module that can run here."""

    size: int
    imports: tuple[str, ...]
    """The host functions that it imports: `module.name`."""
    exports: tuple[str, ...]
    warnings: tuple[str, ...]
    """Probable mistakes that do not prevent a run."""


class _CompileQueue:
    """Admits one compilation at a time, with a bounded number waiting."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def take(self, limits: CompileLimits) -> AsyncIterator[None]:
        if self._waiting >= limits.max_waiting:
            raise _queue_full()
        self._waiting += 1
        try:
            async with asyncio.timeout(limits.queue_timeout_s):
                await self._lock.acquire()
        except TimeoutError as exc:
            raise _queue_full() from exc
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()


_QUEUES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _CompileQueue]] = WeakKeyDictionary()
"""A process has one event loop: uploads and runs share its queue."""


async def compile_module(
    source: Path, target: Path | None = None, *, limits: CompileLimits = LIMITS
) -> ModuleFacts:
    """Check that a module compiles and links; compile it into a new file if `target` is given.

    Raises InvalidModule, QueueFull, StorageFailed.
    """
    size = (await asyncio.to_thread(source.stat)).st_size
    if size > MAX_MODULE_BYTES:
        raise InvalidModule(f"the module has {size} bytes, and the limit is {MAX_MODULE_BYTES}")
    async with _QUEUES.setdefault(asyncio.get_running_loop(), _CompileQueue()).take(limits):
        output = await _run_compiler(str(source), str(target or ""), limits)
    if "problem" in output:
        raise InvalidModule(output["problem"])
    if "failed" in output:
        raise StorageFailed(f"cannot store the compiled module: {str(output['failed']).lower()}")
    return _check_facts(output)


async def _run_compiler(source: str, target: str, limits: CompileLimits) -> Mapping[str, Any]:
    arguments = (source, target, str(os.getpid()), json.dumps(asdict(limits)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "toolgate.wasm.compiler", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(limits.deadline_s):
            output, errors = await asyncio.gather(
                _read_bounded(process.stdout, MAX_OUTPUT_BYTES), _read_bounded(process.stderr, 4096)
            )
            code = await process.wait()
    except TimeoutError as exc:
        raise _over_limits() from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code < 0:
        raise _over_limits()
    try:
        parsed: Mapping[str, Any] = json.loads(output)
    except ValueError as exc:
        _log.error("the module compiler failed: %s", errors.decode(errors="replace"))
        raise ToolgateError("cannot compile the module: the compiler failed") from exc
    return parsed


async def _read_bounded(stream: asyncio.StreamReader, most: int) -> bytes:
    """Read to the end, so that the child never blocks. Returns the first bytes."""
    kept = bytearray()
    while piece := await stream.read(65_536):
        kept += piece[: most - len(kept)]
    return bytes(kept)


def _check_facts(output: Mapping[str, Any]) -> ModuleFacts:
    """The facts of a module. Raises InvalidModule if it cannot run here."""
    exports = dict(output["exports"])
    problems = []
    if exports.get("_start") is None:
        problems.append("the module exports no function `_start`: build it as a command, not as a library")
    elif exports["_start"] != ">":
        problems.append("the module's `_start` must be a function without parameters and result")
    problems += _import_problems(output["imports"])
    if problems:
        raise InvalidModule("; ".join(problems))
    has_memory = exports.get("memory") == "MemoryType"
    return ModuleFacts(
        size=output["size"],
        imports=tuple(f"{module}.{name}" for module, name, _ in output["imports"]),
        exports=tuple(exports),
        warnings=() if has_memory else ("the module exports no `memory`: hostcalls cannot use it",),
    )


def _import_problems(imports: Iterable[tuple[str, str, str]]) -> Iterable[str]:
    unknown: list[str] = []
    wrong: list[str] = []
    is_of_spear = False
    for module, name, kind in imports:
        signature = ABI_SIGNATURES.get((module, name))
        if signature is None:
            shown = f"`{module[:MAX_NAME]}.{name[:MAX_NAME]}`"
            if module == SPEAR and name.startswith(_SPEAR_ONLY):
                is_of_spear = True
            elif len(unknown) < MAX_NAMED:
                shown += _suggest_known(name)
            unknown.append(shown)
        elif kind != ">".join(signature):
            right = _render(">".join(signature))
            wrong.append(f"`{module}.{name}` as {_render(kind)} instead of {right}")
    if unknown:
        yield f"the module imports unknown functions: {_join_names(unknown)}"
        if is_of_spear:
            yield "Toolgate does not support SPEAR's `user_stream_*`, `mic_*` and `rtasr_*`"
    if wrong:
        yield f"the module imports {_join_names(wrong)}"


def _suggest_known(name: str) -> str:
    near = difflib.get_close_matches(name[:MAX_NAME], [known for _, known in ABI_SIGNATURES], n=1)
    similar = [f"{where}.{known}" for where, known in ABI_SIGNATURES if near == [known]]
    return f" (did you mean `{similar[0]}`?)" if similar else ""


def _render(kind: str) -> str:
    if ">" not in kind:
        return "something other than a function"
    taken, returned = (", ".join(_TYPES.get(one, "another type") for one in side) for side in kind.split(">"))
    return f"({taken}) -> {returned or '()'}"[: 2 * MAX_NAME]


def _join_names(named: list[str]) -> str:
    rest = len(named) - MAX_NAMED
    return ", ".join(named[:MAX_NAMED]) + (f", and {rest} more" if rest > 0 else "")


def _queue_full() -> QueueFull:
    return QueueFull("too many modules are waiting for the compiler", hint="retry in a moment")


def _over_limits() -> InvalidModule:
    return InvalidModule(
        f"the module needs more than {LIMITS.cpu_s} s or {LIMITS.memory_bytes >> 20} MiB to compile",
        hint="make it smaller: build it for size, and remove unused code",
    )
