"""Modules that are imported by name: one list has them all, and the layers hold for them, too."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import PurePath
from typing import Any

import grimp
import pytest

from tests.architecture.source_tree import ROOT, Module, modules
from toolgate.lazy_modules import LAZY_MODULES, load_lazily

LIST = "src/toolgate/lazy_modules.py"
IMPORTERS = {"import_module", "__import__", "exec_module", "run_module", "run_path"}
OPTIONAL = {"toolgate.gateway.search.semantic"}
"""Need an extra that may not be installed."""


def name_of(module: Module) -> str:
    parts = PurePath(module.name).with_suffix("").parts[1:]
    return ".".join(parts).removesuffix(".__init__")


def calls(module: Module) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))


def loaded_by(module: Module) -> Iterator[str]:
    """The modules that `module` loads by name; a pattern for a name that is put together."""
    for call in calls(module):
        if ast.unparse(call.func) == "load_lazily":
            yield from names_in(call.args[0])
        elif any(isinstance(one, ast.Name) and one.id == "load_lazily" for one in call.args):
            yield from names_in(call.args[-1])


def names_in(argument: ast.expr) -> list[str]:
    match argument:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.JoinedStr(values=[ast.Constant(value=str(prefix)), *_]):
            return [name for name in LAZY_MODULES if name.startswith(prefix)]
    raise AssertionError(f"not a name that can be looked up: {ast.unparse(argument)}")


@cache
def lazy_edges() -> frozenset[tuple[str, str]]:
    return frozenset(
        (name_of(module), name)
        for module in modules("src")
        if module.name != LIST
        for name in loaded_by(module)
    )


@pytest.mark.parametrize("name", sorted(LAZY_MODULES.keys() - OPTIONAL))
def test_every_lazy_module_can_be_loaded(name: str) -> None:
    assert load_lazily(name) is import_module(name)


def test_no_module_is_loaded_by_name_that_is_not_in_the_list() -> None:
    with pytest.raises(AssertionError, match="is not declared"):
        load_lazily("toolgate.settings")


def test_the_list_names_what_is_loaded_and_nothing_else() -> None:
    assert {name for _, name in lazy_edges()} == LAZY_MODULES.keys()


def test_no_other_module_of_the_product_imports_by_name() -> None:
    importing = {
        f"{module.name}: {ast.unparse(call.func)}"
        for module in modules("src")
        if module.name != LIST
        for call in calls(module)
        if ast.unparse(call.func).rpartition(".")[2] in IMPORTERS
    }

    assert importing == set()


def test_the_layers_hold_for_lazy_modules_too() -> None:
    graph = grimp.build_graph("toolgate")
    for importer, imported in lazy_edges():
        graph.add_import(importer=importer, imported=imported)

    illegal = chain.from_iterable(
        graph.find_illegal_dependencies_for_layers(
            layers=[layer_of(one) for one in contract["layers"]], containers=set(contract["containers"])
        )
        for contract in layer_contracts()
    )

    assert [f"{one.importer} -> {one.imported}" for one in illegal] == []


def layer_contracts() -> Iterator[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    yield from (one for one in settings["contracts"] if one["type"] == "layers")


def layer_of(text: str) -> grimp.Layer:
    """`a | b` are independent of each other; `a : b` are not."""
    mark = "|" if "|" in text else ":"
    names = (name.strip().strip("()") for name in text.split(mark))
    return grimp.Layer(*names, independent=mark == "|")
