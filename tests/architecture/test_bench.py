"""Benchmarks are run by hand. They must not lag behind the code they measure."""

import ast
import importlib.util
from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import Module, modules


def imported_names(module: Module) -> Iterator[tuple[str, str]]:
    """The names that `module` imports from the product and its tests, with their modules."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"toolgate", "tests"}:
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


BENCHMARKS = [module for module in modules("bench") if any(imported_names(module))]


@pytest.mark.parametrize("module", BENCHMARKS, ids=lambda module: str(module.name))
def test_a_benchmark_imports_names_that_exist(module: Module) -> None:
    missing = [
        f"{source}.{name}"
        for source, name in imported_names(module)
        if not hasattr(importlib.import_module(source), name) and not is_module(f"{source}.{name}")
    ]

    assert missing == []
