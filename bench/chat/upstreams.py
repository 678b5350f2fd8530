"""What stands behind the gateway in the chat bench: a model that answers at once, and an MCP server with one tool.

Both as cheap as Python allows, in one process on uvloop, so that what is measured through a gateway is the gateway.

    POST /v1/chat/completions    the name of the model says what it does, see below; streamed where it is asked for
    POST /mcp                    MCP of 2026-07-28: `echo`

`rounds-N` calls `echo` in each of the first N rounds, then says one sentence. `paced-N-MS-CHUNKS` does the same, but
says CHUNKS words, one every MS milliseconds.

    python upstreams.py PORT
"""

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))

import wire

ANSWER = "All of it was said."
TOOL = {
    "name": "echo",
    "description": "Say the same.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}}
LASTING = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public", "_meta": STAMP}
RESULTS = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **LASTING},
    "tools/list": {"tools": [TOOL], **LASTING},
    "tools/call": {"content": [{"type": "text", "text": "said"}], "resultType": "complete", "_meta": STAMP},
}
HEAD = {"id": "chatcmpl-bench", "created": 1_790_000_000, "model": "bench"}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
encode = msgspec.json.encode


class Asked(msgspec.Struct):
    """What matters of a chat request."""

    model: str
    messages: list[msgspec.Raw]
    stream: bool = False


class Called(msgspec.Struct):
    """What matters of an MCP request."""

    method: str
    id: msgspec.Raw = msgspec.Raw()
    """Empty in a notification."""


decode_asked = msgspec.json.Decoder(Asked).decode
decode_called = msgspec.json.Decoder(Called).decode


def call(number: int) -> dict[str, object]:
    function = {"name": "mcp__bench__echo", "arguments": '{"text": "round %d"}' % number}
    return {"id": f"call_{number}", "type": "function", "function": function}


def completion(message: dict[str, object], reason: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": reason}
    return encode({**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE})


def chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: %b\n\n" % encode({**HEAD, "object": "chat.completion.chunk", "choices": [choice]})


def framed(body: bytes, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_TAIL = chunked(chunk({}, "stop")) + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"
ROLE = chunk({"role": "assistant", "content": ""})


def words(model: str) -> tuple[int, float, Iterator[str]]:
    """Of a model's name: rounds with tools, seconds between two pieces, the pieces."""
    kind, rounds, *rest = model.split("-")
    if kind == "rounds":
        return int(rounds), 0.0, iter([ANSWER])
    pause_ms, pieces = map(int, rest)
    return int(rounds), pause_ms / 1000, (f"word{number} " for number in range(pieces))


class Upstream(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (found := wire.split(self.buffer)) is not None:
            head, body, used = found
            self.buffer = self.buffer[used:]
            if head.startswith(b"POST /mcp"):
                self.transport.write(self.of_mcp(body))
            else:
                self.chat(decode_asked(body))

    def of_mcp(self, body: bytes) -> bytes:
        asked = decode_called(body)
        if not bytes(asked.id):
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        result = encode(RESULTS.get(asked.method, {}))
        return framed(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (bytes(asked.id), result))

    def chat(self, asked: Asked) -> None:
        rounds, pause_s, pieces = words(asked.model)
        done = sum(b'"tool_call_id"' in bytes(one) for one in asked.messages)
        if done < rounds and not asked.stream:
            self.transport.write(framed(completion({"tool_calls": [call(done)]}, "tool_calls")))
        elif done < rounds:
            calling = chunk({"tool_calls": [{"index": 0, **call(done)}]})
            body = ROLE + calling + chunk({}, "tool_calls") + b"data: [DONE]\n\n"
            self.transport.write(STREAM_HEAD + chunked(body) + b"0\r\n\r\n")
        elif not asked.stream:
            self.transport.write(framed(completion({"content": "".join(pieces)}, "stop")))
        else:
            self.transport.write(STREAM_HEAD + chunked(ROLE))
            self.say(pieces, pause_s)

    def say(self, pieces: Iterator[str], pause_s: float) -> None:
        piece = next(pieces, None)
        if piece is None:
            self.transport.write(STREAM_TAIL)
            return
        self.transport.write(chunked(chunk({"content": piece})))
        if pause_s:
            asyncio.get_running_loop().call_later(pause_s, self.say, pieces, pause_s)
        else:
            self.say(pieces, pause_s)


async def main(port: str) -> None:
    gc.freeze()
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", int(port), backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
