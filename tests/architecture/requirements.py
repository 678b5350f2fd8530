"""The manifest of requirements, and the tests that carry their ids: read from the files, never imported.

`python -m tests.architecture.requirements` writes the manifest again in its one form.
"""

import ast
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from tests.architecture.source_tree import ROOT, Function, modules

MANIFEST = ROOT / "tests" / "requirements.toml"
TEXTS = ("document", "section", "requires")


@dataclass(frozen=True)
class Requirement:
    """One entry of the manifest."""

    id: str
    document: str
    section: str
    requires: str
    tests: tuple[str, ...]
    open: str | None = None


def requirements() -> list[Requirement]:
    """Every entry, in the order of the file."""
    entries = tomllib.loads(MANIFEST.read_text("utf-8"))
    return [
        Requirement(id=name, **{**entry, "tests": tuple(entry["tests"])}) for name, entry in entries.items()
    ]


def marked_tests() -> dict[str, set[str]]:
    """The requirement ids that each test carries, by `path::name`."""
    marked: dict[str, set[str]] = {}
    for module in modules("tests"):
        if "mark.requirement(" not in module.text:
            continue
        for function in module.functions():
            if ids := set(_ids(function)):
                marked[f"{module.name}::{function.name}"] = ids
    return marked


def _ids(function: Function) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.requirement":
            for argument in decorator.args:
                yield ast.literal_eval(argument)


def rendered(entries: list[Requirement]) -> str:
    """The manifest's text: its header as it is, then the entries by id, their tests sorted."""
    text = MANIFEST.read_text("utf-8")
    header = text[: text.index("\n[")].rstrip("\n")
    return "\n".join([header, *map(_table, sorted(entries, key=lambda entry: entry.id))]) + "\n"


def _table(entry: Requirement) -> str:
    lines = [f"\n[{entry.id}]", *(f"{field} = {_string(getattr(entry, field))}" for field in TEXTS)]
    if len(entry.tests) > 1:
        lines += ["tests = [", *(f"  {_string(test)}," for test in sorted(entry.tests)), "]"]
    else:
        lines.append(f"tests = [{''.join(map(_string, entry.tests))}]")
    if entry.open is not None:
        lines.append(f"open = {_string(entry.open)}")
    return "\n".join(lines)


def _string(text: str) -> str:
    return f"'{text}'" if '"' in text and "'" not in text else json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    MANIFEST.write_text(rendered(requirements()), "utf-8")
