"""Types the commands of a guide, each on the host that its block names: `# on node-1, node-2`.

Every host is a directory. What belongs to a real host is replaced by the table in `Host.table`, and these
programs by stand-ins, which ask this process to do the work:

| program | here |
| --- | --- |
| `ssh`, `scp` | run or copy on the host that they name; texts are copied with that host's table applied |
| `systemctl` | runs `ExecStart` of the unit, with its `EnvironmentFile`; the proxies in the foreground |
| `nginx` | the real one, with the host's configuration |
| `useradd`, `chown` | do nothing |

All else runs as it is written: `openssl`, `psql`, `curl`, `haproxy`, `toolgate`.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.docs.documents import Document
from tests.postgres import find_program
from tests.scenarios.gateway import Site

PROGRAMS = Path(sys.executable).parent
STAND_INS = ("ssh", "scp", "systemctl", "nginx", "useradd", "chown")
STOP_S = 60.0
_LABEL = re.compile(r"^# on (.+)\n")
_REMOTE = re.compile(r"root@([\w-]+)\.example\.com")
_STAND_IN = """#!{python} -IS
import json, os, socket, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with socket.socket(socket.AF_UNIX) as line:
    line.connect({socket!r})
    order = {{"host": os.environ["GUIDE_HOST"], "cwd": os.getcwd(), "program": name, "words": words}}
    line.sendall(json.dumps(order).encode() + b"\\n")
    done = json.loads(line.makefile().read())
sys.stdout.write(done["output"])
sys.exit(done["code"])
"""


class GuideBlock(NamedTuple):
    """Commands, and the hosts that they are for."""

    hosts: list[str]
    script: str


def guide_blocks(guide: Document) -> list[GuideBlock]:
    """The blocks of commands in a guide, in order. Each says where to type it."""
    found = []
    for block in guide.blocks("sh"):
        label = _LABEL.match(block)
        assert label is not None, f"no host is named in {block}"
        found.append(GuideBlock(label[1].split(", "), block[label.end() :]))
    return found


@dataclass
class Host:
    """A directory in the place of a machine."""

    name: str
    root: Path
    table: Mapping[str, str]
    """What is different here. Longer texts are replaced first."""
    units: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.root / "log"

    def path(self, path: str) -> Path:
        """Where a path of the machine is."""
        return self.root / path.lstrip("/")

    def render(self, text: str) -> str:
        """A text of the guide as it is on this host."""
        ordered = sorted(self.table, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, ordered)), lambda found: self.table[found[0]], text)


@dataclass
class GuideHosts:
    """All hosts of a guide, and the stand-ins that their commands find."""

    hosts: Mapping[str, Host]
    directory: Path
    """Of the stand-ins and their socket: short, because the path of a socket has at most 107 bytes."""
    environ: Mapping[str, str]

    def type(self, block: GuideBlock) -> str:
        """Type a block on all its hosts, at the same time; what they printed. Fails if a command does."""
        with ThreadPoolExecutor(len(block.hosts)) as threads:
            return "".join(
                threads.map(lambda name: self._type_on(self.hosts[name], block.script), block.hosts)
            )

    def run(self, name: str, script: str) -> str:
        """Type what is in no block, such as what a guide supposes."""
        return self._type_on(self.hosts[name], script)

    def copy_files(self, name: str, directory: Path) -> None:
        """Put a directory's files where the reader is on this host, as they are on it."""
        host = self.hosts[name]
        for source in directory.rglob("*"):
            target = host.path("/home") / source.relative_to(directory)
            if source.is_dir():
                target.mkdir()
            else:
                target.write_text(source.read_text("utf-8"), "utf-8")

    def _type_on(self, host: Host, script: str) -> str:
        # A shell that stays open: variables and the umask last until the next block.
        kept = shlex.quote(str(host.root / "exported"))
        keep = f"{{ export -p; echo umask $(umask); }} > {kept}"
        typed = f"[ ! -e {kept} ] || . {kept}\n{host.render(script)}\n{keep}"
        ran = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", typed],
            cwd=host.root / "home",
            env={**self.environ, "GUIDE_HOST": host.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, f"on {host.name}:\n{typed}\n{ran.stdout}{self.logs()}"
        return ran.stdout

    def logs(self) -> str:
        """What all units wrote."""
        written = {name: host.log for name, host in self.hosts.items() if host.log.exists()}
        return "".join(f"\n--- {name}\n{path.read_text('utf-8')}" for name, path in written.items())

    def answer(self, order: Mapping[str, Any]) -> tuple[int, str]:
        """What a stand-in is to do."""
        host, words = self.hosts[order["host"]], [word for word in order["words"] if word != "-q"]
        acts: dict[str, Callable[[], tuple[int, str]]] = {
            "ssh": lambda: self._run_at(words),
            "scp": lambda: self._copy([Path(order["cwd"], word) for word in words[:-1]], words[-1]),
            "systemctl": lambda: self._control(host, words),
            "nginx": lambda: _run([*_nginx(host), *words]),
        }
        return acts.get(order["program"], lambda: (0, ""))()

    def _run_at(self, words: Sequence[str]) -> tuple[int, str]:
        host = self._named(words[0])
        return _run([str(host.path(word)) if word.startswith("/") else word for word in words[1:]])

    def _copy(self, sources: Sequence[Path], target: str) -> tuple[int, str]:
        there, _, path = target.partition(":")
        host = self._named(there)
        into = host.path(path)
        for source in sources:
            copied = into / source.name if into.is_dir() else into
            copied.write_text(host.render(source.read_text("utf-8")), "utf-8")
            shutil.copymode(source, copied)
        return 0, ""

    def _named(self, address: str) -> Host:
        found = _REMOTE.fullmatch(address)
        assert found is not None, address
        return self.hosts[found[1]]

    def _control(self, host: Host, words: Sequence[str]) -> tuple[int, str]:
        verb, unit = words[0], words[-1]
        running = host.units.get(unit)
        if verb == "stop" or (verb == "restart" and running is not None):
            self.stop(host, unit)
        if verb in {"start", "restart"} or "--now" in words:
            with host.log.open("ab") as log:
                command, environ = self._unit(host, unit)
                started = subprocess.Popen(command, env=environ, cwd=host.root, stdout=log, stderr=log)
            host.units[unit] = started
        elif verb == "reload" and running is not None:
            running.send_signal(signal.SIGHUP)
        return 0, ""

    def _unit(self, host: Host, unit: str) -> tuple[list[str], Mapping[str, str]]:
        if unit == "nginx":
            return [*_nginx(host), "-g", "daemon off;"], self.environ
        if unit == "haproxy":
            return ["haproxy", "-db", "-f", str(host.path("/etc/haproxy/haproxy.cfg"))], self.environ
        lines = unit_settings(host.path(f"/etc/systemd/system/{unit}.service").read_text("utf-8"))
        variables = Path(lines["EnvironmentFile"].removeprefix("-"))
        is_there = variables.exists() or not lines["EnvironmentFile"].startswith("-")
        pairs = [line.partition("=") for line in variables.read_text().splitlines()] if is_there else []
        return shlex.split(lines["ExecStart"]), {**self.environ, **{name: value for name, _, value in pairs}}

    def stop(self, host: Host, unit: str) -> None:
        """SIGTERM, as `KillMode=mixed` sends it; it ends well, and so does all that it started."""
        process = host.units.pop(unit)
        process.terminate()
        assert process.wait(STOP_S) == 0 or unit == "haproxy", self.logs()

    def stop_all(self) -> None:
        for host in self.hosts.values():
            for unit in [*host.units]:
                self.stop(host, unit)


def unit_settings(text: str) -> dict[str, str]:
    """The settings of a systemd unit, by their names; each is there once."""
    pairs = [line.partition("=") for line in text.splitlines() if line and line[0] not in "#["]
    settings = {name: value for name, _, value in pairs}
    assert len(settings) == len(pairs)
    return settings


def _nginx(host: Host) -> list[str]:
    return ["/usr/sbin/nginx", "-p", str(host.root), "-c", str(host.path("/etc/nginx/nginx.conf"))]


def _run(command: Sequence[str]) -> tuple[int, str]:
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return ran.returncode, ran.stdout


@contextmanager
def open_hosts(
    root: Path, tables: Mapping[str, Mapping[str, str]], variables: Mapping[str, str] | None = None
) -> Iterator[GuideHosts]:
    """Hosts with these tables and variables. When it ends, all that runs there is stopped, and checked."""
    directory = Path(tempfile.mkdtemp(prefix="tgguide"))
    hosts = {name: Host(name, root / name.replace(" ", "-"), table) for name, table in tables.items()}
    for host in hosts.values():
        for path in ("home", "etc/systemd/system", "etc/nginx/conf.d", "etc/haproxy"):
            host.path(path).mkdir(parents=True)
    found = GuideHosts(hosts, directory, {**_environment(directory, root), **(variables or {})})
    try:
        with _answering(found):
            yield found
            found.stop_all()
    finally:
        left = [process for host in hosts.values() for process in host.units.values()]
        for process in left:
            process.kill()
        shutil.rmtree(directory)
    assert [" ".join(one.cmdline()) for one in Site(root).processes()] == []
    assert "Traceback" not in found.logs()


def _environment(directory: Path, root: Path) -> dict[str, str]:
    """As that of a host: nothing in it sets up Toolgate."""
    own = {name: value for name, value in os.environ.items() if name in {"LANG", "TMPDIR"}}
    path = [directory, find_program("psql").parent, PROGRAMS, "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    return {**own, "PATH": ":".join(map(str, path)), "HOME": str(root), "COLUMNS": "120"}


@contextmanager
def _answering(hosts: GuideHosts) -> Iterator[None]:
    socket = str(hosts.directory / "socket")
    for name in STAND_INS:
        program = hosts.directory / name
        program.write_text(_STAND_IN.format(python=sys.executable, socket=socket), "utf-8")
        program.chmod(0o755)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            code, output = hosts.answer(json.loads(self.rfile.readline()))
            self.wfile.write(json.dumps({"code": code, "output": output}).encode())

    with socketserver.ThreadingUnixStreamServer(socket, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
