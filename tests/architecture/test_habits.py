"""Habits that each cost someone a vulnerability, kept out of the product (SUP-2), and a few of taste."""

import ast
import re
from collections.abc import Iterator

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


def test_no_rule_of_ours_is_switched_off_without_naming_it() -> None:
    bare = re.compile(r"#\s*(?:noqa(?!:\s*[A-Z])|type:\s*ignore(?!\[)|pragma:\s*no\s+cover)")

    assert [module.name for module in modules("src", "tests") if bare.search(module.text)] == []
