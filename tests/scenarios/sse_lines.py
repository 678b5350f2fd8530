"""A client of the transport of 2024 on bare sockets: it posts on one connection, and hears on another."""

import asyncio
from dataclasses import dataclass, field

import msgspec

from tests.scenarios.lines import Answer, Caller, decode_answer

VERSION = "2024-11-05"


@dataclass
class SseCaller:
    """Does as `Caller` does, in that transport."""

    address: str
    secret: str | None = None
    _posts: Caller = field(init=False)
    _waiting: dict[int | str | None, asyncio.Future[Answer]] = field(default_factory=dict, init=False)
    _reading: "asyncio.Task[None]" = field(init=False)
    _writer: asyncio.StreamWriter = field(init=False)

    async def open(self) -> None:
        """Open the stream, and on it the session."""
        host, _, port = self.address.partition(":")
        reader, self._writer = await asyncio.open_connection(host, int(port))
        lines = ["GET /api/mcp HTTP/1.1", f"Host: {self.address}", "Accept: text/event-stream"]
        if self.secret is not None:
            lines.append(f"Authorization: Bearer {self.secret}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        await reader.readuntil(b"event: endpoint\ndata: ")
        place = (await reader.readline()).decode().strip()
        self._posts = Caller(self.address, "legacy", path=place, secret=self.secret)
        self._reading = asyncio.create_task(self._read(reader))
        info = {"name": "scenario", "version": "1"}
        await self._ask("initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}, 0)

    async def call(self, tool: str, text: str, number: int | str = 0) -> Answer:
        """The answer to a call. Raises NotSent and Unanswered."""
        return await self._ask("tools/call", {"name": tool, "arguments": {"text": text}}, number)

    async def abandon(self, tool: str, text: str, number: int | str = 0) -> None:
        """Send a call and take it back. It gets no answer, so the id is free again."""
        await self._post({"id": number, "method": "tools/call"}, {"name": tool, "arguments": {"text": text}})
        await self._post({"method": "notifications/cancelled"}, {"requestId": number})

    def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        self._posts.close()

    async def _ask(self, method: str, params: object, number: int | str) -> Answer:
        response: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = response
        await self._post({"id": number, "method": method}, params)
        return await response

    async def _post(self, message: dict[str, object], params: object) -> None:
        await self._posts.post(msgspec.json.encode({"jsonrpc": "2.0", **message, "params": params}))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                response = decode_answer(line.removeprefix(b"data: "))
                self._waiting.pop(response.id).set_result(response)
