"""All functions that guests may import, in one table; and those that need nothing of the gateway."""

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from toolgate.model.invocations import MAX_LINE_BYTES, LogLevel
from toolgate.surfaces.wasm.chat_calls import CHAT_FUNCTIONS
from toolgate.surfaces.wasm.descriptors import DESCRIPTOR_FUNCTIONS
from toolgate.surfaces.wasm.mcp_calls import MCP_FUNCTIONS
from toolgate.wasm.abi import SPEAR, Guest, HostFunction
from toolgate.wasm.signatures import host_functions
from toolgate.wasm.wasi import WASI_FUNCTIONS

_LEVELS: Final[Mapping[int, LogLevel]] = {0: "trace", 1: "debug", 2: "info", 3: "warn", 4: "error"}


def _time_now_ms(_guest: Guest[Any]) -> int:
    return time.time_ns() // 1_000_000


def _wall_time_s(_guest: Guest[Any]) -> int:
    return time.time_ns() // 1_000_000_000


def _sleep_ms(guest: Guest[Any], duration_ms: int) -> None:
    guest.sleep(max(duration_ms, 0) / 1000)


def _random_i64(_guest: Guest[Any]) -> int:
    return int.from_bytes(os.urandom(8), signed=True)


def _log(guest: Guest[Any], level: int, pointer: int, length: int) -> int:
    text = guest.read(pointer, length, most=MAX_LINE_BYTES).decode("utf-8", "replace")
    guest.output.log(_LEVELS.get(level, "info"), text)
    return 0


BASIC_FUNCTIONS: Final[tuple[HostFunction[Any], ...]] = host_functions(
    SPEAR,
    {
        "time_now_ms": _time_now_ms,
        "wall_time_s": _wall_time_s,
        "sleep_ms": _sleep_ms,
        "random_i64": _random_i64,
        "log": _log,
    },
)


ALL_FUNCTIONS: Final[tuple[HostFunction[Any], ...]] = (
    *WASI_FUNCTIONS,
    *BASIC_FUNCTIONS,
    *CHAT_FUNCTIONS,
    *MCP_FUNCTIONS,
    *DESCRIPTOR_FUNCTIONS,
)
