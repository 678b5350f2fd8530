"""Python programs that tests start again and again, whose modules are imported once: a fork takes 0.1 s.

`forked("mcp-server-git")` is a command that does what `.venv/bin/mcp-server-git` does. It has the process of
this module fork, and the fork takes over its words, environment, directory and standard streams. A fork
ends when its command does, however that ends.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
REQUEST: Final = Path(__file__).with_name("fork_request.py")
MAX_BYTES: Final = 1 << 20
"""Of one request, whose largest part is the environment."""


def forked(*words: str) -> list[str]:
    """The command that has a fork run a program of this environment, the first word. More may follow."""
    return [sys.executable, "-I", "-S", str(REQUEST), str(_shared_forker().path), *words]


def stop_forker() -> None:
    """At the end of the process that started it."""
    if _shared_forker.cache_info().currsize:
        _shared_forker().stop()
        _shared_forker.cache_clear()


class Forker:
    """The process that forks. It ends with the one that started it."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tgf")
        self.path = Path(self._directory.name, "s")
        command = [sys.executable, "-m", "tests.forked_programs", str(self.path)]
        environ = {**os.environ, "FASTMCP_CHECK_FOR_UPDATES": "off"}
        self._process = Popen(command, cwd=ROOT, env=environ, stdin=PIPE, stdout=PIPE)
        assert self._process.stdout is not None  # asked for with PIPE
        assert self._process.stdout.readline() == b"ready\n"

    def stop(self) -> None:
        self._process.communicate()
        self._directory.cleanup()


@cache
def _shared_forker() -> Forker:
    return Forker()


def serve(path: str) -> None:
    """Fork for each request, until the standard input ends."""
    with socket.create_server(path, family=socket.AF_UNIX, backlog=128) as listener:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                _fork(connection)
            _reap()


def _fork(connection: socket.socket) -> None:
    message, streams, _, _ = socket.recv_fds(connection, MAX_BYTES, 4)
    while not message.endswith(b"\n"):
        message += connection.recv(MAX_BYTES)
    asked = json.loads(message)
    main = load(asked["program"])
    if os.fork() == 0:
        _run(main, asked, streams, connection)
    for stream in streams:
        os.close(stream)


@cache
def load(program: str) -> Callable[[], Any]:
    """What a script of this environment runs."""
    [script] = entry_points(group="console_scripts", name=program)
    main: Callable[[], Any] = script.load()
    # Forks share what is loaded, as long as no one looks through it for garbage.
    gc.freeze()
    return main


def _run(
    main: Callable[[], Any], asked: dict[str, Any], streams: list[int], connection: socket.socket
) -> None:
    """As the program; never returns."""
    code = 1
    try:
        *standard, directory = streams
        for number, stream in enumerate(standard):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(directory)
        os.close(directory)
        os.environ.clear()
        os.environ.update(asked["environ"])
        sys.argv = [asked["program"], *asked["words"]]
        threading.Thread(target=_end_with, args=[connection], daemon=True).start()
        # As the script of its entry point does.
        sys.exit(main())
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        if isinstance(exc.code, str):
            sys.stderr.write(f"{exc.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        connection.sendall(bytes([code]))
        os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """Its command has ended, or was killed."""
    connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    serve(*sys.argv[1:])
