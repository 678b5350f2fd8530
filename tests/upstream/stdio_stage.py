"""What the stdio tests share: the faulty server as a record, a listener that remembers, an open link."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from toolgate.model.servers import ServerRecord, StdioLaunch
from toolgate.upstream.connection.contract import Params, Purpose, RpcResponse
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnection, StdioConnector

FAULTY = str(Path(__file__).with_name("faulty_server.py"))
BIN = Path(sys.executable).parent


@dataclass
class Listener:
    """Remembers what it was told."""

    closed: list[str] = field(default_factory=list)
    notifications: list[tuple[str, bytes]] = field(default_factory=list)
    stderr: bytes = b""
    stderr_bytes: int = 0
    has_closed: asyncio.Event = field(default_factory=asyncio.Event)
    purpose: Purpose = "start"

    def on_notification(self, method: str, params: bytes) -> None:
        self.notifications.append((method, params))

    def on_session_replaced(self) -> bool:
        return True

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)
        self.has_closed.set()

    def on_stderr(self, text: bytes) -> None:
        self.stderr_bytes += len(text)
        self.stderr = (self.stderr + text)[-65536:]

    def on_reading(self) -> None:
        """No test asks."""


def faulty(*words: str, **launch: Any) -> ServerRecord:
    """The record of a server that misbehaves as `words` say (see `faulty_server`)."""
    return ServerRecord(
        server_id="faulty",
        transport="stdio",
        stdio=StdioLaunch(command=sys.executable, args=("-I", "-S", FAULTY, *words), **launch),
    )


def command(*argv: str, **launch: Any) -> ServerRecord:
    return ServerRecord(
        server_id="server", transport="stdio", stdio=StdioLaunch(command=argv[0], args=argv[1:], **launch)
    )


@asynccontextmanager
async def open_opener(
    environ: Mapping[str, str] = os.environ, **limits: Any
) -> AsyncIterator[StdioConnector]:
    warden = Warden()
    try:
        yield StdioConnector(warden, Secrets(environ), **limits)
    finally:
        await warden.aclose()


@asynccontextmanager
async def open_link(
    record: ServerRecord, listener: Listener | None = None, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[StdioConnection]:
    async with open_opener(environ) as opener:
        link = await opener(record, listener or Listener(), known_revision=None)
        try:
            yield link
        finally:
            await link.aclose()


def tool(name: str, **arguments: Any) -> Params:
    """The params of a `tools/call`."""
    return {
        "name": msgspec.Raw(json.dumps(name).encode()),
        "arguments": msgspec.Raw(json.dumps(arguments).encode()),
    }


async def call(link: StdioConnection, name: str, timeout_s: float = 60.0, **arguments: Any) -> Any:
    """What the tool says: its text, read as JSON where it is."""
    return content(await link.request("tools/call", tool(name, **arguments), timeout_s=timeout_s))


def content(rpc: RpcResponse) -> Any:
    assert rpc.result is not None, rpc.error
    text = json.loads(rpc.result)["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does, for it was not reaped."""
    return Path(f"/proc/{pid}").exists()


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
