"""Commands in the process of the test: a process of its own takes a second each time."""

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest

from tests.scenarios.gateway import Gateway, Ran
from toolgate.cli import main


def cli(gateway: Gateway, *words: str) -> Ran:
    """A command, with `gateway` as the one it speaks to."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("TOOLGATE_URL", gateway.url)
        patch.setenv("COLUMNS", "200")
        try:
            code = main(words)
        except SystemExit as exc:
            code = int(exc.code or 0)
    return Ran(code, *(text.detach().getvalue().decode() for text in (out, err)))
