"""Guests as `make guests` builds them, and programs of a test that the same compiler builds."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from wasmtime import FuncType, ImportType, Module

from toolgate.wasm.abi import Signature
from toolgate.wasm.compiler import new_engine

ROOT: Final = Path(__file__).parents[2]
BUILT: Final = ROOT / "build" / "guests"
EXAMPLES: Final = ("chat_with_tool", "mcp_direct", "summarize", "what_time")
_TYPES: Final = {"i32": "i", "i64": "I"}


def example(name: str) -> Path:
    """The module of an example; fails where it has not been built."""
    file = BUILT / f"{name}.wasm"
    if not file.exists():
        pytest.fail(f"there is no `{file.name}`: `make test` builds it")
    return file


def build(source: Path, *options: str) -> Path:
    """Compile a C program of a test, next to its source."""
    module = source.with_suffix(".wasm")
    cache = str(BUILT.parent / "zig")
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-Os",
    ]
    subprocess.run(
        [*command, f"-I{ROOT / 'sdk' / 'c'}", *options, "-o", str(module), str(source)],
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
        check=True,
        timeout=300,
    )
    return module


def compiled(module: Path, directory: Path) -> Path:
    """As slots take it."""
    binary = module.read_bytes()
    file = directory / f"{hashlib.sha256(binary).hexdigest()}.cwasm"
    file.write_bytes(Module(new_engine(), binary).serialize())
    return file


def imports(module: Path) -> dict[tuple[str, str], Signature]:
    """What a module wants of its host, by module and name."""
    wanted = Module(new_engine(), module.read_bytes()).imports
    return {(one.module, str(one.name)): _signature(one) for one in wanted}


def _signature(wanted: ImportType) -> Signature:
    assert isinstance(wanted.type, FuncType)  # guests have memory and tables of their own
    params, results = (
        "".join(_TYPES[str(kind)] for kind in kinds) for kinds in (wanted.type.params, wanted.type.results)
    )
    return params, results
