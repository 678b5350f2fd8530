"""A client of either era, on bare sockets, that hears of its calls while they run and can be asked something.

It chooses its ids and progress tokens itself, so that they can be those of others.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.clients import LEGACY, META, MODERN

Message = dict[str, Any]
CAN_ANSWER: Message = {"elicitation": {"form": {}}}


@dataclass
class Received:
    """All that came of one call."""

    progress: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    text: str | None = None
    """What the tool said; None where the call failed."""


@dataclass
class Incoming:
    """An answer that is coming: its messages one by one, whether it is whole or a stream."""

    status: int
    headers: dict[str, str]
    _reader: asyncio.StreamReader

    async def messages(self) -> AsyncIterator[Message]:
        if self.headers.get("transfer-encoding") != "chunked":
            body = await self._reader.readexactly(int(self.headers["content-length"]))
            if body:
                yield json.loads(body)
            return
        while size := int(await self._reader.readline(), 16):
            chunk = (await self._reader.readexactly(size + 2)).decode()
            for line in chunk.split("\n"):  # the gateway writes an event at once
                if line.startswith("data: {"):
                    yield json.loads(line.removeprefix("data: "))


@dataclass
class AskableClient:
    """Answers every question with its own name and the question."""

    name: str
    address: str
    era: str
    secret: str | None = None
    can_respond: bool = True
    session: dict[str, str] = field(default_factory=dict)

    async def open(self) -> None:
        """Open the session, where the era has one."""
        if self.era == "modern":
            return
        info = {"name": self.name, "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": self._capabilities, "clientInfo": info}
        async with self._exchange({"id": 0, "method": "initialize", "params": params}) as response:
            self.session = {
                "Mcp-Session-Id": response.headers["mcp-session-id"],
                "MCP-Protocol-Version": LEGACY,
            }

    async def call(self, tool: str, text: str, *, number: int | str, token: int | str) -> Received:
        """Call, hear what is said meanwhile, and answer what is asked."""
        received, params = Received(), self.params(tool, text, token=token)
        await self.go_on(params, await self.request(params, number, received), number, received)
        return received

    def params(self, tool: str, text: str, *, token: int | str) -> Message:
        """Those of a call."""
        params: Message = {"name": tool, "arguments": {"text": text}, "_meta": {"progressToken": token}}
        if self.era == "modern":
            params["_meta"] |= META | {"io.modelcontextprotocol/clientCapabilities": self._capabilities}
        return params

    async def go_on(self, params: Message, result: Message, number: int | str, received: Received) -> None:
        """Answer what a result asks, round by round."""
        while result.get("resultType") == "input_required":
            asked = result["inputRequests"]
            responses = {key: self._answer(one["params"], received) for key, one in asked.items()}
            brought = {"inputResponses": responses, "requestState": result["requestState"]}
            result = await self.request(params | brought, number, received)

    async def request(self, params: Message, number: int | str, received: Received) -> Message:
        """One round of a call: its result, empty where it failed."""
        request = {"id": number, "method": "tools/call", "params": params}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": params["name"]}
        result: Message = {}
        async with self._exchange(request, headers if self.era == "modern" else self.session) as response:
            async for message in response.messages():
                if message.get("method") == "notifications/progress":
                    assert message["params"]["progressToken"] == params["_meta"]["progressToken"]
                    received.progress.append(message["params"]["message"])
                elif message.get("method") == "elicitation/create":
                    await self.reply(message["id"], self._answer(message["params"], received))
                else:
                    assert message["id"] == number
                    result = message.get("result", {})
        if "content" in result and not result.get("isError"):
            received.text = result["content"][0]["text"]
        return result

    async def reply(self, ask_id: Any, response: Message) -> int:
        """Answer a question in this client's session; the status that comes back."""
        async with self._exchange({"id": ask_id, "result": response}, self.session) as taken:
            return taken.status

    @property
    def _capabilities(self) -> Message:
        return CAN_ANSWER if self.can_respond else {}

    def _answer(self, question: Message, received: Received) -> Message:
        received.questions.append(question["message"])
        return {"action": "accept", "content": {"said": f"{self.name}: {question['message']}"}}

    @asynccontextmanager
    async def _exchange(
        self, message: Message, headers: dict[str, str] | None = None
    ) -> AsyncIterator[Incoming]:
        host, _, port = self.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            writer.write(self._head(headers or {}, len(body)) + body)
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.partition(":") for line in lines)
            found = {name.lower(): value.strip() for name, _, value in pairs}
            yield Incoming(int(first.split(" ")[1]), found, reader)
        finally:
            writer.close()

    def _head(self, more: dict[str, str], size: int) -> bytes:
        lines = {
            "Host": self.address,
            "Content-Type": "application/json",
            "Content-Length": str(size),
            **more,
        }
        lines["Accept"] = "application/json, text/event-stream"
        if self.secret is not None:
            lines["Authorization"] = f"Bearer {self.secret}"
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST /api/mcp HTTP/1.1\r\n{text}\r\n".encode()
