"""Modules are checked and compiled in a child process, and what is wrong with them is said."""

import asyncio
import json
import os
import resource
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import anyio
import pytest
from wasmtime import Module, wat2wasm

from tests.wasm.bombs import EMPTY_BODY, MAGIC, functions, leb, nested, section
from tests.wasm.wat import IDLE
from toolgate.errors import InvalidModule, QueueFull, StorageFailed, ToolgateError
from toolgate.model.tasks import MAX_MODULE_BYTES
from toolgate.wasm.compiler import new_engine
from toolgate.wasm.compiling import LIMITS, CompileLimits, ModuleFacts, compile_module

pytestmark = pytest.mark.anyio

READY_S = 60


def module(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "module.wasm"
    path.write_bytes(content if isinstance(content, bytes) else bytes(wat2wasm(content)))
    return path


async def test_a_good_module_is_compiled_for_the_engine_that_runs_it(tmp_path: Path) -> None:
    wat = f"""(module
      (import "spear" "log" (func (param i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))
      {IDLE.removeprefix("(module")}"""
    target = tmp_path / "compiled"

    facts = await compile_module(module(tmp_path, wat), target)

    assert facts == ModuleFacts(
        size=len(wat2wasm(wat)),
        imports=("spear.log", "wasi_snapshot_preview1.clock_time_get"),
        exports=("memory", "_start"),
        warnings=(),
    )
    assert target.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in Module.deserialize_file(new_engine(), str(target)).exports] == [
        "memory",
        "_start",
    ]


async def test_a_module_without_memory_can_run_and_is_warned_of(tmp_path: Path) -> None:
    facts = await compile_module(module(tmp_path, '(module (func (export "_start")))'))

    assert facts.warnings == ("the module exports no `memory`: hostcalls cannot use it",)


async def test_every_unknown_import_is_named_with_what_may_be_meant_and_so_is_every_wrong_type(
    tmp_path: Path,
) -> None:
    wat = """(module
      (import "spear" "mcp_opne" (func (param i32 i32) (result i32)))
      (import "env" "memory" (memory 1))
      (import "env" "xyzzy" (func))
      (import "spear" "log" (func (param i32 f32)))
      (import "spear" "mcp_close" (global i32))
      (func (export "_start")))"""

    with pytest.raises(InvalidModule) as caught:
        await compile_module(module(tmp_path, wat))

    assert str(caught.value) == (
        "the module imports unknown functions: `spear.mcp_opne` (did you mean `spear.mcp_open`?),"
        " `env.memory`, `env.xyzzy`;"
        " the module imports `spear.log` as (i32, another type) -> () instead of (i32, i32, i32) -> i32,"
        " `spear.mcp_close` as something other than a function instead of (i32) -> i32"
    )


async def test_a_guest_that_needs_spears_streams_or_microphone_is_refused_by_the_names_of_its_imports(
    tmp_path: Path,
) -> None:
    wat = """(module
      (import "spear" "user_stream_open" (func (param i32 i32) (result i32)))
      (import "spear" "mic_create" (func (result i32)))
      (import "spear" "rtasr_create" (func (result i32)))
      (func (export "_start")))"""

    with pytest.raises(InvalidModule) as caught:
        await compile_module(module(tmp_path, wat))

    assert str(caught.value) == (
        "the module imports unknown functions:"
        " `spear.user_stream_open`, `spear.mic_create`, `spear.rtasr_create`;"
        " Toolgate does not support SPEAR's `user_stream_*`, `mic_*` and `rtasr_*`"
    )


START = '(func (export "_start"))'
PROBLEMS = {
    "no WebAssembly": (b"#!/bin/sh", "the file is not WebAssembly"),
    "nothing": (b"", "the file is not WebAssembly"),
    "a component": ("(component)", "the file is a component, not a core module"),
    "another version": (b"\0asm\2\0\0\0", "WebAssembly version is not 1"),
    "cut short": (MAGIC + b"\1\xff\xff", "unexpected end-of-file"),
    "two memories": (f"(module (memory 1) (memory 1) {START})", "multiple memories"),
    "64 bits": (f"(module (memory i64 1) {START})", "memory64 must be enabled"),
    "no entry": ('(module (memory (export "memory") 1))', "the module exports no function `_start`"),
    "an entry that takes something": ('(module (func (export "_start") (param i32)))', "without parameters"),
    "an entry that is no function": ('(module (memory (export "_start") 1))', "without parameters"),
}


@pytest.mark.parametrize(("content", "problem"), PROBLEMS.values(), ids=PROBLEMS)
async def test_a_module_that_cannot_run_is_refused_for_what_is_wrong(
    content: str | bytes, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidModule, match=problem):
        await compile_module(module(tmp_path, content))


async def test_imports_without_end_are_counted_not_listed(tmp_path: Path) -> None:
    wat = "(module " + "".join(f'(import "x" "{number}" (func))' for number in range(1_000)) + f"{START})"

    with pytest.raises(InvalidModule, match=r"`x\.19`, and 980 more") as caught:
        await compile_module(module(tmp_path, wat))

    assert len(str(caught.value)) < 2_000


BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "1e6 functions": (lambda: functions(1_000_000, EMPTY_BODY), "1000000 functions, and the limit is 100000"),
    "1e9 imports": (
        lambda: MAGIC + section(2, leb(1_000_000_000)),
        "1000000000 imports, and the limit is 1000",
    ),
    "2^32 exports": (lambda: MAGIC + section(7, leb(2**32 - 1)), "4294967295 exports, and the limit is 1000"),
    "3e6 blocks in blocks": (lambda: functions(1, nested(3_000_000)), "size count exceeds limit"),
    "50 MB": (lambda: bytes(50_000_000), f"50000000 bytes, and the limit is {MAX_MODULE_BYTES}"),
}


@pytest.mark.parametrize(("make", "problem"), BOMBS.values(), ids=BOMBS)
async def test_a_bomb_ends_in_a_refusal_and_this_process_does_not_grow(
    make: Callable[[], bytes], problem: str, tmp_path: Path
) -> None:
    """WAS-2"""
    path = module(tmp_path, make())
    before_kib = peak_kib(start_again=True)

    with pytest.raises(InvalidModule, match=problem):
        await compile_module(path)

    assert peak_kib() - before_kib < 4 * 1024


def peak_kib(*, start_again: bool = False) -> int:
    """The most memory that this process had."""
    if start_again:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


async def test_blocks_as_deep_as_may_be_compile(tmp_path: Path) -> None:
    facts = await compile_module(module(tmp_path, functions(1, nested(100_000))))

    assert facts.exports == ("_start",)


async def test_a_module_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    """WAS-2: the kernel refuses memory to the child, which does not survive it."""
    limits = CompileLimits(memory_bytes=120 * 1024 * 1024)

    with pytest.raises(InvalidModule, match="s or 1024 MiB to compile"):
        await compile_module(module(tmp_path, functions(100_000, EMPTY_BODY)), limits=limits)


async def test_a_module_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    """WAS-2"""
    with pytest.raises(InvalidModule, match="more than 60 s"):
        await compile_module(module(tmp_path, functions(100_000, EMPTY_BODY)), limits=CompileLimits(cpu_s=1))


def run_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\n{command}\n")
    interpreter.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(interpreter))


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A module that never comes: who opens it has begun to read it, and waits."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


async def opened(pipe: Path) -> BinaryIO:
    """The other end, once someone reads."""
    with anyio.fail_after(READY_S):
        return await asyncio.to_thread(pipe.open, "wb", 0)


PARENT = """import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-I", "-m", "toolgate.wasm.compiler", sys.argv[1], "", str(os.getpid()), sys.argv[2]]
)
print(child.pid, flush=True)
child.wait()
"""


async def test_the_child_is_held_to_its_limits_and_ends_with_its_parent(pipe: Path) -> None:
    limits_json = json.dumps(asdict(LIMITS))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, pipe, limits_json], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        with await opened(pipe):
            limits = [resource.prlimit(child, limit)[1] for limit in LIMITED]
            niceness = os.getpriority(os.PRIO_PROCESS, child)
            watch = os.pidfd_open(child)
            parent.kill()
            has_ended = select.select([watch], [], [], READY_S)[0] == [watch]
            os.close(watch)

    assert limits == [60, 1024 * 1024 * 1024, 256 * 1024 * 1024, 0]
    assert niceness >= 10
    assert has_ended


LIMITED = (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)


async def test_who_gives_up_leaves_no_child(pipe: Path) -> None:
    checking = asyncio.create_task(compile_module(pipe))
    with await opened(pipe) as end:
        checking.cancel()
        await asyncio.wait([checking], timeout=READY_S)

        assert checking.cancelled()
        with pytest.raises(BrokenPipeError):
            end.write(b"x")


async def test_a_child_that_takes_too_long_is_killed(pipe: Path) -> None:
    with pytest.raises(InvalidModule, match="more than 60 s"):
        await compile_module(pipe, limits=CompileLimits(deadline_s=0.05))


async def test_one_compiles_at_a_time_some_wait_and_more_are_refused(pipe: Path, tmp_path: Path) -> None:
    limits = CompileLimits(max_waiting=1)
    good = module(tmp_path, IDLE)
    first = asyncio.create_task(compile_module(pipe))
    with await opened(pipe):
        others = [asyncio.create_task(compile_module(good, limits=limits)) for _ in range(2)]
        refused, waiting = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED, timeout=READY_S)
    found = await asyncio.gather(first, *refused, *waiting, return_exceptions=True)

    assert [type(one) for one in found] == [InvalidModule, QueueFull, ModuleFacts]


async def test_what_cannot_be_written_is_no_fault_of_the_module(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="no such file or directory"):
        await compile_module(module(tmp_path, IDLE), tmp_path / "nowhere" / "compiled")


async def test_a_compiler_that_fails_is_our_fault_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_instead(tmp_path, monkeypatch, "echo no such module >&2; exit 1")

    with pytest.raises(ToolgateError) as caught:
        await compile_module(module(tmp_path, IDLE))

    assert caught.value.code == "internal"
    assert "no such module" in caplog.text
