"""A throw-away Git repository for the demo: a few commits, a branch, and an uncommitted change."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolgate.cli.failure import CommandError

_COMMITS: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    (
        "Start the tea timer",
        {"README.md": "# Tea timer\n", "timer.py": "MINUTES = {'green': 2, 'black': 4}\n"},
    ),
    (
        "Say when the tea is ready",
        {"timer.py": "MINUTES = {'green': 2, 'black': 4}\n\n\ndef ready(tea):\n    ...\n"},
    ),
    ("Document the timer", {"README.md": "# Tea timer\n\nTells you when your tea is ready.\n"}),
)
_UNCOMMITTED: Final = {"timer.py": "MINUTES = {'green': 3, 'black': 4}\n\n\ndef ready(tea):\n    ...\n"}
# Whose commits these are does not matter, and nothing of the user's own configuration may.
_ENVIRONMENT: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Toolgate demo",
    "GIT_AUTHOR_EMAIL": "demo@toolgate.invalid",
    "GIT_COMMITTER_NAME": "Toolgate demo",
    "GIT_COMMITTER_EMAIL": "demo@toolgate.invalid",
}


def make_repository(directory: Path) -> None:
    """Make the repository in `directory`, replacing what is there."""
    git = shutil.which("git")
    if git is None:
        raise CommandError("the demo needs `git`", hint="install git and start the demo again")
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    _git(git, directory, "init", "--quiet", "--initial-branch=main")
    for message, files in _COMMITS:
        _write(directory, files)
        _git(git, directory, "add", "--all")
        _git(git, directory, "commit", "--quiet", "--message", message)
    _git(git, directory, "branch", "milk-first")
    _write(directory, _UNCOMMITTED)


def _write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (directory / name).write_text(text, "utf-8")


def _git(git: str, directory: Path, *words: str) -> None:
    # Variables like GIT_DIR of a caller (a hook, say) must not lead to another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(  # noqa: S603 - git itself, no shell
        [git, "-C", str(directory), *words],
        env=inherited | _ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CommandError(f"`git {words[0]}` failed: {done.stderr.strip()}")
