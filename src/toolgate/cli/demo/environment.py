"""The demo's servers from PyPI, in a virtual environment of their own, from the hashed lock.

Built once and then reused; rebuilt when the lock or the interpreter changes. Nothing outside the
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from toolgate.cli.failure import CommandError

MARK: Final = ".toolgate-lock"
"""Written last: an environment that carries it is complete."""

_TAIL_LINES: Final = 40
_SHOWN_LINES: Final = 5
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
    write_mark(environment, lock)


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


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """That of pip: the user's (indexes, proxies), without what would lead it astray.

    The pip that comes with Python knows a company's CA by a variable of its own, and not by `SSL_CERT_FILE`.
    """
    kept = {name: value for name, value in environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    authority = (
        environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE") or environ.get("SSL_CERT_FILE")
    )
    return {"PIP_CERT": authority, **kept} if authority else kept


def write_mark(environment: Path, lock: Path) -> None:
    """Take note that `environment` is complete and what `lock` asks for."""
    (environment / MARK).write_text(_fingerprint(environment, lock), "utf-8")


def _fingerprint(environment: Path, lock: Path) -> str:
    """Another lock, interpreter or place needs another environment: its scripts hold absolute paths."""
    # Resolved: `python` and `python3` of one installation are one interpreter.
    places = [platform.python_version(), str(Path(sys.executable).resolve()), str(environment.absolute())]
    return hashlib.sha256("\0".join([lock.read_text("utf-8"), *places]).encode()).hexdigest()


def _run(command: Sequence[str], tell: Callable[[str], None], hint: str) -> None:
    """Run to the end, line by line. Interrupted, it leaves no process behind."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_environment(os.environ),
    ) as process:
        try:
            for line in _lines(process):
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


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None  # asked for with PIPE
    for line in process.stdout:
        yield line.strip()
