"""The program that compiles a module: `python -I -m toolgate.wasm.compiler SOURCE TARGET PARENT LIMITS`.

It is a child process, because an untrusted module may make the compiler run forever or use all memory. It
sets its limits before it reads the module, the kernel enforces them, and it ends with its parent. It prints
one JSON object: the facts of the module, a problem of the module (`problem`), or of the disk (`failed`). It
imports as little as possible, to start fast. The slots that run guests get their engines from here, too:
wasmtime rejects code that was compiled with other options.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from wasmtime import Config, Engine, FuncType, Module, WasmtimeError

MAX_STACK_BYTES: Final = 512 * 1024
"""A guest's stack: wasmtime's default. The thread's is eight times larger, for the host's frames below it."""

_OPTIONS: Final[dict[str, bool | int | str]] = {
    "consume_fuel": True,
    "epoch_interruption": True,
    "max_wasm_stack": MAX_STACK_BYTES,
    "parallel_compilation": False,  # the compiling child leaves a processor to the node
    # Address space for each guest, as much as a guest may use by default; wasmtime's default is 4 GiB. A
    # larger memory moves when it grows.
    "memory_reservation": 64 * 1024 * 1024,
    "memory_reservation_for_growth": 64 * 1024 * 1024,
    "memory_guard_size": 65_536,
    # One 32-bit memory, to which the pointers of hostcalls refer. No second thread, and no feature that
    # allocates outside a store's limits.
    "wasm_threads": False,
    "shared_memory": False,
    "wasm_memory64": False,
    "wasm_multi_memory": False,
    "wasm_exceptions": False,
    "wasm_function_references": False,
    "wasm_gc": False,
    "gc_support": False,
}
CONFIG_DIGEST: Final = f"{zlib.crc32(repr(sorted(_OPTIONS.items())).encode()):08x}"
"""Digest of the options, which is part of the path of compiled modules."""
MAX_PROBLEM: Final = 2_000  # characters of wasmtime's message, which may quote the module
_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_MAGIC: Final = b"\0asm"
_CORE: Final = b"\1\0\0\0"
_COMPONENT: Final = b"\x0d\0\1\0"
_COUNTED: Final = {2: "imports", 3: "functions", 7: "exports"}
"""Sections that start with the number of their entries."""
_LETTERS: Final = {"i32": "i", "i64": "I"}

Facts = dict[str, object]
Limits = Mapping[str, int]
"""`CompileLimits` of the parent, by field."""


class ModuleRefused(Exception):
    """The module is invalid, or exceeds a limit."""


def new_engine() -> Engine:
    config = Config()  # an engine consumes its configuration
    for name, value in _OPTIONS.items():
        setattr(config, name, value)
    return Engine(config)


def confine(parent: int, limits: Limits) -> None:
    """Apply the limits, end with `parent`, and be the first to be killed if memory is short."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel watched it
        os._exit(1)
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["compiled_bytes"]),
    ):
        resource.setrlimit(limit, (most, most))
    os.nice(10)
    with suppress(OSError):  # /proc may be missing
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def compile_module(source: str, target: str, limits: Limits) -> Facts:
    """Check the file `source`, and compile it into a new file `target` unless that is empty.

    Raises ModuleRefused.
    """
    wasm = Path(source).read_bytes()
    check_counts(wasm, limits)
    try:
        module = Module(new_engine(), wasm)
        compiled = module.serialize()
    except WasmtimeError as exc:
        # The innermost cause, on one line: the text around it has no further information.
        cause = str(exc).rpartition("Caused by:")[2]
        raise ModuleRefused(" ".join(cause.split())[:MAX_PROBLEM]) from exc
    if target:
        write_file(target, compiled, limits["compiled_bytes"])
    return {
        "size": len(wasm),
        "imports": [[one.module, one.name or "", _describe_type(one.type)] for one in module.imports],
        "exports": [[one.name, _describe_type(one.type)] for one in module.exports],
    }


def write_file(path: str, content: bytes | bytearray, most: int) -> None:
    """Write a new private file durably. Raises ModuleRefused."""
    if len(content) > most:
        raise ModuleRefused(f"the compiled module has {len(content)} bytes, and the limit is {most}")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def check_counts(wasm: bytes, limits: Limits) -> None:
    """Raises ModuleRefused if `wasm` is not a core module, or exceeds a limit of its sections."""
    if not wasm.startswith(_MAGIC):
        raise ModuleRefused("the file is not WebAssembly: it does not begin with `\\0asm`")
    if wasm[4:8] == _COMPONENT:
        raise ModuleRefused("the file is a component, not a core module: build it for WASI preview 1")
    if wasm[4:8] != _CORE:
        raise ModuleRefused("the module's WebAssembly version is not 1")
    for section, start, end in _iter_sections(wasm):
        if section in _COUNTED:
            name = _COUNTED[section]
            count, _ = _read_leb128(wasm, start, end)
            if count > limits[name]:
                raise ModuleRefused(f"the module has {count} {name}, and the limit is {limits[name]}")


def _iter_sections(wasm: bytes) -> Iterator[tuple[int, int, int]]:
    """The id, start and end of each section. wasmtime reports truncated ones."""
    at = 8
    while at < len(wasm):
        size, start = _read_leb128(wasm, at + 1, len(wasm))
        yield wasm[at], start, min(start + size, len(wasm))
        at = start + size


def _read_leb128(wasm: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of up to 32 bits, and the position after it."""
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


def _describe_type(found: object) -> str:
    """A type in the notation of the table of signatures."""
    if not isinstance(found, FuncType):
        return type(found).__name__
    sides = (found.params, found.results)
    return ">".join("".join(_LETTERS.get(str(one), "?") for one in side) for side in sides)


def main() -> None:
    source, target, parent, limits_json = sys.argv[1:]
    limits: Limits = json.loads(limits_json)
    confine(int(parent), limits)
    try:
        output: Facts = compile_module(source, target, limits)
    except ModuleRefused as exc:
        output = {"problem": str(exc)}
    except MemoryError:
        os.abort()  # as wasmtime does
    except OSError as exc:
        output = {"failed": exc.strerror}
    sys.stdout.write(json.dumps(output))


if __name__ == "__main__":
    main()
