"""References: the upstream called directly, an upstream made with the official SDK, and the floors."""
from __future__ import annotations

import sys

import procs

from .base import HARNESS, Contender, Endpoint


class Direct(Contender):
    """The bench's own upstream with nothing in between: the figure every ratio is taken to."""

    name = "direct"
    eras = ("handshake", "modern")
    cannot = {"view5": "no gateway in between", "stdio": "no HTTP in between"}

    def launch(self, cpus):
        self.run([sys.executable, str(HARNESS / "upstream_http.py"), str(self.port)], cpus=cpus)

    def endpoint(self, view):
        return Endpoint(f"{self.base}/{view}/mcp") if view in ("small", "big", "hang") else None


class SdkServer(Contender):
    """An ordinary upstream made with the official SDK, called directly: what one hop of normal Python costs."""

    name = "sdk-server"
    eras = ("handshake", "modern")

    def launch(self, cpus):
        self.run([sys.executable, str(HARNESS / "upstream_sdk.py"), str(self.port)], cpus=cpus)

    def endpoint(self, view):
        return Endpoint(f"{self.base}/mcp") if view == "small" else None


class StdioDirect(Contender):
    """The stdio upstream with nothing in between: the load generator writes to its pipe."""

    name = "stdio-direct"
    pipe = True

    def start(self, cpus=None):
        return 0.0

    def endpoint(self, view):
        return Endpoint("http://none") if view == "stdio" else None


class Floor(Contender):
    """No MCP at all: measured only with `post` (the load generator's ceiling)."""

    floor = True

    def start(self, cpus=None):
        import time
        import urllib.request

        self.launch(cpus)
        for _ in range(200):
            try:
                urllib.request.urlopen(urllib.request.Request(self.base + "/", b"{}", method="POST"), timeout=5).read()
                return 0.0
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} not ready")

    def endpoint(self, view):
        return Endpoint(f"{self.base}/mcp") if view == "small" else None


class RawFloor(Floor):
    name = "floor-raw"

    def launch(self, cpus):
        self.run([sys.executable, str(HARNESS / "floors.py"), "raw", str(self.port)], cpus=cpus)


class AsgiFloor(Floor):
    name = "floor-asgi"

    def launch(self, cpus):
        command = [sys.executable, "-m", "uvicorn", "floors:asgi", "--app-dir", str(HARNESS), "--port", str(self.port),
                   "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning"]
        self.run(command, cpus=cpus)


class EchoRaw(Floor):
    """Servers compared: a JSON-RPC echo on a bare asyncio protocol (uvloop)."""

    name = "echo-raw"

    def launch(self, cpus):
        self.run([self.lab.python("harness"), str(HARNESS / "floors.py"), "echo", str(self.port)], cpus=cpus)


class EchoUvicorn(Floor):
    """... on uvicorn."""

    name = "echo-uvicorn"
    http = "httptools"
    loop = "uvloop"
    workers = 1

    def launch(self, cpus):
        command = [self.lab.bin("harness", "uvicorn"), "floors:echo", "--app-dir", str(HARNESS), "--port", str(self.port),
                   "--loop", self.loop, "--http", self.http, "--no-access-log", "--log-level", "warning",
                   "--workers", str(self.workers)]
        self.run(command, cpus=cpus)


class EchoUvicornH11(EchoUvicorn):
    name = "echo-uvicorn-h11"
    http = "h11"


class EchoUvicornAsyncio(EchoUvicorn):
    name = "echo-uvicorn-asyncio"
    loop = "asyncio"


class EchoGranian(Floor):
    """... on granian."""

    name = "echo-granian"
    loop = "uvloop"
    extra = ()

    def launch(self, cpus):
        command = [self.lab.bin("harness", "granian"), "--interface", "asgi", "floors:echo", "--working-dir", str(HARNESS),
                   "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1", "--loop", self.loop, "--http", "1",
                   "--log-level", "error", "--no-access-log", *self.extra]
        self.run(command, cpus=cpus)


class EchoGranianSt(EchoGranian):
    name = "echo-granian-st"
    extra = ("--runtime-mode", "st")


class EchoGranianRloop(EchoGranian):
    name = "echo-granian-rloop"
    loop = "rloop"


class EchoHypercorn(Floor):
    """... on hypercorn."""

    name = "echo-hypercorn"

    def launch(self, cpus):
        command = [self.lab.bin("harness", "hypercorn"), "floors:echo", "--bind", f"127.0.0.1:{self.port}", "-k", "uvloop",
                   "--log-level", "warning"]
        log = self.work / "log.txt"
        self.processes.append(procs.start(command, log=log, cwd=HARNESS, cpus=cpus))
