"""An HTTP server that does what a script says, byte for byte, and an MCP server of either era on it.

Every request and connection is kept, so a test can count what really arrived.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
JSON = "application/json"
EVENTS = "text/event-stream"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_END = b"0\r\n\r\n"


@dataclass(frozen=True)
class Request:
    """What arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.body)
        return message

    @property
    def rpc(self) -> str:
        """The JSON-RPC method, or the HTTP one where there is no message."""
        return str(self.message.get("method", "answer")) if self.body else self.method

    @property
    def is_modern(self) -> bool:
        return self.headers.get("mcp-protocol-version") == MODERN


class Peer:
    """One connection from the server's side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Exactly these bytes."""
        self.write(data)
        await self._writer.drain()

    def write(self, data: bytes) -> None:
        """The same, without waiting until there is room for more."""
        if self._writer.is_closing():
            raise ConnectionResetError("the client is gone")  # where uvloop has an error of its own
        self._writer.write(data)

    def say(self, message: Any) -> None:
        """An event on an open stream, in the same way."""
        self.write(encode_chunk(encode_event(message)))

    async def respond(
        self, body: bytes = b"", *, status: int = 200, kind: str = JSON, headers: Iterable[str] = ()
    ) -> None:
        """A whole response."""
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
        if body:
            lines.append(f"Content-Type: {kind}")
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def result(self, request: Request, result: Any, *, headers: Iterable[str] = ()) -> None:
        message = {"jsonrpc": "2.0", "id": request.message["id"], "result": result}
        await self.respond(json.dumps(message).encode(), headers=headers)

    async def error(self, request: Request, code: int, *, status: int = 200, **more: Any) -> None:
        error = {"code": code, "message": "no", **more}
        message = {"jsonrpc": "2.0", "id": request.message["id"], "error": error}
        await self.respond(json.dumps(message).encode(), status=status)

    async def open_stream(self) -> None:
        """The head of a chunked event stream."""
        await self.send(STREAM_HEAD)

    async def chunk(self, data: bytes) -> None:
        await self.send(encode_chunk(data))

    async def event(self, message: Any, *, position: str = "") -> None:
        await self.chunk(encode_event(message, position))

    async def end_stream(self) -> None:
        await self.send(STREAM_END)

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """End with RST instead of FIN."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Returns when the client has closed the connection."""
        while await self._reader.read(65536):
            pass


def encode_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode_event(message: Any, position: str = "") -> bytes:
    prefix = f"id: {position}\n" if position else ""
    return f"{prefix}event: message\ndata: {json.dumps(message)}\n\n".encode()


Script = Callable[[Request, Peer], Awaitable[None]]


class FaultyHttp:
    """Serves on loopback while entered. A script that returns leaves its connection open for another."""

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    async def stop_listening(self) -> None:
        """Refuse new connections; those there are go on."""
        self._server.close()
        await asyncio.sleep(0)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/mcp"

    def seen(self, rpc: str) -> list[Request]:
        return [request for request in self.requests if request.rpc == rpc]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            while not writer.is_closing():
                request = await _read_request(reader)
                self.requests.append(request)
                await self._script(request, peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, path, _ = start.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


class FakeMcp:
    """An MCP server, honest in everything a fault does not override. Use it as the script of a FaultyHttp."""

    def __init__(
        self,
        *eras: str,
        faults: Mapping[str, Script] | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.eras = eras or ("modern",)
        self.faults = dict(faults or {})
        """By JSON-RPC method, or by HTTP method where there is no message."""
        self.capabilities = capabilities or {"tools": {}}
        self.sessions: set[str] = set()
        self._minted = 0

    async def __call__(self, request: Request, peer: Peer) -> None:
        fault = self.faults.get(request.rpc)
        if fault is not None:
            await fault(request, peer)
        elif request.method != "POST":
            await peer.respond(status=405 if request.method == "GET" else 200)
        elif request.rpc == "server/discover":
            await self._discover(request, peer)
        elif request.rpc == "initialize":
            await self._initialize(request, peer)
        elif not self._admits(request):
            await peer.error(request, -32600, status=404)
        elif "id" not in request.message or "method" not in request.message:
            await peer.respond(status=202)
        elif request.rpc == "tools/call":
            await peer.result(request, {"echo": request.message["params"].get("arguments")})
        else:
            await peer.error(request, -32601)

    def _admits(self, request: Request) -> bool:
        return request.is_modern or request.headers.get("mcp-session-id") in self.sessions

    async def _discover(self, request: Request, peer: Peer) -> None:
        if "modern" not in self.eras:
            await peer.error(request, -32601, status=400)
            return
        await peer.result(
            request,
            {
                "supportedVersions": [MODERN],
                "capabilities": self.capabilities,
                "instructions": "be kind",
                "ttlMs": 0,
                "cacheScope": "public",
                "resultType": "complete",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "1"}},
            },
        )

    async def _initialize(self, request: Request, peer: Peer) -> None:
        if "legacy" not in self.eras:
            await peer.error(request, -32022, status=400, data={"supported": [MODERN], "requested": LEGACY})
            return
        self._minted += 1
        session = f"session-{self._minted}"
        self.sessions.add(session)
        result = {
            "protocolVersion": request.message["params"]["protocolVersion"],
            "capabilities": self.capabilities,
            "serverInfo": {"name": "fake", "version": "1"},
            "instructions": "be kind",
        }
        await peer.result(request, result, headers=[f"Mcp-Session-Id: {session}"])
