"""Commands in the process of the test: a process of its own takes a second each time."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

import pytest

from tests.scenarios.canaries import MARK
from tests.scenarios.gateway import Gateway, Ran
from toolgate.cli import main


def cli(gateway: Gateway, *words: str) -> Ran:
    """A command, with `gateway` as the one it speaks to."""
    return run_here(words, TOOLGATE_URL=gateway.url)


def run_here(words: Sequence[str], **environ: str) -> Ran:
    """A command that ends by itself, be it because it refuses to start."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in {"COLUMNS": "200", **environ}.items():
            patch.setenv(name, value)
        try:
            code = main(words)
        except SystemExit as exc:
            code = int(exc.code or 0)
    ran = Ran(code, *(text.detach().getvalue().decode() for text in (out, err)))
    assert MARK not in ran.out + ran.err
    return ran
