"""All functions that guests may import, in one table."""

from typing import Any, Final

from toolgate.surfaces.wasm.chat_calls import CHAT_FUNCTIONS
from toolgate.surfaces.wasm.descriptors import DESCRIPTOR_FUNCTIONS
from toolgate.surfaces.wasm.mcp_calls import MCP_FUNCTIONS
from toolgate.wasm.abi import HostFunction
from toolgate.wasm.basics import BASIC_FUNCTIONS
from toolgate.wasm.wasi import WASI_FUNCTIONS

ALL_FUNCTIONS: Final[tuple[HostFunction[Any], ...]] = (
    *WASI_FUNCTIONS,
    *BASIC_FUNCTIONS,
    *CHAT_FUNCTIONS,
    *MCP_FUNCTIONS,
    *DESCRIPTOR_FUNCTIONS,
)
