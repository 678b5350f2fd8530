"""The tutorial, followed to the letter: its files written, its commands typed; model and server are real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, document
from tests.docs.gateways import tutorial_gateway
from tests.guests.built import BUILT

TUTORIAL = document("docs/guides/wasm-tutorial.md")
DEFAULT_URL = "http://127.0.0.1:8080"
WITHIN_S = 120.0


def test_the_program_of_the_tutorial_is_the_example() -> None:
    _, *pieces = TUTORIAL.blocks("c")

    assert "\n".join(pieces) == (ROOT / "sdk" / "examples" / "summarize.c").read_text("utf-8")


def test_the_tutorial_goes_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "tutorial"
    directory.mkdir()
    (tmp_path / "sdk").symlink_to(ROOT / "sdk")
    _write_files(directory)
    steps = list(TUTORIAL.steps())
    with tutorial_gateway(tmp_path / "data", directory) as gateway:
        monkeypatch.setenv("TOOLGATE_URL", gateway.url)
        printed = [_type(step.command, directory) for step in steps]

    expected = [[line for line in step.output if line] for step in steps]
    assert _whatever_the_model_says(printed, gateway.url) == _whatever_the_model_says(expected, DEFAULT_URL)


def _whatever_the_model_says(outputs: list[list[str]], url: str) -> list[list[str]]:
    """Its words are its own, but there are some."""
    told = [[line.replace(url, DEFAULT_URL) for line in lines] for lines in outputs]
    return [["info  harbour.txt", "info  lantern.md", "…"] if _is_summary(lines) else lines for lines in told]


def _is_summary(lines: list[str]) -> bool:
    return lines[:2] == ["info  harbour.txt", "info  lantern.md"] and len(lines) == 3


def _write_files(directory: Path) -> None:
    """Everything that the reader is told to write."""
    hello, *pieces = TUTORIAL.blocks("c")
    (directory / "hello.c").write_text(hello, "utf-8")
    (directory / "summarize.c").write_text("\n".join(pieces), "utf-8")
    for name in ("hello.toml", "files.toml", "summarize.toml"):
        text = (ROOT / "docs" / "examples" / "wasm" / name).read_text("utf-8")
        assert text in TUTORIAL.blocks("toml")
        (directory / name).write_text(text, "utf-8")


def _type(command: str, directory: Path) -> list[str]:
    """What a shell prints, both streams in the order they came."""
    cache = str(BUILT.parent / "zig")
    programs = Path(sys.executable).parent
    environ = {
        **os.environ,
        "COLUMNS": "80",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=directory,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WITHIN_S,
        check=False,
    )
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
