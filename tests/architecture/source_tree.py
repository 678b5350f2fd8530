"""The repository's files, as the checks of this package read them."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePath

ROOT = Path(__file__).parents[2]
PURE = ("errors", "model", "redaction", "policy", "catalog", "chat")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file; parsed once someone asks for that."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        parsed = ast.parse(self.text, self.name)
        gc.freeze()  # thousands of nodes that stay to the end: nothing to be gained by going through them
        return parsed

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


@cache
def modules(*folders: str) -> list[Module]:
    """Every Python file of `folders`."""
    names = [str(file.relative_to(ROOT)) for file in kept_files() if file.suffix == ".py"]
    return [_module(name) for name in sorted(names) if PurePath(name).parts[0] in folders]


@cache
def _module(name: str) -> Module:
    return Module(name, (ROOT / name).read_text("utf-8"))


def pure_modules() -> list[Module]:
    """Those of the packages that only decide."""
    return [module for module in modules("src") if PurePath(module.name).with_suffix("").parts[2] in PURE]


@cache
def kept_files() -> list[Path]:
    """What belongs to the repository: tracked, or new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = (ROOT / name for name in listed.split("\0") if name)
    return [file for file in files if file.is_file()]
