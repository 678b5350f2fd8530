"""The table of all functions that guests may import, and the functions that do not need the gateway."""

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from toolgate.model.invocations import MAX_LINE_BYTES, LogLevel
from toolgate.surfaces.wasm import chat_calls, descriptors, mcp_calls
from toolgate.wasm.abi import SPEAR, HostFunction, host_functions
from toolgate.wasm.guest import Guest
from toolgate.wasm.wasi import WASI_FUNCTIONS

_LEVELS: Final[Mapping[int, LogLevel]] = {0: "trace", 1: "debug", 2: "info", 3: "warn", 4: "error"}


def sleep_ms(guest: Guest[Any], duration_ms: int) -> None:
    guest.sleep(max(duration_ms, 0) / 1000)


def log(guest: Guest[Any], level: int, pointer: int, length: int) -> int:
    text = guest.read(pointer, length, most=MAX_LINE_BYTES).decode("utf-8", "replace")
    guest.output.log(_LEVELS.get(level, "info"), text)
    return 0


_CALLS: Final = (sleep_ms, log, *chat_calls.CALLS, *mcp_calls.CALLS, *descriptors.CALLS)

ALL_FUNCTIONS: Final[tuple[HostFunction[Any], ...]] = (
    *WASI_FUNCTIONS,
    *host_functions(
        SPEAR,
        {
            "time_now_ms": lambda _guest: time.time_ns() // 1_000_000,
            "wall_time_s": lambda _guest: time.time_ns() // 1_000_000_000,
            "random_i64": lambda _guest: int.from_bytes(os.urandom(8), signed=True),
            **{call.__name__: call for call in _CALLS},
        },
    ),
)
