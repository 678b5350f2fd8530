"""The one way wasmtime is set up: in the slots that run guests, and in the program that compiles for them.

Code that was compiled under other options is refused when it is loaded, and is looked for elsewhere: the
digest of the options stands in the path of what is compiled. It must stay small: the compiler imports it.
"""

import zlib
from typing import Final

from wasmtime import Config, Engine

MAX_STACK_BYTES: Final = 512 * 1024

_OPTIONS: Final[dict[str, bool | int | str]] = {
    "consume_fuel": True,
    "epoch_interruption": True,
    "max_wasm_stack": MAX_STACK_BYTES,
    "parallel_compilation": False,  # the child that compiles is to leave a processor to the node
    # Of address space, for each guest; wasmtime's own would be 4 GiB. As much as a guest may use by default:
    # one that may use more is moved when it grows.
    "memory_reservation": 64 * 1024 * 1024,
    "memory_reservation_for_growth": 64 * 1024 * 1024,
    "memory_guard_size": 65_536,
    # One memory of 32 bits: what the calls' pointers mean. No second thread, and nothing that allocates
    # beside the limits of a store.
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


def engine_config() -> Config:
    """A configuration of its own: an engine takes its configuration away."""
    config = Config()
    for name, value in _OPTIONS.items():
        setattr(config, name, value)
    return config


def new_engine() -> Engine:
    """An engine as all are."""
    return Engine(engine_config())
