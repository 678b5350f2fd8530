"""Gateways as the documents start them, with the tests' own packages in place of what would be downloaded."""

import json
import os
import shlex
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests import patient
from tests.docs.documents import EXAMPLES, ROOT
from tests.eventually import eventually
from tests.forked_programs import forked
from tests.local_model import local_model
from tests.node import MODULES, node, node_file
from toolgate.cli.demo.kit import LOCK, MODEL_LOCK, make_repository, write_mark

DEADLINE_S = 900.0
LAST_LINE = "Ctrl-C stops the gateway and all its servers."
TOOLGATE = str(Path(sys.executable).with_name("toolgate"))


class Started(NamedTuple):
    """A gateway that serves, and what it printed on its way there."""

    url: str
    lines: list[str]


@contextmanager
def demo_gateway(directory: Path) -> Iterator[Started]:
    """`make demo`, with everything installed."""
    _install_demo(directory)
    with _running(["--demo", "--data", str(directory)], cwd=ROOT, path=os.environ["PATH"]) as started:
        yield started


@contextmanager
def model_gateway(directory: Path, cwd: Path) -> Iterator[Started]:
    """`toolgate up --demo --model` in `cwd`, with everything installed, also what `npx` would get."""
    _install_demo(directory)
    local_model(directory)
    write_mark(directory / "model-venv", MODEL_LOCK)
    programs = directory / "bin"
    programs.mkdir()
    server = node_file("@modelcontextprotocol/server-filesystem/dist/index.js")
    _write_program(programs / "npx", f'shift 2; exec "{node()}" "{server}" "$@"')
    words = ["--demo", "--model", "--data", str(directory)]
    with _running(words, cwd=cwd, path=f"{programs}:{os.environ['PATH']}") as started:
        yield started


def _install_demo(directory: Path) -> None:
    programs = directory / "demo-venv" / "bin"
    programs.mkdir(parents=True)
    _write_program(programs / "python", f'exec "{sys.executable}" "$@"')
    for name in ("mcp-server-git", "mcp-server-time"):
        _write_program(programs / name, f'exec {shlex.join(forked(name))} "$@"')
    write_mark(programs.parent, LOCK)


@contextmanager
def quick_start_gateway(directory: Path) -> Iterator[Started]:
    """`toolgate up` on the server files of the quick start, in a Git repository."""
    with _in_repository(directory, "--mcp-registry-dir", str(EXAMPLES / "servers"), "--strict") as started:
        yield started


@contextmanager
def empty_gateway(directory: Path) -> Iterator[Started]:
    """`toolgate up` without any record, in a Git repository."""
    with _in_repository(directory) as started:
        yield started


@contextmanager
def migration_gateway(directory: Path, cwd: Path) -> Iterator[Started]:
    """`toolgate up` without any record in `cwd`; `uvx` and `npx` in `directory` run what is installed."""
    write_runners(directory)
    path = f"{directory}:{os.environ['PATH']}"
    with _running(["--data", str(directory / "data")], cwd=cwd, path=path) as started:
        yield started


def write_runners(directory: Path) -> None:
    """`uvx NAME …` and `npx -y NAME …` for what the locks install."""
    directory.mkdir(exist_ok=True)
    _write_uvx(directory)
    start = f'exec "{node()}" "{MODULES}/$name/dist/index.js" "$@"'
    _write_program(directory / "npx", f"name=$2; shift 2; {start}")


@contextmanager
def _in_repository(directory: Path, *words: str) -> Iterator[Started]:
    make_repository(directory / "repository")
    programs = directory / "bin"
    programs.mkdir()
    _write_uvx(programs)
    path = f"{programs}:{os.environ['PATH']}"
    with _running(
        ["--data", str(directory / "data"), *words], cwd=directory / "repository", path=path
    ) as started:
        yield started


@contextmanager
def _running(words: list[str], *, cwd: Path, path: str) -> Iterator[Started]:
    command = [
        sys.executable,
        patient.__file__,
        "up",
        "--listen",
        "127.0.0.1:0",
        "--log-level",
        "warning",
        *words,
    ]
    environ = {**os.environ, "COLUMNS": "80", "PATH": path}
    with subprocess.Popen(
        command, cwd=cwd, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        try:
            lines = _read_until_ready(process)
            url, *_ = [line.rpartition(" ")[2] for line in lines if " at http" in line]
            eventually(lambda: are_listed(url), 120)
            yield Started(url, lines)
        finally:
            process.terminate()
            process.wait()
            watchdog.cancel()


def are_listed(url: str) -> bool:
    """Whether all servers have listed their tools: a reader who types is slower than that."""
    with urllib.request.urlopen(f"{url}/admin/api/mcp/servers") as response:
        servers = json.load(response)["servers"]
    return all(one["health"]["tools"] for one in servers if one["enabled"])


def _read_until_ready(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None  # asked for with PIPE
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if lines[-1] == LAST_LINE:
            return lines
    raise AssertionError("\n".join(lines))


def _write_uvx(directory: Path) -> None:
    _write_program(directory / "uvx", f'exec {shlex.join(forked())} "$@"')


def _write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(0o755)
