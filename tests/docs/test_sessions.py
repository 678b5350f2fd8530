"""Every terminal session in the documents is run, and prints what the document says it prints."""

import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, Step, document, documents
from tests.docs.gateways import (
    TOOLGATE,
    Started,
    demo_gateway,
    empty_gateway,
    quick_start_gateway,
)
from toolgate.cli import main

DEFAULT_URL = "http://127.0.0.1:8080"
ON_DEMO = ["README.md", "docs/explanation/policy.md", "docs/how-to/clients.md", "docs/how-to/skills.md"]
ON_QUICK_START = ["docs/tutorials/first-gateway.md"]
ON_EMPTY = ["docs/how-to/gitops.md", "docs/how-to/chat-upstreams.md", "docs/how-to/command-line.md"]
IN_A_DIRECTORY = ["docs/how-to/packages.md"]
WITH_MODEL = ["docs/how-to/chat.md"]
"""What they send to the demo's model is run in `test_with_model`, and so is the tutorial."""
TUTORIAL = "docs/tutorials/first-wasm-task.md"
FOLLOWED = ["docs/tutorials/first-task.md", "docs/tutorials/first-approval.md"]
"""Tutorials whose files a reader writes on the way: `test_tutorials` does."""
MIGRATION = sorted(f"docs/how-to/{path.name}" for path in ROOT.glob("docs/how-to/migrate-from-*.md"))
"""Followed from a file of another product by `test_migration`."""
CHAT = "python examples/chat.py "

Run = Callable[[str], list[str]]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Run a command as the reader would type it, at the root of the repository, 80 columns wide."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.delenv("TOOLGATE_KEY", raising=False)

    def run_command(command: str) -> list[str]:
        with suppress(SystemExit):
            main(shlex.split(command)[1:])
        captured = capsys.readouterr()
        return (captured.out + captured.err).splitlines()

    return run_command


def as_printed(lines: list[str], url: str) -> list[str]:
    """What was printed, as it would be at the default address and in a terminal."""
    text = "\n".join(line.rstrip() for line in lines if not line.endswith("..."))
    text = text.replace(f" --url {url}", "").replace(url, DEFAULT_URL)
    return text.replace(str(TOOLGATE), ".venv/bin/toolgate").replace(str(Path.home()), "~").split("\n")


def settled(lines: list[str]) -> list[str]:
    """Servers connect in any order, and in their own time."""
    times = re.compile(r"\d+\.\d s\b|\d+ ms\b")
    ticks = sorted(times.sub("1.0 s", line) for line in lines if line.startswith("✓"))
    return ticks + [line for line in lines if not line.startswith("✓")]


def sessions(names: list[str], *, with_model: bool = False) -> list[Step]:
    """The commands of these documents: those to the model, or all others."""
    steps = [step for name in names for step in document(name).steps()]
    return [step for step in steps if step.command.startswith(CHAT) is with_model]


def printed(steps: list[Step], gateway: Started, run: Run) -> list[Step]:
    """The same commands with what they print now."""
    outputs = [gateway.lines if step.command == "make demo" else run(step.command) for step in steps]
    return [
        Step(step.command, settled(as_printed(output, gateway.url)))
        for step, output in zip(steps, outputs, strict=True)
    ]


def expected(steps: list[Step]) -> list[Step]:
    return [Step(step.command, settled(step.output)) for step in steps]


def test_the_sessions_with_the_demo_print_what_the_documents_say(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = sessions(ON_DEMO)
    with demo_gateway(tmp_path) as gateway:
        monkeypatch.setenv("TOOLGATE_URL", gateway.url)
        found = printed(steps, gateway, run)

    assert found == expected(steps)


def test_the_session_with_the_quick_start_prints_what_the_document_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = sessions(ON_QUICK_START)
    with quick_start_gateway(tmp_path) as gateway:
        monkeypatch.setenv("TOOLGATE_URL", gateway.url)
        found = printed(steps, gateway, run)

    assert found == expected(steps)


@pytest.mark.parametrize("name", ON_EMPTY)
def test_the_session_with_records_in_files_prints_what_the_document_says(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = sessions([name])
    with empty_gateway(tmp_path) as gateway:
        monkeypatch.setenv("TOOLGATE_URL", gateway.url)
        found = printed(steps, gateway, run)

    assert found == expected(steps)


def test_the_session_with_a_package_prints_what_the_document_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = sessions(IN_A_DIRECTORY)
    edited = [at for at, step in enumerate(steps) if step.command.startswith("toolgate packages publish")][1]
    [tool] = document(IN_A_DIRECTORY[0]).blocks("python")
    server = tmp_path / "weather" / "server.py"
    monkeypatch.chdir(tmp_path)
    with empty_gateway(tmp_path) as gateway:
        monkeypatch.setenv("TOOLGATE_URL", gateway.url)
        found = printed(steps[:edited], gateway, run)
        text = server.read_text("utf-8")
        server.write_text(text.replace("# The protocol", f"{tool}\n\n# The protocol"), "utf-8")
        found += printed(steps[edited:], gateway, run)

    assert _regardless(found) == _regardless(expected(steps))


def _regardless(steps: list[Step]) -> list[Step]:
    """How well files can be packed is another library's business, and all hashes follow from it."""
    hashes = re.compile(r"\b[0-9a-f]{32}\b|\d[\d,]* bytes")
    return [Step(step.command, [hashes.sub("#", line) for line in step.output]) for step in steps]


def test_sessions_are_only_shown_where_they_are_run() -> None:
    with_sessions = [str(one) for one in documents() if one.blocks("console")]

    assert sorted(with_sessions) == sorted(
        {*ON_DEMO, *ON_QUICK_START, *ON_EMPTY, *IN_A_DIRECTORY, *WITH_MODEL, *FOLLOWED, *MIGRATION, TUTORIAL}
    )
