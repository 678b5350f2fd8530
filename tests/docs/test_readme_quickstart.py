"""A stranger follows the quickstart, each line as it is written: from nothing to a tool call in a client."""

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.docs.documents import ROOT, document
from tests.docs.gateways import TOOLGATE
from tests.eventually import eventually
from tests.forked_programs import forked
from tests.node import COMPILED_ONCE, MODULES, node
from tests.scenarios.ports import own_address

MAX_COMMANDS: Final = 5
WITHIN_S: Final = 120.0
SERVED: Final = ("everything.echo", "memory.search_nodes", "time.get_current_time")
"""A tool of each server in the stranger's `mcp.json`."""
MCP_JSON: Final = {
    "mcpServers": {
        "everything": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]},
        "memory": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]},
        "time": {"command": "uvx", "args": ["mcp-server-time", "--local-timezone", "UTC"]},
    }
}
SUBSTITUTES: Final = {
    # What a network is needed for comes from the locks of the tests instead.
    "pipx": f'[ "$*" = "install ." ] && ln -s "{TOOLGATE}" "$(dirname "$0")/toolgate"',
    "npx": f'shift; package=$1; shift; exec "{node()}" "{MODULES}/$package/dist/index.js" "$@"',
}


@dataclass(frozen=True)
class Stranger:
    """A person with an empty directory, a home with Cursor's settings, and no `toolgate`."""

    root: Path
    address: str

    @property
    def settings(self) -> Path:
        return self.root / "home" / ".cursor" / "mcp.json"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.root / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.root / "home"),
            "TOOLGATE_LISTEN": self.address,
            "TOOLGATE_URL": self.url,
            **COMPILED_ONCE,
        }

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def type(self, command: str) -> str:
        """What a shell prints for `command`. It must succeed."""
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.root / "clone",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def keep_running(self, command: str) -> Iterator[None]:
        """`command` in a terminal of its own, once it serves, until the end of the block."""
        log = self.root / "up.log"
        with (
            log.open("w") as output,
            subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                cwd=self.root / "clone",
                env=self.environment,
                stdout=output,
                stderr=output,
            ) as process,
        ):
            try:
                eventually(lambda: self.url in log.read_text("utf-8"), WITHIN_S)
                yield
            finally:
                process.terminate()
                process.wait(WITHIN_S)


@pytest.fixture
def stranger(tmp_path: Path) -> Stranger:
    someone = Stranger(tmp_path, own_address())
    for directory in ("bin", "clone", "home/.cursor"):
        (tmp_path / directory).mkdir(parents=True)
    uvx = f'exec {shlex.join(forked())} "$@"'
    for name, script in {**SUBSTITUTES, "uvx": uvx}.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        program.chmod(0o755)
    someone.settings.write_text(json.dumps(MCP_JSON), "utf-8")
    return someone


def quickstart() -> list[str]:
    """The commands of the quickstart, without their comments."""
    section = re.split(r"^## ", document("README.md").text, flags=re.MULTILINE)
    [text] = [one for one in section if one.startswith("Quickstart")]
    [block] = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line.partition(" #")[0].strip() for line in block.splitlines()]


def call_as_client(url: str, *words: str) -> str:
    """What the example of a client on the official SDK prints."""
    command = [sys.executable, str(ROOT / "examples" / "list_and_call.py"), url, *words]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quickstart_leads_from_nothing_to_a_tool_call_in_few_commands(stranger: Stranger) -> None:
    install, up, *others = quickstart()

    stranger.type(install)
    with stranger.keep_running(up):
        for command in others:
            stranger.type(command)
        written = json.loads(stranger.settings.read_text("utf-8"))["mcpServers"]
        [url] = [entry["url"] for name, entry in written.items() if name not in MCP_JSON["mcpServers"]]
        eventually(lambda: all(f"{tool}:" in call_as_client(url) for tool in SERVED), WITHIN_S)
        echoed = call_as_client(url, "everything.echo", "message=hello")
        with urllib.request.urlopen(f"{stranger.url}/console/") as response:
            console = response.status

    assert len(quickstart()) <= MAX_COMMANDS
    assert url.startswith(f"{stranger.url}/api/mcp")
    assert echoed == "Echo: hello\n"
    assert console == 200
