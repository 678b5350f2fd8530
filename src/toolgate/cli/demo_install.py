"""The demo's servers from PyPI, in a virtual environment of their own, from the hashed lock.

Built once and then reused; built anew when the lock or the interpreter changes. Nothing outside the
given directory is touched.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from toolgate.cli.failure import CommandFailed

MARK: Final = ".toolgate-lock"
"""Written last: an environment that carries it is complete."""

_COLLECTING: Final = re.compile(r"Collecting ([A-Za-z0-9._-]+)")
_INSTALLING: Final = re.compile(r"Installing collected packages")


def is_installed(environment: Path, lock: Path) -> bool:
    """Whether `environment` is complete and what `lock` asks for."""
    mark = environment / MARK
    return mark.is_file() and mark.read_text("utf-8") == _fingerprint(environment, lock)


def install(environment: Path, lock: Path, report: Callable[[str], None], *options: str) -> None:
    """Build `environment` from `lock`, with these options of pip. `report` is told what is being done."""
    if environment.exists():
        shutil.rmtree(environment)
    report("making a virtual environment")
    _run([sys.executable, "-m", "venv", str(environment)], lambda _: None, "python3-venv may be missing")
    install_packages(environment, lock, report, *options)
    mark_installed(environment, lock)


def install_packages(environment: Path, lock: Path, report: Callable[[str], None], *options: str) -> None:
    """Everything in `lock`, each with its hash, into an environment that is there."""
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "install", "--progress-bar", "off", "--require-hashes", *options, "-r", str(lock)]

    def tell(line: str) -> None:
        if found := _COLLECTING.match(line):
            report(f"fetching {found[1]}")
        elif _INSTALLING.match(line):
            report("installing what was fetched")

    _run(command, tell, "the packages come from PyPI, or from the index that pip is set to")


def mark_installed(environment: Path, lock: Path) -> None:
    """Take note that `environment` is complete and what `lock` asks for."""
    (environment / MARK).write_text(_fingerprint(environment, lock), "utf-8")


def _fingerprint(environment: Path, lock: Path) -> str:
    """Another lock, interpreter or place needs another environment: its scripts hold absolute paths."""
    # Resolved: `python` and `python3` of one installation are one interpreter.
    places = [platform.python_version(), str(Path(sys.executable).resolve()), str(environment.absolute())]
    return hashlib.sha256("\0".join([lock.read_text("utf-8"), *places]).encode()).hexdigest()


def _run(command: Sequence[str], tell: Callable[[str], None], hint: str) -> None:
    """Run to the end, line by line. Interrupted, it leaves no process behind."""
    tail: deque[str] = deque(maxlen=5)
    # Its own environment would lead pip astray; everything else (indexes, proxies) is the user's choice.
    environ = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    with subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environ,
    ) as process:
        try:
            for line in _lines(process):
                tail.append(line)
                tell(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise CommandFailed(
            f"what the demo needs could not be installed: {' '.join(tail) or 'no reason given'}", hint=hint
        )


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None  # asked for with PIPE
    for line in process.stdout:
        yield line.strip()
