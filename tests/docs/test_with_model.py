"""What the documents do with the demo's model: chats, and the tutorial, followed to the letter."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, Step, document
from tests.docs.gateways import Started, model_gateway
from tests.docs.test_sessions import DEFAULT_URL, WITH_MODEL, sessions
from tests.guests.built import BUILT

TUTORIAL = document("docs/tutorials/first-wasm-task.md")
WITHIN_S = 600.0


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader of the tutorial is: in a clone, which the gateway is started in."""
    clone = tmp_path_factory.mktemp("clone")
    (clone / "sdk").symlink_to(ROOT / "sdk")
    (clone / "tutorial").mkdir()
    return clone / "tutorial"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, directory: Path) -> Iterator[Started]:
    with model_gateway(tmp_path_factory.mktemp("data"), directory) as started:
        yield started


def test_the_chats_with_the_model_go_as_the_documents_say(gateway: Started) -> None:
    steps = sessions(WITH_MODEL, with_model=True)

    found = [Step(step.command, _output(step.command, gateway.url)) for step in steps]

    assert _at_any_time(found) == _at_any_time(steps)
    assert steps != []


def _output(command: str, url: str) -> list[str]:
    words = shlex.split(command.replace(DEFAULT_URL, url))[1:]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _at_any_time(steps: list[Step]) -> list[Step]:
    times = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d")
    return [Step(step.command, [times.sub("#", line) for line in step.output]) for step in steps]


def test_the_program_of_the_tutorial_is_the_example() -> None:
    _, *pieces = TUTORIAL.blocks("c")

    assert "\n".join(pieces) == (ROOT / "sdk" / "examples" / "summarize.c").read_text("utf-8")


def test_the_tutorial_goes_as_it_says(
    gateway: Started, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_URL", gateway.url)
    _write_files(directory)
    steps = list(TUTORIAL.steps())

    printed = [_type(step.command, directory) for step in steps]

    expected = [[line for line in step.output if line] for step in steps]
    assert _whatever_the_model_says(printed, gateway.url) == _whatever_the_model_says(expected, DEFAULT_URL)


def _whatever_the_model_says(outputs: list[list[str]], url: str) -> list[list[str]]:
    """Its words are its own, but there are some."""
    notified = [[line.replace(url, DEFAULT_URL) for line in lines] for lines in outputs]
    return [
        ["info  harbour.txt", "info  lantern.md", "…"] if _is_summary(lines) else lines for lines in notified
    ]


def _is_summary(lines: list[str]) -> bool:
    return lines[:2] == ["info  harbour.txt", "info  lantern.md"] and len(lines) == 3


def _write_files(directory: Path) -> None:
    """Everything that the reader is told to write."""
    server_info, *pieces = TUTORIAL.blocks("c")
    (directory / "hello.c").write_text(server_info, "utf-8")
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
