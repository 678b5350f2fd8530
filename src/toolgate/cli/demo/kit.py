"""The files of the demo: records, servers from PyPI, and a repository to work on.

The servers have a separate virtual environment, from a lock with hashes. It is built once, and rebuilt when
the lock or the interpreter changes. Nothing outside the given directories is changed.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolgate.cli.command import CommandError
from toolgate.cli.files import FileRecord, load_record

DATA: Final = Path(__file__).parent / "data"
LOCK: Final = DATA / "requirements.txt"
MODEL_LOCK: Final = DATA / "model-requirements.txt"
"""The lock of the model, which is installed with `--model` only."""
TASKS: Final = ("review", "notes", "ops")
"""In the order in which they are shown, the narrowest first."""


def load_servers(places: Mapping[str, Path]) -> list[dict[str, Any]]:
    """The server records, with `{bin}`, `{repository}` and `{kit}` in their commands filled in."""
    servers = [tomllib.loads(path.read_text("utf-8")) for path in sorted((DATA / "servers").glob("*.toml"))]
    for stdio in (server["stdio"] for server in servers):
        # Filled in after parsing: a path may contain characters with a meaning in TOML.
        for name, path in places.items():
            stdio["command"] = stdio["command"].replace(f"{{{name}}}", str(path))
            stdio["args"] = [arg.replace(f"{{{name}}}", str(path)) for arg in stdio["args"]]
    return servers


def load_tasks(*more: str) -> list[FileRecord]:
    """The tasks and `more`, ready to be sent."""
    return [load_record(DATA / "tasks" / f"{name}.toml", kind="task") for name in (*TASKS, *more)]


def write_servers(directory: Path, places: Mapping[str, Path]) -> None:
    """Write the records as a directory of server files, in place of earlier ones."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.json"):
        old.unlink()
    for server in load_servers(places):
        path = directory / f"{server['server_id']}.json"
        path.write_text(json.dumps(server, indent=2) + "\n", "utf-8")


MARK: Final = ".toolgate-lock"
"""A file that is written last: an environment with it is complete."""

_TAIL_LINES: Final = 40  # pip gives its reason near the end
_SHOWN_LINES: Final = 5  # more lines would scroll the hint away
_COLLECTING: Final = re.compile(r"Collecting ([A-Za-z0-9._-]+)")


def is_installed(environment: Path, lock: Path) -> bool:
    """Whether `environment` is complete for `lock`."""
    mark = environment / MARK
    return mark.is_file() and mark.read_text("utf-8") == _fingerprint(environment, lock)


def install(environment: Path, lock: Path, report: Callable[[str], None], *options: str) -> None:
    """Build `environment` from `lock`, with these options of pip. `report` gets each step."""
    if environment.exists():
        shutil.rmtree(environment)
    report("making a virtual environment")
    _run([sys.executable, "-m", "venv", str(environment)], lambda _: None, "python3-venv may be missing")
    install_packages(environment, lock, report, *options)
    write_mark(environment, lock)


def install_packages(environment: Path, lock: Path, report: Callable[[str], None], *options: str) -> None:
    """Install everything in `lock`, checked by hash, into an existing environment."""
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "install", "--progress-bar", "off", "--require-hashes", *options, "-r", str(lock)]

    def tell(line: str) -> None:
        if found := _COLLECTING.match(line):
            report(f"fetching {found[1]}")
        elif line.startswith("Installing collected packages"):
            report("installing what was fetched")

    _run(command, tell, "the packages come from PyPI, or from the index that pip is set to")


def write_mark(environment: Path, lock: Path) -> None:
    """Mark `environment` as complete for `lock`."""
    (environment / MARK).write_text(_fingerprint(environment, lock), "utf-8")


def _fingerprint(environment: Path, lock: Path) -> str:
    """A new lock, interpreter or place needs a new environment: its scripts contain absolute paths."""
    # Resolved: `python` and `python3` of one installation are one interpreter.
    places = [platform.python_version(), str(Path(sys.executable).resolve()), str(environment.absolute())]
    return hashlib.sha256("\0".join([lock.read_text("utf-8"), *places]).encode()).hexdigest()


def _run(command: Sequence[str], tell: Callable[[str], None], hint: str) -> None:
    """Run a command to its end and pass on its lines. If interrupted, it leaves no process behind."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    # The user's indexes and proxies, without variables that would mislead pip. The pip that comes with Python
    # reads a company's CA from a variable of pip, and not from `SSL_CERT_FILE`.
    environment = {name: one for name, one in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        if authority := os.environ.get(name):
            environment.setdefault("PIP_CERT", authority)
    with subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None  # asked for with PIPE
            for line in map(str.strip, process.stdout):
                tail.append(line)
                tell(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        if any("certificate" in line.lower() and "verify" in line.lower() for line in tail):
            hint = "set `SSL_CERT_FILE` to the file with your company's CA, and start the demo again"
        last = " ".join(list(tail)[-_SHOWN_LINES:]) or "no reason given"
        raise CommandError(f"what the demo needs could not be installed: {last}", hint=hint)


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
    """Create the repository in `directory`, in place of an earlier one."""
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
    # Variables such as GIT_DIR of a caller must not lead to another repository.
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
