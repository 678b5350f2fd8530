"""Imports point down, stand at the top of the file, and leave the pure packages pure."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import PurePath

import pytest

from tests.architecture.source_tree import ROOT, Module, modules, pure_modules

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "service", "base", "misc"}


def imported_packages(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.name} has a relative import"
            yield (node.module or "").partition(".")[0]


def test_the_import_contracts_are_kept() -> None:
    checked = subprocess.run(
        [str(PurePath(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout
    assert re.search(r"(\d+) kept, 0 broken", checked.stdout)


@pytest.mark.requirement("000-11")
def test_the_pure_packages_use_the_standard_library_and_msgspec_only() -> None:
    foreign = {
        f"{module.name} imports {package}"
        for module in pure_modules()
        for package in imported_packages(module)
        if package not in {*sys.stdlib_module_names, "msgspec", "toolgate"}
    }

    assert foreign == set()


def test_no_import_is_inside_a_function() -> None:
    inside = {
        f"{module.name}:{node.lineno}"
        for module in modules("src")
        for function in module.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }

    assert inside == set()


def test_no_module_has_a_name_that_can_hold_anything() -> None:
    named = [PurePath(module.name) for module in modules("src", "tests", "examples")]

    assert [str(path) for path in named if FORBIDDEN_NAMES & {path.stem, *path.parts}] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        module.name
        for module in modules("src", "tests", "examples")
        if module.tree.body and ast.get_docstring(module.tree) is None
    ]

    assert silent == []


def test_every_package_of_the_product_says_what_it_is_for() -> None:
    empty = [module.name for module in modules("src") if not module.tree.body]

    assert empty == []
