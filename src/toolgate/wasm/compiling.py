"""Modules checked and compiled: never in this process, but by `compiler`, a child that is held to limits.

One at a time, as it is the processors' work; others wait for their turn, up to a number. What a stranger's
module can do to the compiler ends with that child, and is said as what is wrong with the module.
"""

import asyncio
import difflib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from toolgate.errors import InvalidModule, QueueFull, StorageFailed, ToolgateError
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.wasm.abi import SPEAR
from toolgate.wasm.compile_limits import MAX_CPU_S, MAX_MEMORY_BYTES
from toolgate.wasm.signatures import ABI_SIGNATURES

DEADLINE_S: Final = 300.0
"""Of one compilation by the clock. Its child, which makes way for others, may work `MAX_CPU_S` of them."""
MAX_WAITING: Final = 64
"""For their turn; more are refused."""
QUEUE_TIMEOUT_S: Final = 300.0
"""How long one waits for its turn."""
MAX_OUTPUT_BYTES: Final = 4 * 1024 * 1024
"""Of what the child prints: a module's names are its own."""
MAX_NAMED: Final = 20
"""Problems of one kind in a message."""
MAX_NAME: Final = 100

_TYPES: Final = {"i": "i32", "I": "i64"}
_ENTRY: Final = "_start"
_SPEAR_ONLY: Final = ("user_stream_", "mic_", "rtasr_")
"""Functions that SPEAR's hosts have and Toolgate has not: streams of users, and audio."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """What a module that can be run here is made of."""

    size: int
    imports: tuple[tuple[str, str], ...]
    exports: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """What is likely not meant, though it can be run."""


class _CompileQueue:
    """One at a time, and not too many behind it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        if self._waiting >= MAX_WAITING:
            raise _queue_full()
        self._waiting += 1
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_S):
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
"""A process has one event loop; whoever compiles in it takes turns, uploads and runs alike."""


async def check_module(source: Path) -> ModuleFacts:
    """Whether it can be compiled and linked here. Raises InvalidModule, QueueFull."""
    return await compile_module(source, None)


async def compile_module(source: Path, target: Path | None) -> ModuleFacts:
    """Compile it into a new file, or none if that is None. Raises InvalidModule, QueueFull, StorageFailed."""
    size = (await asyncio.to_thread(source.stat)).st_size
    if size > MAX_MODULE_BYTES:
        raise InvalidModule(f"it has {size} bytes, and may have {MAX_MODULE_BYTES}")
    async with _QUEUES.setdefault(asyncio.get_running_loop(), _CompileQueue()).take():
        said = await _run_compiler(str(source), str(target or ""))
    if "problem" in said:
        raise InvalidModule(said["problem"])
    if "failed" in said:
        raise StorageFailed(f"the compiled module cannot be kept: {str(said['failed']).lower()}")
    return _check_facts(said)


async def _run_compiler(source: str, target: str) -> Mapping[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-m", "toolgate.wasm.compiler", source, target, str(os.getpid())),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            said, complaint = await asyncio.gather(
                _read_bounded(process.stdout, MAX_OUTPUT_BYTES), _read_bounded(process.stderr, 4096)
            )
            code = await process.wait()
    except TimeoutError as exc:
        raise _over_limits() from exc
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _parse_output(code, said, complaint)


async def _read_bounded(stream: asyncio.StreamReader, most: int) -> bytes:
    """All that comes, and of that the first bytes: who writes is not to wait for us."""
    kept = bytearray()
    while piece := await stream.read(65_536):
        kept += piece[: most - len(kept)]
    return bytes(kept)


def _parse_output(code: int, said: bytes, complaint: bytes) -> Mapping[str, Any]:
    if code < 0:
        raise _over_limits()
    try:
        parsed: Mapping[str, Any] = json.loads(said)
    except ValueError as exc:
        _log.error("the compiler of modules failed: %s", complaint.decode(errors="replace"))
        raise ToolgateError("the module could not be compiled: the compiler failed") from exc
    return parsed


def _check_facts(said: Mapping[str, Any]) -> ModuleFacts:
    """The facts. Raises InvalidModule where they are not those of a module that can be run."""
    exports = dict(said["exports"])
    problems = [*_entry_problems(exports), *_import_problems(said["imports"])]
    if problems:
        raise InvalidModule("; ".join(problems))
    has_memory = exports.get("memory") == "MemoryType"
    return ModuleFacts(
        size=said["size"],
        imports=tuple((module, name) for module, name, _ in said["imports"]),
        exports=tuple(exports),
        warnings=() if has_memory else ("it exports no `memory`: calls cannot read or write anything of it",),
    )


def _entry_problems(exports: Mapping[str, str]) -> Iterable[str]:
    found = exports.get(_ENTRY)
    if found is None:
        yield f"it exports no function `{_ENTRY}`: build it as a command, not as a library"
    elif found != ">":
        yield f"its `{_ENTRY}` is to be a function that takes nothing and gives nothing"


def _import_problems(imports: Iterable[tuple[str, str, str]]) -> Iterable[str]:
    unknown, wrong = [], []
    for module, name, kind in imports:
        signature = ABI_SIGNATURES.get((module, name))
        if signature is None:
            unknown.append((module, name))
        elif kind != ">".join(signature):
            wrong.append(f"`{module}.{name}` as {_render(kind)}, and it is {_render('>'.join(signature))}")
    if unknown:
        named = [_render_unknown(*one) for one in unknown[:MAX_NAMED]]
        yield f"it imports what is not here: {_join_names(named, len(unknown))}"
        if any(_is_spear_only(*one) for one in unknown):
            yield "Toolgate has no `user_stream_*`, `mic_*` and `rtasr_*` of SPEAR"
    if wrong:
        yield f"it imports {_join_names(wrong[:MAX_NAMED], len(wrong))}"


def _is_spear_only(module: str, name: str) -> bool:
    return module == SPEAR and name.startswith(_SPEAR_ONLY)


def _render_unknown(module: str, name: str) -> str:
    if _is_spear_only(module, name):
        return f"`{module}.{name[:MAX_NAME]}`"
    near = difflib.get_close_matches(name[:MAX_NAME], [known for _, known in ABI_SIGNATURES], n=1)
    meant = [f"{where}.{known}" for where, known in ABI_SIGNATURES if near == [known]]
    return f"`{module[:MAX_NAME]}.{name[:MAX_NAME]}`" + (f" (`{meant[0]}` is)" if meant else "")


def _render(kind: str) -> str:
    """A type as people write it."""
    params, is_function, result = kind.partition(">")
    if not is_function:
        return "no function"
    taken, given = (", ".join(_TYPES.get(one, "another type") for one in side) for side in (params, result))
    return f"({taken}) -> {given or '()'}"[: 2 * MAX_NAME]


def _join_names(named: list[str], total: int) -> str:
    rest = total - len(named)
    return ", ".join(named) + (f", and {rest} more" if rest else "")


def _queue_full() -> QueueFull:
    return QueueFull("as many modules wait to be compiled as may", hint="try again in a moment")


def _over_limits() -> InvalidModule:
    return InvalidModule(
        f"it takes more than {MAX_CPU_S} s or {MAX_MEMORY_BYTES >> 20} MiB of memory to compile",
        hint="make it smaller: build it for size, and without what it does not need",
    )
