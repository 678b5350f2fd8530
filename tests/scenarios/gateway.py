"""A real `toolgate up`, started as anyone would start it, and everything a scenario asks of one.

When `running` ends, it stops the gateway by SIGTERM unless the test did, and checks it: it exits with 0,
leaves no process behind and has logged no traceback. However it ended, its logs and its audit hold none of
the secrets that it and its stage servers were given (SEC-1).
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psutil

from tests.eventually import eventually, eventually_equal
from tests.scenarios.canaries import (
    CALLER_HEADERS,
    ENVIRONMENT,
    MARK,
    STAGE_ENVIRONMENT,
    leaks,
    written_by,
)
from tests.scenarios.clients import UNTRUSTING, LegacyClient, ModernClient
from tests.scenarios.ports import own_address

ROOT = Path(__file__).parents[2]
TOOLGATE = str(Path(sys.executable).with_name("toolgate"))
STAGE_SERVER = Path(__file__).with_name("stage_server.py")
START_S = 60.0
STOP_S = 60.0
"""Until when it must have ended. The promise is far less; a machine that runs tests may be busy."""

Json = dict[str, Any]


class Ran(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed: one object."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Site:
    """The directories of one installation."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    def stage(self, server_id: str, *words: str, **fields: Any) -> Json:
        """The record of a stage server. Its processes can be told by the name of this site's root."""
        args = ["-I", "-S", str(STAGE_SERVER), *words, f"site={self.root}"]
        stdio = {"command": sys.executable, "args": args, "env": STAGE_ENVIRONMENT} | fields.pop("stdio", {})
        return self.server(server_id, stdio=stdio, **fields)

    def server(self, server_id: str, **fields: Any) -> Json:
        """The record of any server."""
        return {"server_id": server_id, "transport": "stdio", "allowed_tools": ["*"], **fields}

    def place(self, *records: Json) -> None:
        """Write each record into the registry directory, as one step."""
        self.registry.mkdir(parents=True, exist_ok=True)
        for record in records:
            draft = self.root / "draft"
            draft.write_text(json.dumps(record), "utf-8")
            draft.rename(self.file(record["server_id"]))

    def file(self, server_id: str) -> Path:
        return self.registry / f"{server_id}.json"

    def up(self, *options: str, listen: str | None = None) -> list[str]:
        """The command that starts the gateway of this site."""
        self.registry.mkdir(parents=True, exist_ok=True)
        places = ["--data", str(self.data), "--mcp-registry-dir", str(self.registry)]
        return [TOOLGATE, "up", "--listen", listen or own_address(), *places, *options]

    def processes(self) -> list[psutil.Process]:
        """All processes that name this site on their command line, wherever they hang in the tree."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(str(self.root) in word for word in process.info["cmdline"] or ())
        ]


@dataclass
class Gateway:
    """A gateway that runs."""

    site: Site
    process: "subprocess.Popen[bytes]"
    http: httpx2.Client
    log_file: Path
    announced: Json
    """What it said when it was ready to listen."""
    known: set[psutil.Process] = field(default_factory=set)
    """Processes of its tree, as far as they have been seen."""

    @property
    def url(self) -> str:
        return str(self.http.base_url).rstrip("/")

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8")

    @property
    def audit(self) -> str:
        """The whole lines of the audit file, which is there from its first one on."""
        file = self.site.data / "audit.jsonl"
        written = file.read_bytes() if file.exists() else b""
        return written[: written.rfind(b"\n") + 1].decode()

    def is_ready(self) -> bool:
        """Whether it serves."""
        try:
            return self.http.get("/healthz").status_code == 200
        except httpx2.TransportError:
            return False

    # Its doors

    def modern(self, path: str = "/api/mcp") -> ModernClient:
        return ModernClient(self.http, self.url + path)

    def legacy(self, path: str = "/api/mcp") -> LegacyClient:
        """A client with an open session."""
        return LegacyClient(self.http, self.url + path)

    def get(self, path: str) -> Any:
        """What the REST API answers."""
        return self.http.get(path).raise_for_status().json()

    def put(self, path: str, body: Json) -> Any:
        return self.http.put(path, json=body).raise_for_status().json()

    def health(self, server_id: str) -> Json:
        """The status of a server."""
        found: Json = self.get(f"/admin/api/mcp/servers/{server_id}")["health"]
        return found

    def cli(self, *words: str, **environ: str) -> Ran:
        """A command, with this gateway as the one it speaks to."""
        return run([TOOLGATE, *words], {"TOOLGATE_URL": self.url, **environ})

    # Its processes

    def tree(self) -> set[psutil.Process]:
        """All that it has started, and all that those have."""
        with suppress(psutil.NoSuchProcess):
            self.known |= set(psutil.Process(self.pid).children(recursive=True))
        return self.known

    def signal(self, number: signal.Signals) -> None:
        self.tree()
        self.process.send_signal(number)

    def wait(self, within_s: float = STOP_S) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(within_s)

    def kill(self) -> None:
        """kill -9, as the kernel would when memory runs out."""
        self.signal(signal.SIGKILL)
        self.wait()

    def left_over(self) -> list[str]:
        """The command lines of what is still alive of it."""
        return sorted(filter(None, map(_command_of_living, {*self.known, *self.site.processes()})))

    def check_gone(self, within_s: float = STOP_S) -> None:
        """Nothing of it is left, wherever it hung in the tree."""
        nothing: list[str] = []
        eventually_equal(self.left_over, nothing, within_s)

    def check_stopped(self) -> None:
        """It has ended as it should: all of it, and without a bug."""
        self.check_gone()
        assert [word for word in ("Traceback", "Warning:") if word in self.log] == []


@contextmanager
def running(
    site: Site, *options: str, listen: str | None = None, environ: Mapping[str, str] | None = None
) -> Iterator[Gateway]:
    """The gateway of `site` while it serves."""
    with started(site, site.up("--json", *options, listen=listen), environ) as gateway:
        eventually(gateway.is_ready, START_S)
        yield gateway


@contextmanager
def started(
    site: Site, command: Sequence[str], environ: Mapping[str, str] | None = None
) -> Iterator[Gateway]:
    """Any process that says where it listens, from then on."""
    outputs = site.root / f"out-{len(list(site.root.glob('out-*')))}"
    outputs.mkdir(parents=True)
    with (outputs / "stdout").open("wb") as out, (outputs / "stderr").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment(environ))
    with process:
        try:
            announced = eventually(lambda: _announced(process, outputs), START_S)
            with httpx2.Client(
                base_url=announced["url"],
                timeout=60,
                trust_env=False,
                verify=UNTRUSTING,
                headers=CALLER_HEADERS,
            ) as http:
                gateway = Gateway(site, process, http, outputs / "stderr", announced)
                yield gateway
            if process.poll() is None:
                gateway.signal(signal.SIGTERM)
                assert gateway.wait() == 0
                gateway.check_stopped()
        finally:
            process.kill()
        assert leaks(written_by(site.data, outputs)) == []


def run(command: Sequence[str], environ: Mapping[str, str] | None = None, within_s: float = 120.0) -> Ran:
    """A command that ends by itself."""
    ended = subprocess.run(
        command, env=environment(environ), capture_output=True, text=True, timeout=within_s, check=False
    )
    assert MARK not in ended.stdout + ended.stderr
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def environment(more: Mapping[str, str] | None) -> dict[str, str]:
    """This process's own, without what would set up another gateway, and `more`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
    # The servers of the tests are started by whatever Python runs them.
    ours = {"COLUMNS": "200", "PYTHONWARNINGS": "default", "TOOLGATE_ALLOWED_COMMANDS": "*"}
    return {**own, **ours, **ENVIRONMENT, **(more or {})}


def _announced(process: "subprocess.Popen[bytes]", outputs: Path) -> Json | None:
    assert process.poll() is None, (outputs / "stderr").read_text("utf-8")
    text = (outputs / "stdout").read_text("utf-8")
    found: Json | None = json.loads(text) if text.endswith("\n") else None
    return found


def _command_of_living(process: psutil.Process) -> str:
    """Empty for what is dead, reaped or not."""
    try:
        is_dead = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        return "" if is_dead else " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
