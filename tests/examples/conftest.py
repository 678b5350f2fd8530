"""The command line, as its own tests use it."""

from tests.cli.conftest import run

__all__ = ["run"]
