"""Prototypes of a raw-JSON gateway: what building blocks a Python gateway could be made of, and how far they go."""
from __future__ import annotations

import json

from .base import HARNESS, Contender, Endpoint

PROTOTYPES = HARNESS / "prototypes"


class Prototype(Contender):
    eras = ("handshake", "modern")
    client = "pool"
    govern = False
    workers = 1

    def env(self) -> dict[str, str]:
        return {"BENCH_UPSTREAM": self.lab.upstream, "BENCH_STDIO": json.dumps(self.lab.stdio_command),
                "BENCH_CLIENT": self.client, "BENCH_GOVERN": "1" if self.govern else "0",
                "BENCH_AUDIT": str(self.work / "audit.jsonl")}

    def endpoint(self, view):
        return Endpoint(f"{self.base}/{view}/mcp")


class Uvicorn(Prototype):
    def launch(self, cpus):
        command = [self.lab.bin("harness", "uvicorn"), "gate_asgi:app", "--app-dir", str(PROTOTYPES), "--host", "127.0.0.1",
                   "--port", str(self.port), "--loop", "uvloop", "--http", "httptools", "--no-access-log",
                   "--log-level", "warning", "--workers", str(self.workers)]
        self.run(command, self.env(), cpus)


class Granian(Prototype):
    loop = "uvloop"

    def launch(self, cpus):
        command = [self.lab.bin("harness", "granian"), "--interface", "asgi", "gate_asgi:app", "--working-dir",
                   str(PROTOTYPES), "--host", "127.0.0.1", "--port", str(self.port), "--workers", str(self.workers),
                   "--loop", self.loop, "--http", "1", "--log-level", "error", "--no-access-log"]
        self.run(command, self.env(), cpus)


class Raw(Prototype):
    def launch(self, cpus):
        command = [self.lab.python("harness"), str(PROTOTYPES / "gate_raw.py"), str(self.port), str(self.workers)]
        self.run(command, self.env(), cpus)


def _make(name: str, base: type, **values) -> None:
    globals()[name.replace("-", "_")] = type(name, (base,), {"name": f"proto-{name}", "__module__": __name__, **values})


for _client in ("httpx", "httpx2", "aiohttp", "pyreqwest", "wreq", "primp", "niquests", "pool", "pool-httptools"):
    _make(f"uvicorn-{_client}", Uvicorn, client=_client)
_make("granian-pool", Granian)
_make("granian-aiohttp", Granian, client="aiohttp")
_make("granian-pyreqwest", Granian, client="pyreqwest")
_make("raw-pool", Raw)
_make("raw-pool-httptools", Raw, client="pool-httptools")
_make("uvicorn-governed", Uvicorn, client="pool-httptools", govern=True)
_make("raw-governed", Raw, client="pool-httptools", govern=True)
_make("uvicorn-pool-2w", Uvicorn, client="pool-httptools", workers=2)
_make("granian-pool-2w", Granian, client="pool-httptools", workers=2)
_make("raw-pool-2w", Raw, client="pool-httptools", workers=2)
