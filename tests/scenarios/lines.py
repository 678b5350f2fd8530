"""MCP clients on bare sockets, thousands of calls a second: each chooses its ids and sees all that comes."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from tests.scenarios.clients import LEGACY, META, MODERN


class NotSent(Exception):
    """There is no connection, so the server has seen nothing of it."""


class Unanswered(Exception):
    """The connection ended after the request was written: no one knows what came of it."""


class Answer(msgspec.Struct):
    """A JSON-RPC response. Its id keeps its type."""

    id: int | str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def text(self) -> str | None:
        """What the tool said, or None where the call failed."""
        if self.result is None or self.result.get("isError"):
            return None
        return str(self.result["content"][0]["text"])

    @property
    def code(self) -> str | None:
        """Why the call failed."""
        if self.error is not None:
            return str(self.error["data"]["code"])
        return str((self.result or {}).get("_meta", {}).get("toolgate/error", {}).get("code")) or None


decode_answer = msgspec.json.Decoder(Answer).decode


class Line(asyncio.Protocol):
    """A connection that is kept alive: one request at a time, answered whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._waiting: asyncio.Future[tuple[bytes, bytes]] | None = None
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, separator, rest = self._rest.partition(b"\r\n\r\n")
        if not separator:
            return
        size = int(_header(head, b"content-length") or 0)
        if len(rest) >= size:
            self._rest = rest[size:]
            waiting, self._waiting = self._waiting, None
            assert waiting is not None, "an answer to no request"
            if not waiting.done():
                waiting.set_result((head, rest[:size]))

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_open = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Unanswered())

    def exchange(self, request: bytes) -> "asyncio.Future[tuple[bytes, bytes]]":
        """Head and body of the answer, or Unanswered."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def cut(self) -> None:
        self._transport.abort()


@dataclass
class Caller:
    """One MCP client on one line at a time, of either era. A new line goes on with the old session."""

    address: str
    era: str
    path: str = "/api/mcp"
    secret: str | None = None
    session: bytes | None = None
    """Of the handshake era, from `open` on."""
    _line: Line | None = field(default=None, init=False)
    _heads: dict[str, bytes] = field(default_factory=dict, init=False)

    async def open(self) -> None:
        """Open the session, where the era has one."""
        if self.era == "modern":
            return
        info = {"name": "scenario", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        head, _ = await (await self._connected()).exchange(self._request(self._head(""), body))
        self.session = _header(head, b"mcp-session-id")
        self._heads.clear()

    async def post(self, body: bytes) -> None:
        """Send any message. Raises NotSent and Unanswered."""
        await (await self._connected()).exchange(self._request(self._head(""), body))

    async def call(self, tool: str, text: str, number: int | str = 0) -> Answer:
        """The answer to a call. Raises NotSent and Unanswered."""
        line = await self._connected()
        _, body = await line.exchange(self._call(tool, text, number))
        return decode_answer(body)

    async def abandon(self, tool: str, text: str, number: int | str = 0) -> None:
        """Send a call and go away once the gateway has had a moment to take it."""
        line = await self._connected()
        response = line.exchange(self._call(tool, text, number))
        await asyncio.wait([response], timeout=0.005)
        line.cut()
        await asyncio.wait([response])
        response.exception()

    def close(self) -> None:
        if self._line is not None:
            self._line.cut()

    async def _connected(self) -> Line:
        if self._line is None or not self._line.is_open:
            host, _, port = self.address.partition(":")
            try:
                _, self._line = await asyncio.get_running_loop().create_connection(Line, host, int(port))
            except OSError as exc:
                raise NotSent from exc
        return self._line

    def _call(self, tool: str, text: str, number: int | str) -> bytes:
        head = self._heads.get(tool)
        if head is None:
            head = self._heads[tool] = self._head(tool)
        params: dict[str, Any] = {"name": tool, "arguments": {"text": text}}
        if self.era == "modern":
            params["_meta"] = META
        message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        return self._request(head, msgspec.json.encode(message))

    def _head(self, tool: str) -> bytes:
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {self.address}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
        ]
        if self.secret is not None:
            lines.append(f"Authorization: Bearer {self.secret}")
        if self.era == "modern":
            lines += [f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", f"Mcp-Name: {tool}"]
        elif self.session is not None:
            lines += [f"MCP-Protocol-Version: {LEGACY}", f"Mcp-Session-Id: {self.session.decode()}"]
        return "\r\n".join([*lines, ""]).encode()

    @staticmethod
    def _request(head: bytes, body: bytes) -> bytes:
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        if line[: len(name)].lower() == name and line[len(name) : len(name) + 1] == b":":
            return line[len(name) + 1 :].strip()
    return None
