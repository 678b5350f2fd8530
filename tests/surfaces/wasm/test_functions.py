"""The functions of the host are those that modules are checked by, each with its type."""

import pytest

from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi_table import ABI_SIGNATURES


@pytest.mark.requirement("002-042", "002-098")
def test_the_functions_and_the_table_of_their_types_agree() -> None:
    functions = {(one.module, one.name): (one.params, one.result) for one in ALL_FUNCTIONS}

    assert functions == ABI_SIGNATURES
    assert len(functions) == len(ALL_FUNCTIONS)
