"""`toolgate completion`: its scripts in the shells they are for, and what may come next."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import Reply, converse_with
from toolgate.cli.commands.completion import Shell
from toolgate.cli.root import COMMANDS

PROGRAMS = Path(sys.executable).parent
PROMPT = "ready> "
TYPED = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
}
PREPARE = {
    "bash": "source <(toolgate completion bash)",
    "zsh": "autoload -Uz compinit && compinit -u -D && source <(toolgate completion zsh)",
}
FOUND = [shell for shell in get_args(Shell) if shutil.which(shell)]
"""bash is always there; the other two are where developers have them."""


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """That of a shell which finds the program."""
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    return {"PATH": path, "PS1": PROMPT, "TERM": "dumb", "HOME": "/nonexistent"}


def candidates(run: Run, *words: str) -> list[str]:
    ran = run("completion", "bash", "--", *words)

    assert (ran.code, ran.err) == (0, "")
    return ran.lines


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["se"], ["servers"], id="a command"),
        pytest.param(["contexts", ""], ["list", "use", "delete"], id="the commands of a group"),
        pytest.param(["servers", "ap"], ["apply"], id="one of them"),
        pytest.param(["--context", "x", "contexts", "u"], ["use"], id="after an option"),
        pytest.param(["tools", "--ta"], ["--task"], id="an option"),
        pytest.param(["tools", "--mode", ""], ["list", "find"], id="the values of an option"),
        pytest.param(["tools", "--mode", "=", "f"], ["find"], id="after the sign that bash takes apart"),
        pytest.param(["tools", "--task", ""], [], id="a value that may be anything"),
        pytest.param(["tools", "--task", "--mo", "--mo"], ["--mode"], id="a value like an option"),
        pytest.param(["completion", "f"], ["fish"], id="the values of an argument"),
        pytest.param(["completion", "fish", "f"], [], id="an argument too many"),
        pytest.param(["servers", "add", "git", "--", "-"], [], id="the command of another program"),
        pytest.param(["servers", "get", "git", "g"], [], id="ids are not asked for"),
        pytest.param(["no-such", "x"], [], id="after what is no command"),
    ],
)
def test_what_may_come_next_is_read_off_the_commands(run: Run, words: list[str], expected: list[str]) -> None:
    assert candidates(run, *words) == expected


def test_all_commands_and_options_come_with_what_they_are(run: Run) -> None:
    zsh = run("completion", "zsh", "--", "")
    fish = run("completion", "fish", "--", "")
    options = run("completion", "fish", "--", "contexts", "list", "-")

    assert zsh.lines == [f"{name}:{summary}" for name, summary in COMMANDS.items()]
    assert fish.lines == [f"{name}\t{summary}" for name, summary in COMMANDS.items()]
    assert options.lines == [
        "--json\tPrint JSON, one object a line.",
        "--help\tShow this message and exit.",
    ]


def test_every_option_of_every_command_is_completed(run: Run) -> None:
    """Walking all of them shows that no command has a parameter that cannot be completed."""
    for name in COMMANDS:
        inner = [name, *[word for word in candidates(run, name, "") if not word.startswith("-")]]
        assert "--help" in candidates(run, name, "-")
        for word in inner[1:]:
            assert "--help" in candidates(run, name, word, "-")


@pytest.mark.parametrize("shell", get_args(Shell))
def test_a_script_says_where_it_goes_and_asks_the_program(run: Run, shell: str) -> None:
    script = run("completion", shell).out

    head = [line for line in script.splitlines()[:6] if line.startswith("#")]
    assert any(f"toolgate completion {shell}" in line for line in head)
    assert f" completion {shell} -- " in script.replace("\n".join(head), "")
    assert script.endswith("\n")


@pytest.mark.parametrize("shell", FOUND)
def test_a_shell_accepts_the_script(environ: dict[str, str], run: Run, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(run("completion", shell).out, "utf-8")

    checked = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("toolgate contexts ''", ["list", "use", "delete"], id="commands"),
        pytest.param("toolgate tools --mode ''", ["list", "find"], id="values"),
    ],
)
def test_bash_gets_the_candidates_as_its_reply(
    environ: dict[str, str], line: str, expected: list[str]
) -> None:
    script = (
        "source <(toolgate completion bash); complete -p toolgate >/dev/null || exit 9; "
        f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _toolgate toolgate; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )

    ran = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=False, env=os.environ
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == expected


def type_at_a_prompt(shell: str, environ: dict[str, str]) -> str:
    """What is on the screen after a tabulator in the middle of a line."""
    typed = [
        Reply(PROMPT, PREPARE[shell]),
        Reply(PROMPT, "toolgate compl\tfi\t"),
        Reply("Completes toolgate in", "exit"),
    ]
    return converse_with(TYPED[shell], typed, environ).screen


def ask_fish(environ: dict[str, str]) -> str:
    """What fish would run if its own completion of a line were taken."""
    script = (
        'toolgate completion fish | source; set word (complete -C "toolgate completion fi" | cut -f 1); '
        "toolgate completion $word"
    )
    command = ["fish", "--no-config", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout


@pytest.mark.parametrize("shell", FOUND)
def test_the_tabulator_completes_a_word_that_is_then_run(environ: dict[str, str], shell: str) -> None:
    screen = ask_fish(environ) if shell == "fish" else type_at_a_prompt(shell, environ)

    assert "Completes toolgate in fish" in screen
