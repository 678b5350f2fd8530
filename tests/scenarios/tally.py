"""The servers of `tally_server.py`: their records, and the calls they got."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.eventually import eventually_equal
from tests.scenarios.gateway import Gateway, Json, Site
from tests.scenarios.ports import own_port

SCRIPT = Path(__file__).with_name("tally_server.py")
AT_ONCE = {"max_concurrency": 128}


def tally_child(site: Site, server_id: str, *words: str, **budgets: int) -> Json:
    """The record of one that the gateway starts."""
    args = ["-I", "-S", str(SCRIPT), "stdio", *words, f"site={site.root}"]
    return site.server(
        server_id, stdio={"command": sys.executable, "args": args}, budgets=AT_ONCE | budgets, prewarm=True
    )


@dataclass
class TallyHttp:
    """One behind a URL. It can be replaced by another, which then listens where it did."""

    words: tuple[str, ...]
    port: int = 0
    _process: "subprocess.Popen[str]" = field(init=False)

    def start(self) -> None:
        self.port = self.port or own_port()
        command = [sys.executable, "-I", "-S", str(SCRIPT), f"http={self.port}", *self.words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{self.port}\n"

    def kill(self) -> None:
        with self._process:
            self._process.kill()

    def forget_sessions(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def record(self, site: Site, server_id: str, **budgets: int) -> Json:
        http: Any = {"url": f"http://127.0.0.1:{self.port}/mcp"}
        transport = "http_sse_legacy" if "sse" in self.words else "streamable_http"
        return site.server(server_id, transport=transport, http=http, budgets=AT_ONCE | budgets, prewarm=True)


@contextmanager
def open_tally_http(*words: str) -> Iterator[TallyHttp]:
    server = TallyHttp(words)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def wait_listed(gateway: Gateway, *server_ids: str) -> None:
    """Passes once the tools of these servers are known."""
    eventually_equal(lambda: {gateway.health(server_id)["tools"] > 0 for server_id in server_ids}, {True}, 60)


def executed(log: Path) -> Counter[str]:
    """How often each text was called with."""
    return Counter(log.read_text("ascii").split())
