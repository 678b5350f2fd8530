"""Checks and compiles modules: never in this process, but in `compiler`, a child that is held to limits.

One at a time, since compiling takes the processors; others queue, up to a number. Whatever a stranger's
module does to the compiler ends with that child, and becomes an error of the module.
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
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from toolgate.errors import InvalidModule, QueueFull, StorageFailed, ToolgateError
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.wasm.abi import ABI_SIGNATURES, SPEAR

MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024  # of what the child prints: it includes the names in the module
MAX_NAMED: Final = 20  # problems of one kind in a message
MAX_NAME: Final = 100  # characters of a name in it: modules may name anything, of any length

_TYPES: Final = {"i": "i32", "I": "i64"}
_SPEAR_ONLY: Final = ("user_stream_", "mic_", "rtasr_")
"""Functions of SPEAR's hosts that Toolgate does not have: streams of users, and audio."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLimits:
    cpu_s: int = 60
    deadline_s: float = 300.0
    """Of one compilation by the clock. The child runs at low priority, so it may wait for most of that."""
    max_waiting: int = 64
    """In the queue; further ones are refused. At most one minute each, they wait for an hour at worst."""
    queue_timeout_s: float = 300.0
    """As long as one compilation may take: an upload waits for its response meanwhile."""
    memory_bytes: int = 1024 * 1024 * 1024
    """Of address space. A module of a hundred thousand small functions takes two thirds of it."""
    compiled_bytes: int = 256 * 1024 * 1024
    functions: int = 100_000
    """They take some 12 s."""
    imports: int = 1_000
    exports: int = 1_000
    """Each run goes through them before its deadline can end it: 50 ms, and four times that for twice as
    many."""


LIMITS: Final = CompileLimits()


class ModuleFacts(NamedTuple):
    """The imports and exports of a module that can run here."""

    size: int
    imports: tuple[tuple[str, str], ...]
    exports: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """What is probably a mistake, though the module can run."""


class _CompileQueue:
    """Compiles one at a time, with a bounded number waiting."""

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
    """Check that a module compiles and links here; compile it into a new file if `target` is given.

    Raises InvalidModule, QueueFull, StorageFailed.
    """
    size = (await asyncio.to_thread(source.stat)).st_size
    if size > MAX_MODULE_BYTES:
        raise InvalidModule(f"it has {size} bytes, and may have {MAX_MODULE_BYTES}")
    async with _QUEUES.setdefault(asyncio.get_running_loop(), _CompileQueue()).take(limits):
        output = await _run_compiler(str(source), str(target or ""), limits)
    if "problem" in output:
        raise InvalidModule(output["problem"])
    if "failed" in output:
        raise StorageFailed(f"the compiled module cannot be kept: {str(output['failed']).lower()}")
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
        _log.error("the compiler of modules failed: %s", errors.decode(errors="replace"))
        raise ToolgateError("the module could not be compiled: the compiler failed") from exc
    return parsed


async def _read_bounded(stream: asyncio.StreamReader, most: int) -> bytes:
    """Read to the end, so that the child never blocks, and keep the first bytes."""
    kept = bytearray()
    while piece := await stream.read(65_536):
        kept += piece[: most - len(kept)]
    return bytes(kept)


def _check_facts(output: Mapping[str, Any]) -> ModuleFacts:
    """Raises InvalidModule for a module that cannot run here."""
    exports = dict(output["exports"])
    problems = []
    if exports.get("_start") is None:
        problems.append("it exports no function `_start`: build it as a command, not as a library")
    elif exports["_start"] != ">":
        problems.append("its `_start` must be a function without parameters and result")
    problems += _import_problems(output["imports"])
    if problems:
        raise InvalidModule("; ".join(problems))
    has_memory = exports.get("memory") == "MemoryType"
    return ModuleFacts(
        size=output["size"],
        imports=tuple((module, name) for module, name, _ in output["imports"]),
        exports=tuple(exports),
        warnings=() if has_memory else ("it exports no `memory`: calls cannot read or write anything of it",),
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
            wrong.append(f"`{module}.{name}` as {_render(kind)}, and it is {_render('>'.join(signature))}")
    if unknown:
        yield f"it imports unknown functions: {_join_names(unknown)}"
        if is_of_spear:
            yield "Toolgate has no `user_stream_*`, `mic_*` and `rtasr_*` of SPEAR"
    if wrong:
        yield f"it imports {_join_names(wrong)}"


def _suggest_known(name: str) -> str:
    near = difflib.get_close_matches(name[:MAX_NAME], [known for _, known in ABI_SIGNATURES], n=1)
    meant = [f"{where}.{known}" for where, known in ABI_SIGNATURES if near == [known]]
    return f" (`{meant[0]}` is)" if meant else ""


def _render(kind: str) -> str:
    if ">" not in kind:
        return "no function"
    taken, returned = (", ".join(_TYPES.get(one, "another type") for one in side) for side in kind.split(">"))
    return f"({taken}) -> {returned or '()'}"[: 2 * MAX_NAME]


def _join_names(named: list[str]) -> str:
    rest = len(named) - MAX_NAMED
    return ", ".join(named[:MAX_NAMED]) + (f", and {rest} more" if rest > 0 else "")


def _queue_full() -> QueueFull:
    return QueueFull("too many modules wait to be compiled", hint="try again in a moment")


def _over_limits() -> InvalidModule:
    return InvalidModule(
        f"it takes more than {LIMITS.cpu_s} s or {LIMITS.memory_bytes >> 20} MiB of memory to compile",
        hint="make it smaller: build it for size, and without what it does not need",
    )
