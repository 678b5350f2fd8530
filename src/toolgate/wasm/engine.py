"""The configuration of wasmtime, for the slots that run guests and for the program that compiles for them.

wasmtime rejects code that was compiled with other options, so the digest of the options is part of the path
of compiled modules. Must stay small: the compiler imports it.
"""

import zlib
from typing import Final

from wasmtime import Config, Engine

MAX_STACK_BYTES: Final = 512 * 1024
"""Of a guest. wasmtime's own default; the thread has eight times that, for the host's frames below it."""

_OPTIONS: Final[dict[str, bool | int | str]] = {
    "consume_fuel": True,
    "epoch_interruption": True,
    "max_wasm_stack": MAX_STACK_BYTES,
    "parallel_compilation": False,  # the compiling child leaves a processor to the node
    # Address space for each guest; wasmtime's default is 4 GiB. As much as a guest may use by default: the
    # memory of
    # one that may use more moves when it grows.
    "memory_reservation": 64 * 1024 * 1024,
    "memory_reservation_for_growth": 64 * 1024 * 1024,
    "memory_guard_size": 65_536,
    # One 32-bit memory, which the pointers of calls refer to. No second thread, and nothing that allocates
    # outside the
    # limits of a store.
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


def new_engine() -> Engine:
    """Make an engine with these options."""
    config = Config()  # an engine consumes its configuration
    for name, value in _OPTIONS.items():
        setattr(config, name, value)
    return Engine(config)
