"""The demo: what each task sees, what that saves, and how to connect.

The demo prepares a directory, starts a gateway on it, and then calls it as a client. All its files are in
that directory, and all its processes are children of the gateway, which end with it.

With `--model` it also starts a small language model for the chat endpoint. The model is a child that ends
when its standard input closes. Only this process holds the other end of that pipe, so the model ends with
this process, whatever the cause. It listens on loopback, on a free port.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.app.process import ServingApp
from toolgate.catalog.clients import CLIENT_PROGRAMS, GatewayEndpoint
from toolgate.cli.command import CommandError, StepProgress, open_console, print_output
from toolgate.cli.contexts import url_option
from toolgate.cli.demo import kit
from toolgate.cli.files import FileRecord
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.rest import RestClient, build_record_path, open_client
from toolgate.settings import parse_listen

_PYTHON = """\
from openai import OpenAI

client = OpenAI(base_url="{base_url}", api_key="none")
messages = [{{"role": "user", "content": "What do my notes say about coffee?"}}]
print(client.chat.completions.create(model="{model}", messages=messages).choices[0].message.content)"""


def render_demo(
    url: str,
    servers: Sequence[JsonObject],
    views: Sequence[JsonObject],
    *,
    console: str | None = None,
    program: str = "toolgate",
    model: str | None = None,
) -> RenderableType:
    """The table, and the lines to paste. `program` is the name to call this program by."""
    count = sum(ui.health_of(one).get("tools", 0) for one in servers)
    served = Text(f"{ui.count_of(count, 'tool')} of {ui.count_of(len(servers), 'server')}", style=ui.OK)
    headline = ui.sentence("\n", ("Toolgate", "bold"), " serves ", served, " at ", ui.bold(url))
    at, first = url_option(url), views[0]["task_id"]
    connect = CLIENT_PROGRAMS["claude-code"].command
    assert connect is not None  # Claude Code has one
    endpoints = (GatewayEndpoint(name=view["task_id"], url=view["url"]) for view in views)
    commands = [
        f"{program} connect cursor --task {first} --write{at}",
        f"{program} tools --task {first}{at}",
        f"{program} explain --task {first}{at}",
    ]
    search = f'{program} catalog search "what changed"{at}\n{url}/api/mcp/find'
    return ui.stack_parts(
        Group(headline, *([] if console is None else [ui.sentence("its console is at ", ui.bold(console))])),
        _render_tasks(servers, views),
        ui.copyable("\n".join(map(connect, endpoints)), "Connect Claude Code to a task:"),
        ui.copyable("\n".join(commands), "Another client, what it will see, and why it sees no more:"),
        ui.copyable(search, "Look for a tool, or let a model find its tools by itself:"),
        None if model is None else _render_chat(f"{url}/t/{views[-1]['task_id']}/v1", model),
        Text("Ctrl-C stops the gateway and all its servers.", style=ui.DIM),
    )


def _render_tasks(servers: Sequence[JsonObject], views: Sequence[JsonObject]) -> RenderableType:
    offered = {str(one["server_id"]): ui.health_of(one).get("tools", 0) for one in servers}
    table = ui.grid("TASK", "TOOLS", "TOKENS", "URL, AND WHAT IT SHOWS*")
    for view in views:
        seen = Counter(str(tool["server_id"]) for tool in view["tools"])
        shown = ", ".join(f"{name} {number}/{offered.get(name, 0)}" for name, number in sorted(seen.items()))
        table.add_row(
            ui.bold(view["task_id"]),
            f"{len(view['tools'])} of {view['registered_tools']}",
            f"{view['tokens']:,} of {view['registered_tokens']:,}",
            Text("\n").join([ui.cell(view["url"]), ui.cell(shown, ui.DIM)]),
        )
    return table


def _render_chat(base_url: str, model: str) -> RenderableType:
    """How to chat with the model, from a shell and from Python."""
    question = "What time is it in Tokyo?"
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": question}]})
    curl = f"curl {base_url}/chat/completions -H 'content-type: application/json' \\\n  -d '{body}'"
    return Group(
        ui.copyable(curl, "Chat with a model that uses the tools of a task, from a shell or in Python:"),
        # Not indented, so that Python accepts it.
        Text(f"\n{_PYTHON.format(base_url=base_url, model=model)}", no_wrap=True, overflow="ignore"),
    )


UPSTREAM: Final = "local"
UPSTREAM_NAME: Final = "SmolLM2, on this machine"
MODEL_TASK: Final = "chat"
STOP_WITHIN_S: Final = 5.0  # generous: the model is idle

ModelAnnouncement = Mapping[str, Any]
"""The first line of the model's server: `url` and `model`."""


class DemoModel:
    """The model of one demo, in the demo's directory."""

    def __init__(self, directory: Path) -> None:
        self._environment = directory / "model-venv"
        self._log = directory / "model.log"

    def is_installed(self) -> bool:
        return kit.is_installed(self._environment, kit.MODEL_LOCK)

    def install(self, report: Callable[[str], None]) -> None:
        kit.install(self._environment, kit.MODEL_LOCK, report, "--no-deps")

    @contextmanager
    def running(self) -> Iterator[ModelAnnouncement]:
        """The running model. Raises CommandError if it does not start."""
        command = [str(self._environment / "bin" / "python"), str(kit.DATA / "model_server")]
        with (
            self._log.open("wb") as log,
            # In another session: Ctrl-C must reach only the gateway, which may still need the model to drain.
            subprocess.Popen(  # noqa: S603 - our own program, no shell
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            ) as process,
        ):
            assert process.stdin is not None  # asked for with PIPE, as is the output
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                if not line:
                    hint = f"its output is in `{self._log}`; the demo runs without --model"
                    raise CommandError("the model did not start", hint=hint)
                yield json.loads(line)
            finally:
                process.stdin.close()
                try:
                    process.wait(STOP_WITHIN_S)
                except subprocess.TimeoutExpired:
                    process.kill()


def build_upstream(announced: ModelAnnouncement) -> dict[str, Any]:
    return {
        "upstream_id": UPSTREAM,
        "display_name": UPSTREAM_NAME,
        "base_url": announced["url"],
        "models": [announced["model"]],
    }


CONNECT_WITHIN_S: Final = 30.0  # Python servers connect in about a second; a busy machine needs more
POLL_EVERY_S: Final = 0.1  # looks immediate to people

_SETTLED: Final = frozenset({"connected", "down", "disabled"})


class Demo:
    """One run of the demo, in one directory."""

    def __init__(self, directory: Path, *, as_json: bool, with_model: bool = False) -> None:
        self.directory = directory.resolve()
        self.registry_dir = self.directory / "demo-servers"
        self._model = DemoModel(self.directory) if with_model else None
        self._announced: ModelAnnouncement | None = None
        """The address of the running model."""
        self._as_json = as_json
        self._progress = StepProgress(open_console(to_stderr=True))

    def prepare(self) -> None:
        """Install everything that the servers need, once."""
        environment = self.directory / "demo-venv"
        for directory in (self.directory.parent, self.directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not kit.is_installed(environment, kit.LOCK):
            with self._progress.step("installing mcp-server-git, mcp-server-time and the MCP SDK") as report:
                kit.install(environment, kit.LOCK, report)
        repository = self.directory / "demo-repository"
        kit.make_repository(repository)
        places = {"bin": environment / "bin", "repository": repository, "kit": kit.DATA}
        kit.write_servers(self.registry_dir, places)
        if self._model is not None and not self._model.is_installed():
            with self._progress.step("installing SmolLM2 and llama.cpp, 130 MB") as report:
                self._model.install(report)

    @contextmanager
    def serve_model(self) -> Iterator[None]:
        """Run the model during the block, if there is one."""
        with ExitStack() as stack:
            if self._model is not None:
                with self._progress.step("loading the model"):
                    self._announced = stack.enter_context(self._model.running())
            yield

    async def present(self, started: ServingApp, url: str) -> None:
        """Apply the tasks at the listening gateway, wait for its servers, and print the table."""
        try:
            with open_client(url, None) as client:
                await self._apply_records(client)
                servers = await self._await_servers(client)
                views = []
                for task in self._tasks():
                    response = await asyncio.to_thread(client.get, "/api/v1/mcp/tools", {"task": task.id})
                    views.append({"task_id": task.id, **response})
        except CommandError as failure:
            # Usually it was stopped while starting. Otherwise the gateway serves, and the reason is shown.
            self._progress.failed(str(failure))
            return
        value: dict[str, Any] = {"url": url, "tasks": views}
        model = None if self._announced is None else str(self._announced["model"])
        if model is not None:
            value["model"] = model
        value["console"] = console = started.console_url(url)
        # The name of this program if it is on the PATH, else the path that it was called by.
        program = "toolgate" if shutil.which("toolgate") else sys.argv[0]
        shown = render_demo(url, servers, views, console=console, program=program, model=model)
        print_output(value, shown, as_json=self._as_json)

    def _tasks(self) -> list[FileRecord]:
        return kit.load_tasks() if self._announced is None else kit.load_tasks(MODEL_TASK)

    async def _apply_records(self, client: RestClient) -> None:
        for task in self._tasks():
            path = build_record_path(task.kind, task.id)
            await asyncio.to_thread(client.send, "PUT", path, task.body)
        upstream_path = build_record_path("chat_upstream", UPSTREAM)
        if self._announced is not None:
            await asyncio.to_thread(client.send, "PUT", upstream_path, build_upstream(self._announced))
            return
        for one in await asyncio.to_thread(client.records, "chat_upstream"):
            # From an earlier run, whose model has ended. No user changed it since.
            if (one["upstream_id"], one["display_name"]) == (UPSTREAM, UPSTREAM_NAME):
                await asyncio.to_thread(client.send, "DELETE", upstream_path)

    async def _await_servers(self, client: RestClient) -> list[dict[str, Any]]:
        """All servers, once each has connected or failed."""
        deadline = time.monotonic() + CONNECT_WITHIN_S
        shown: set[str] = set()
        with self._progress.step("connecting the servers") as report:
            while True:
                servers = await asyncio.to_thread(client.records, "server")
                waiting = [one["server_id"] for one in servers if not self._show_settled(one, shown)]
                if not waiting or time.monotonic() > deadline:
                    return servers
                report(f"waiting for {', '.join(waiting)}")
                await asyncio.sleep(POLL_EVERY_S)

    def _show_settled(self, server: Mapping[str, Any], shown: set[str]) -> bool:
        """Whether the server has connected or failed. Shown once."""
        health = ui.health_of(server)
        server_id, state = str(server["server_id"]), health.get("state")
        # A server is connected before its tools are listed.
        if state not in _SETTLED or (state == "connected" and health.get("last_list_ms") is None):
            return False
        if server_id in shown:
            return True
        shown.add(server_id)
        if state == "connected":
            self._progress.done(f"{server_id}: {health['tools']} tools")
        else:
            self._progress.failed(f"{server_id}: {health.get('last_error') or state}")
        return True


def demo_directory(environ: Mapping[str, str]) -> Path:
    """A directory in the current project, else in the user's cache."""
    here = Path.cwd()
    if any((here / name).exists() for name in (".git", "pyproject.toml")) and os.access(here, os.W_OK):
        return here / ".toolgate" / "demo"
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "toolgate" / "demo"


def check_port(listen: str) -> None:
    """Raise CommandError if the port is in use, before minutes of installing."""
    host, port = parse_listen(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            raise CommandError(
                f"the demo cannot listen on `{listen}`: {(exc.strerror or str(exc)).lower()}",
                hint="choose another port: toolgate up --demo --listen 127.0.0.1:8081",
            ) from exc
