"""The caps: small enough to hold in your head. There are no per-file exceptions."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import PurePath

from tests.architecture.source_tree import ROOT, Function, modules

MAX_MODULE_LINES = 500
MAX_DIRECTORY_MODULES = 25
SMALL_MODULE_LINES = 50
MAX_SMALL_MODULES = 60
"""Most of them are packages that hold only their docstring."""
MAX_SMALL_CODE_MODULES = 6
"""Apart from those: a small module needs several users."""
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_COMPLEXITY = 10


def lines_without_docstring(function: Function) -> int:
    first = function.body[0]
    end = function.end_lineno or function.lineno
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return end - function.lineno + 1 - docstring


def parameters(function: Function) -> int:
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([each for each in named if each.arg not in {"self", "cls"}])


def test_no_module_is_longer_than_its_cap() -> None:
    lengths = {module.name: module.text.count("\n") for module in modules("src", "tests", "examples")}

    assert {name: lines for name, lines in lengths.items() if lines > MAX_MODULE_LINES} == {}


def test_no_directory_holds_more_modules_than_its_cap() -> None:
    counts = Counter(str(PurePath(module.name).parent) for module in modules("src"))

    assert {name: count for name, count in counts.items() if count > MAX_DIRECTORY_MODULES} == {}


def test_few_modules_are_small() -> None:
    small = [module.name for module in modules("src") if module.text.count("\n") < SMALL_MODULE_LINES]
    code = [name for name in small if not name.endswith("__init__.py")]

    assert len(small) <= MAX_SMALL_MODULES, small
    assert len(code) <= MAX_SMALL_CODE_MODULES, code


def test_no_function_is_longer_than_its_cap() -> None:
    lengths = {
        f"{module.name}:{function.name}": lines_without_docstring(function)
        for module in modules("src", "tests", "examples")
        for function in module.functions()
    }

    assert {name: lines for name, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_no_function_takes_more_parameters_than_its_cap() -> None:
    counts = {
        f"{module.name}:{function.name}": parameters(function)
        for module in modules("src", "examples")
        for function in module.functions()
    }

    assert {name: count for name, count in counts.items() if count > MAX_PARAMETERS} == {}


def test_no_function_is_more_complex_than_its_cap() -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--ignore-noqa"]
    rule = ["--select", "C901", "--config", f"lint.mccabe.max-complexity={MAX_COMPLEXITY}"]

    checked = subprocess.run(
        [*ruff, *rule, "src", "tests", "examples"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stdout) == (0, "All checks passed!\n")
