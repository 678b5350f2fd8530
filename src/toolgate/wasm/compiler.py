"""The program that compiles a module: `python -I -m toolgate.wasm.compiler IN OUT PARENT`.

A child of its own, because what it reads is a stranger's and may be made to take for ever and all memory: it
limits itself before it looks, the kernel holds it to that, and it ends with its parent. It prints one object:
the facts of the module, what is wrong with it (`problem`), or with the disk (`failed`). It imports as little
as it can, to be up at once.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from wasmtime import ExportType, FuncType, ImportType, Module, WasmtimeError

from toolgate.wasm.compile_limits import (
    MAX_COMPILED_BYTES,
    MAX_CPU_S,
    MAX_EXPORTS,
    MAX_FUNCTIONS,
    MAX_IMPORTS,
    MAX_MEMORY_BYTES,
)
from toolgate.wasm.engine import new_engine

MAX_PROBLEM: Final = 2_000

_PR_SET_PDEATHSIG: Final = 1
_MAGIC: Final = b"\0asm"
_CORE: Final = b"\1\0\0\0"
_COMPONENT: Final = b"\x0d\0\1\0"
_COUNTED: Final = {2: ("imports", MAX_IMPORTS), 3: ("functions", MAX_FUNCTIONS), 7: ("exports", MAX_EXPORTS)}
"""Sections that begin with how many they hold."""
_LETTERS: Final = {"i32": "i", "i64": "I"}

Facts = dict[str, object]


class ModuleRefused(Exception):
    """What is wrong with the module."""


def confine(parent: int) -> None:
    """Take no more than the limits here, end with `parent`, and be the first to go where memory is short."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before it was watched
        os._exit(1)
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, MAX_COMPILED_BYTES),
    ):
        resource.setrlimit(limit, (most, most))
    os.nice(10)
    with suppress(OSError):  # where nothing is mounted there
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def compile_module(source: str, target: str) -> Facts:
    """Compile the file `source` into a new one, `target`, or into none if that is empty. Raises Refused."""
    wasm = Path(source).read_bytes()
    check_counts(wasm)
    try:
        module = Module(new_engine(), wasm)
        compiled = module.serialize()
    except WasmtimeError as exc:
        raise ModuleRefused(_find_cause(exc)) from exc
    if target:
        write_file(target, compiled)
    return {
        "size": len(wasm),
        "imports": [_describe_import(one) for one in module.imports],
        "exports": [_describe_export(one) for one in module.exports],
    }


def _find_cause(error: WasmtimeError) -> str:
    """The innermost, on one line: what stands around it says only that there was an error."""
    cause = str(error).rpartition("Caused by:")[2]
    return " ".join(cause.split())[:MAX_PROBLEM]


def write_file(path: str, content: bytes | bytearray) -> None:
    """A new file of our own, on the disk when this returns. Raises Refused."""
    if len(content) > MAX_COMPILED_BYTES:
        raise ModuleRefused(
            f"it has {len(content)} bytes when it is compiled, and may have {MAX_COMPILED_BYTES}"
        )
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def check_counts(wasm: bytes) -> None:
    """Raises Refused where it is no core module, or has more of something than can be compiled in time."""
    if not wasm.startswith(_MAGIC):
        raise ModuleRefused("it is not WebAssembly: it does not begin with `\\0asm`")
    if wasm[4:8] == _COMPONENT:
        raise ModuleRefused("it is a component, not a core module: build it for WASI preview 1")
    if wasm[4:8] != _CORE:
        raise ModuleRefused("it is WebAssembly of another version than 1")
    for section, start, end in _iter_sections(wasm):
        if section in _COUNTED:
            name, most = _COUNTED[section]
            count, _ = _read_leb128(wasm, start, end)
            if count > most:
                raise ModuleRefused(f"it has {count} {name}, and may have {most}")


def _iter_sections(wasm: bytes) -> Iterator[tuple[int, int, int]]:
    """The id, start and end of each. What is cut short is left to wasmtime to find words for."""
    at = 8
    while at < len(wasm):
        size, start = _read_leb128(wasm, at + 1, len(wasm))
        yield wasm[at], start, min(start + size, len(wasm))
        at = start + size


def _read_leb128(wasm: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of up to 32 bits as LEB128 has it, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= end:
            break
        byte = wasm[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, at


def _describe_import(found: ImportType) -> list[str]:
    """Its module, its name, and its type as the table of the ABI writes it."""
    return [found.module, found.name or "", _describe_type(found.type)]


def _describe_export(found: ExportType) -> list[str]:
    return [found.name, _describe_type(found.type)]


def _describe_type(found: object) -> str:
    if not isinstance(found, FuncType):
        return type(found).__name__
    params, results = (
        "".join(_LETTERS.get(str(one), "?") for one in side) for side in (found.params, found.results)
    )
    return f"{params}>{results}"


def main() -> None:
    source, target, parent = sys.argv[1:]
    confine(int(parent))
    try:
        said: Facts = compile_module(source, target)
    except ModuleRefused as exc:
        said = {"problem": str(exc)}
    except MemoryError:
        os.abort()  # as wasmtime does
    except OSError as exc:
        said = {"failed": exc.strerror}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
