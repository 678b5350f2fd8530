"""Habits that each cost someone a vulnerability, kept out of the product (SUP-2), and a few of taste."""

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from tests.architecture.source_tree import Module, modules

FORBIDDEN_PACKAGES = {"pickle", "marshal", "shelve", "yaml", "dill"}
# It takes the library's events and nothing that makes objects.
ALLOWED = {"src/toolgate/registry/interchange/yaml.py": ["import yaml"]}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen"}
FORBIDDEN_ARGUMENTS = {"shell", "follow_redirects", "verify"}
# A prefix of text is no confinement: `/data-old` starts with `/data`. Compare resolved paths by their parts.
PATHLIKE = re.compile(r"(?:^|[._(])(?:path|dir|directory|folder|file|resolved)\b(?!\")|str\(|as_posix|fspath")


def findings(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                imported = {alias.name.partition(".")[0] for alias in names}
                yield from (f"import {name}" for name in FORBIDDEN_PACKAGES & imported)
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in FORBIDDEN_PACKAGES:
                yield f"import {name}"
            case ast.Call():
                yield from call_findings(node)


def call_findings(call: ast.Call) -> Iterator[str]:
    called = ast.unparse(call.func)
    if called in FORBIDDEN_CALLS:
        yield f"{called}()"
    for keyword in call.keywords:
        value = getattr(keyword.value, "value", None)
        if keyword.arg in FORBIDDEN_ARGUMENTS and value is (keyword.arg != "verify"):
            yield f"{keyword.arg}={value}"
    if call.args and called.startswith("re.") and is_loosely_anchored(called, call.args[0]):
        yield f"{called}(…$), which a trailing newline passes: use fullmatch"
    if call.args and isinstance(call.func, ast.Attribute) and call.func.attr == "startswith":
        receiver, prefix = ast.unparse(call.func.value), ast.unparse(call.args[0])
        if PATHLIKE.search(receiver) and not prefix.strip("'\"").endswith("/"):
            yield f"{receiver}.startswith()"


def is_loosely_anchored(called: str, pattern: ast.expr) -> bool:
    text = ast.unparse(pattern).lstrip("rbf").strip("'\"")
    return text.endswith("$") and (text.startswith("^") or called == "re.match")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("import pickle", ["import pickle"], id="pickle"),
        pytest.param("from yaml import load", ["import yaml"], id="yaml"),
        pytest.param("run(a, shell=True)", ["shell=True"], id="shell"),
        pytest.param("eval(a)", ["eval()"], id="eval"),
        pytest.param("get(u, follow_redirects=True)", ["follow_redirects=True"], id="redirects"),
        pytest.param("get(u, verify=False)", ["verify=False"], id="certificates"),
        pytest.param(
            "re.match(r'a+$', t)",
            ["re.match(…$), which a trailing newline passes: use fullmatch"],
            id="match to the dollar",
        ),
        pytest.param(
            "re.compile('^a+$')",
            ["re.compile(…$), which a trailing newline passes: use fullmatch"],
            id="caret to dollar",
        ),
        pytest.param("str(path).startswith(root)", ["str(path).startswith()"], id="path prefix"),
        pytest.param("file.path.startswith('/data')", ["file.path.startswith()"], id="path attribute"),
        pytest.param("run(a, shell=False); name.startswith('TOOLGATE_')", [], id="harmless"),
        pytest.param("path.startswith(prefix + '/')", [], id="whole segments of a URL"),
        pytest.param("re.compile('(?:^|_)key$')", [], id="a search"),
    ],
)
def test_the_check_itself_sees_what_it_should(source: str, expected: list[str]) -> None:
    assert list(findings(Module("sample", source))) == expected


def test_sup_2_none_of_these_habits_is_in_the_product() -> None:
    found = {module.name: list(findings(module)) for module in modules("src")}

    assert {name: habits for name, habits in found.items() if habits} == ALLOWED


def test_nothing_is_global() -> None:
    found = [
        f"{module.name}:{node.lineno}"
        for module in modules("src")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Global)
    ]

    assert found == []


def test_nothing_is_left_to_do() -> None:
    found = [module.name for module in modules("src") if re.search(r"\b(?:TODO|FIXME|XXX)\b", module.text)]

    assert found == []


LIMIT_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")


def bare_limits(module: Module) -> Iterator[str]:
    """Numbers in capitals of a module that do not say where they come from.

    A comment at the end of the line says it, one above the line or its block, or a docstring below.
    """
    lines = [*module.text.splitlines(), ""]
    for number, node in enumerate(module.tree.body):
        if is_limit(node):
            first = node.lineno - 1
            while lines[first - 1].strip() and not lines[first - 1].startswith("#"):
                first -= 1
            is_explained = (
                lines[first - 1].startswith("#") or "#" in lines[(node.end_lineno or node.lineno) - 1]
            )
            if not is_explained and not is_docstring(module.tree.body[number + 1 : number + 2]):
                yield lines[node.lineno - 1]


def is_limit(node: ast.stmt) -> bool:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return LIMIT_NAME.fullmatch(name) is not None and is_number(value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return LIMIT_NAME.fullmatch(name) is not None and is_number(value)
    return False


def is_number(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
    return False


def is_docstring(nodes: Sequence[ast.stmt]) -> bool:
    return any(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in nodes)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("MAX: Final = 3", ["MAX: Final = 3"], id="a number alone"),
        pytest.param("_MAX_BYTES = 4 * 1024", ["_MAX_BYTES = 4 * 1024"], id="a product"),
        pytest.param("MAX = 3  # a page", [], id="at the end of the line"),
        pytest.param("# Of the specification.\nMIN = 1\nMAX = 3", [], id="above a block"),
        pytest.param("# Of another.\nMIN = 1\n\nMAX = 3", ["MAX = 3"], id="above another block"),
        pytest.param('MAX = 3\n"""A page."""', [], id="a docstring"),
        pytest.param("NAME = 'x'\nis_on = True\nlocal = 3", [], id="no limit"),
    ],
)
def test_the_check_of_limits_sees_what_it_should(source: str, expected: list[str]) -> None:
    assert list(bare_limits(Module("sample", source))) == expected


def test_every_limit_says_where_its_number_comes_from() -> None:
    found = {module.name: list(bare_limits(module)) for module in modules("src") if "_pb2" not in module.name}

    assert {name: limits for name, limits in found.items() if limits} == {}


def test_no_test_patches_a_module_constant() -> None:
    """Limits are parameters: a test passes its own."""
    patched = re.compile(r"setattr\((?:[^()]|\([^()]*\))*?[\"'.]_?[A-Z][A-Z0-9_]*[\"']")

    assert [module.name for module in modules("tests") if patched.search(module.text)] == []


def test_no_rule_of_ours_is_switched_off_without_naming_it() -> None:
    bare = re.compile(r"#\s*(?:noqa(?!:\s*[A-Z])|type:\s*ignore(?!\[)|pragma:\s*no\s+cover)")

    assert [module.name for module in modules("src", "tests") if bare.search(module.text)] == []
