"""The demo's model on the tests' own packages, in place of an environment that would be downloaded."""

import sys
from pathlib import Path

from toolgate.cli.demo.demo import DemoModel


def local_model(directory: Path, python: str = sys.executable) -> DemoModel:
    """Ready to be started, in a directory of its own."""
    programs = directory / "model-venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n', "utf-8")
    (programs / "python").chmod(0o755)
    return DemoModel(directory)
