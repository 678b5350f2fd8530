"""Toolgate as it is installed: `toolgate up` with a directory of server files; audit and metrics are always on."""
from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import toolset

from .base import HARNESS, Contender, Endpoint

COMMAND = HARNESS.parent.parent / ".venv" / "bin" / "toolgate"


class Toolgate(Contender):
    """One process; each view is a URL of the same gateway."""

    name = "toolgate"
    command = str(COMMAND)
    eras = ("handshake", "modern")

    def launch(self, cpus):
        data, servers = self.work / "data", self.work / "servers"
        shutil.rmtree(data, ignore_errors=True)
        servers.mkdir(exist_ok=True)
        for view in ("small", "big", "hang"):
            self.write(servers, {"server_id": view, "transport": "streamable_http",
                                 "http": {"url": self.lab.upstream_url(view)}})
        command, *args = self.lab.stdio_command
        self.write(servers, {"server_id": "stdio", "transport": "stdio", "stdio": {"command": command, "args": args}})
        self.run([self.command, "up", "--listen", f"127.0.0.1:{self.port}", "--data", str(data),
                  "--mcp-registry-dir", str(servers), "--log-level", "warning"],
                 {"TOOLGATE_MAX_TOOLS": "1000"}, cpus)

    def write(self, directory: Path, record: dict) -> None:
        record |= {"allowed_tools": ["*"], "budgets": {"max_concurrency": 256}}
        (directory / f"{record['server_id']}.json").write_text(json.dumps(record))

    def endpoint(self, view):
        if view == "view5":
            tools = ",".join(f"big.{name}" for name in toolset.VIEW5)
            return Endpoint(f"{self.base}/api/mcp?tools={tools}", prefix="big.")
        return Endpoint(f"{self.base}/api/mcp?servers={view}", prefix=f"{view}.")


class ToolgateBare(Toolgate):
    """The single-server path, where names are bare."""

    name = "toolgate-bare"

    def endpoint(self, view):
        return super().endpoint(view) if view == "view5" else Endpoint(f"{self.base}/api/mcp/s/{view}")


class ToolgateOther(Toolgate):
    """The `toolgate` of another checkout, named by the variable OTHER_TOOLGATE: two commits measured in one run."""

    name = "toolgate-other"
    command = os.environ.get("OTHER_TOOLGATE", "toolgate")
