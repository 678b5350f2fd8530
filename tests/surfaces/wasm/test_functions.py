"""The functions of the host are those that modules are checked by, each with its type."""

import pytest

from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi import ABI_SIGNATURES

MCP_FUNCTIONS = {
    "mcp_open": ("ii", "i"),
    "mcp_list_tools": ("iii", "i"),
    "mcp_call_tool": ("iiiiiii", "i"),
    "mcp_close": ("i", "i"),
    "mcp_registry_list": ("ii", "i"),
    "mcp_registry_get": ("iiii", "i"),
}
"""Those of SPEAR's design, for a module that was compiled against it. None of them writes to the registry."""


def test_the_functions_and_the_table_of_their_types_agree() -> None:
    functions = {(one.module, one.name): (one.params, one.result) for one in ALL_FUNCTIONS}

    assert functions == ABI_SIGNATURES
    assert len(functions) == len(ALL_FUNCTIONS)


@pytest.mark.requirement("002-042", "002-098")
def test_the_functions_for_mcp_are_those_of_spear_and_no_others() -> None:
    found = {name: type_ for (module, name), type_ in ABI_SIGNATURES.items() if name.startswith("mcp_")}

    assert found == MCP_FUNCTIONS
