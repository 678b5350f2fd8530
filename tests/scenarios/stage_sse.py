"""A server of the transport of 2024: that of the last SDK of the handshake era, in a process of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.scenarios.gateway import ROOT

LEGACY_PYTHON = ROOT / ".venv-legacy/bin/python"


def check_legacy_python() -> None:
    """Fail where the environment of the older SDK is missing."""
    if not LEGACY_PYTHON.exists():
        pytest.fail("there is no `.venv-legacy`, which holds what needs the older SDK: `make test` makes it")


@contextmanager
def open_sse_stage(port: int = 0) -> Iterator[str]:
    """Its URL; on a free port unless one is given."""
    check_legacy_python()
    script = Path(__file__).with_name("old_sdk_server.py")
    command = [str(LEGACY_PYTHON), "-I", str(script), f"sse={port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/sse"
        finally:
            server.kill()
