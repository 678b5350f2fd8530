"""An MCP server for scenarios of many calls: quick, and never in order. Standard library only.

Words on its command line:

    stdio | http=PORT   where it serves; it says its port first
    sse                 over HTTP in the transport of 2024: answers come on a stream that all calls share
    modern              speaks 2026-07-28 alone (2025-11-25 alone otherwise)
    log=PATH            appends the text of every call, before it is answered
    site=ANY            only marks its process

Of what is in flight at once the newest is answered first. Its tools:

    echo    says the same
    slow    says the same a fifth of a second later, whether or not anyone still wants it
    late    says the same once the call is taken back; over HTTP, where no one listens any more, never
    tell    reports progress three times, and says the same
    ask     asks the client with this text, and says what it answers; `refused` where it does not

SIGHUP makes it forget the sessions of the handshake era, as a server does that was replaced.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

Message = dict[str, Any]
WORDS = dict(word.partition("=")[::2] for word in sys.argv[1:])
IS_MODERN = "modern" in WORDS
INFO = {"name": "tally", "version": "1"}
SLOW_S = 0.2
TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "slow", "late", "tell", "ask")
]
LISTED = {"tools": TOOLS, "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
CAPABILITIES: Message = {"capabilities": {"tools": {}}}


class Voice(Protocol):
    """How a request is answered."""

    def say(self, message: Message) -> None:
        """Something ahead of the answer."""

    def send(self, message: Message) -> None:
        """The answer."""


class Tally:
    """Answers messages, wherever they come from."""

    def __init__(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._log = os.open(WORDS["log"], flags, 0o600) if "log" in WORDS else None
        self._late: dict[Any, Callable[[], None]] = {}
        self._asked: dict[str, Callable[[Message], None]] = {}
        self._tools = {
            "echo": self._echo,
            "slow": self._slow,
            "late": self._wait,
            "tell": self._tell,
            "ask": self._ask,
        }

    def take(self, message: Message, voice: Voice) -> None:
        """Act on one message, and answer it now or later."""
        method, number = message.get("method"), message.get("id")
        if method == "tools/call":
            self._call(message, voice)
        elif method == "notifications/cancelled":
            self._late.pop(message["params"]["requestId"], _nothing)()
        elif method is None:
            self._asked.pop(message["id"])(message)
        elif number is not None:
            voice.send({"jsonrpc": "2.0", "id": number, **plain_answer(method)})

    def _call(self, message: Message, voice: Voice) -> None:
        params = message["params"]
        text = params["arguments"]["text"]
        if self._log is not None:
            os.write(self._log, text.encode() + b"\n")
        self._tools[params["name"]](message, text, voice)

    def _echo(self, message: Message, text: str, voice: Voice) -> None:
        voice.send(reply(message, text))

    def _slow(self, message: Message, text: str, voice: Voice) -> None:
        asyncio.get_running_loop().call_later(SLOW_S, voice.send, reply(message, text))

    def _wait(self, message: Message, text: str, voice: Voice) -> None:
        self._late[message["id"]] = partial(voice.send, reply(message, text))

    def _tell(self, message: Message, text: str, voice: Voice) -> None:
        token = message["params"]["_meta"]["progressToken"]
        for done in (1, 2, 3):
            progress = {"progressToken": token, "progress": done, "message": f"{text} {done}"}
            voice.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        voice.send(reply(message, text))

    def _ask(self, message: Message, text: str, voice: Voice) -> None:
        params = message["params"]
        question = {"message": text, "requestedSchema": {"type": "object", "properties": {}}}
        if not IS_MODERN:
            ask_id = f"ask {message['id']}"
            self._asked[ask_id] = lambda response: voice.send(
                reply(message, answer_in(response.get("result")))
            )
            request = {"method": "elicitation/create", "params": question}
            voice.say({"jsonrpc": "2.0", "id": ask_id, **request})
        elif "inputResponses" in params:
            assert params["requestState"] == f"state of {text}"
            voice.send(reply(message, answer_in(params["inputResponses"]["it"])))
        else:
            asks = {"it": {"method": "elicitation/create", "params": question}}
            result = {
                "resultType": "input_required",
                "inputRequests": asks,
                "requestState": f"state of {text}",
            }
            voice.send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _nothing() -> None:
    """For a call that is not one of those."""


def reply(message: Message, text: str) -> Message:
    """The answer to a call."""
    result = {"content": [{"type": "text", "text": text}], "resultType": "complete"}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def answer_in(result: Message | None) -> str:
    """What a client said to a question."""
    return "refused" if result is None else str(result["content"]["said"])


def plain_answer(method: str) -> Message:
    """The members of the answer to anything but a call."""
    if method == "tools/list":
        return {"result": LISTED}
    if IS_MODERN and method == "server/discover":
        return {"result": {"supportedVersions": ["2026-07-28"], **CAPABILITIES}}
    if not IS_MODERN and method == "initialize":
        return {"result": {"protocolVersion": "2025-11-25", "serverInfo": INFO, **CAPABILITIES}}
    return {"error": {"code": -32601, "message": "method not found"}}


class Newest:
    """Sends what there is to send at the end of a turn of the loop, the newest answers first."""

    def __init__(self, write: Callable[[bytes], None], encode: Callable[[Message], bytes]) -> None:
        self._write = write
        self._encode = encode
        self._due: list[bytes] = []

    def say(self, message: Message) -> None:
        self._write(self._encode(message))

    def send(self, message: Message) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._flush)
        self._due.append(self._encode(message))

    def _flush(self) -> None:
        due, self._due = self._due, []
        self._write(b"".join(reversed(due)))


class Pipe(asyncio.Protocol):
    """Standard input, a message a line."""

    def __init__(self, tally: Tally, ended: asyncio.Event) -> None:
        self._tally = tally
        self._ended = ended
        self._rest = b""
        self._newest = Newest(write_all, encode_line)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._tally.take(json.loads(line), self._newest)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._ended.set()


def write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


class Http(asyncio.Protocol):
    """One connection of streamable HTTP. Every fourth answer is an event stream."""

    _transport: Any

    def __init__(self, tally: Tally, sessions: set[str], streams: dict[str, Newest]) -> None:
        self._tally = tally
        self._sessions = sessions
        self._streams = streams
        self._rest = b""
        self._answered = 0
        self._is_streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, separator, rest = self._rest.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode().lower().split("\r\n")
        headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        if len(rest) >= size:
            self._rest = rest[size:]
            verb, path, _ = first.split(" ")
            if "sse" in WORDS:
                self._take_sse(verb, path, rest[:size])
            else:
                self._take(verb, headers, rest[:size])

    def _take(self, verb: str, headers: dict[str, str], body: bytes) -> None:
        if verb != "post":
            return self._status("405 Method Not Allowed" if verb == "get" else "200 OK")
        message = json.loads(body)
        method = message.get("method")
        if method == "initialize" and not IS_MODERN:
            return self._open_session(message)
        is_probe = method in ("initialize", "server/discover")
        if not IS_MODERN and not is_probe and headers.get("mcp-session-id") not in self._sessions:
            return self._status("404 Not Found")
        if "id" not in message or method is None:
            self._tally.take(message, self)
            return self._status("202 Accepted")
        return self._tally.take(message, self)

    def _take_sse(self, verb: str, path: str, body: bytes) -> None:
        if verb == "get":
            place = f"/messages/{len(self._streams)}"
            self._streams[place] = Newest(self._write_chunk, encode_event)
            self._begin_stream()
            self._write_chunk(f"event: endpoint\ndata: {place}\n\n".encode())
        else:
            self._status("202 Accepted")
            self._tally.take(json.loads(body), self._streams[path])

    def _open_session(self, message: Message) -> None:
        session = os.urandom(16).hex()
        self._sessions.add(session)
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **plain_answer("initialize")}).encode()
        self._write(f"200 OK\r\nMcp-Session-Id: {session}\r\nContent-Type: application/json", body)

    def say(self, message: Message) -> None:
        if not self._is_streaming:
            self._is_streaming = True
            self._begin_stream()
        self._write_chunk(encode_event(message))

    def send(self, message: Message) -> None:
        self._answered += 1
        if self._is_streaming:
            self.say(message)
            self._is_streaming = False
            self._transport.write(b"0\r\n\r\n")
        elif self._answered % 4 == 0:
            self._write("200 OK\r\nContent-Type: text/event-stream", encode_event(message))
        else:
            body = json.dumps(message, separators=(",", ":")).encode()
            self._write("200 OK\r\nContent-Type: application/json", body)

    def _begin_stream(self) -> None:
        head = "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked"
        self._transport.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())

    def _write_chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _status(self, status: str) -> None:
        self._write(status, b"")

    def _write(self, head: str, body: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def encode_line(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def encode_event(message: Message) -> bytes:
    return b"event: message\ndata: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n"


async def serve_pipe(tally: Tally) -> None:
    ended = asyncio.Event()
    await asyncio.get_running_loop().connect_read_pipe(lambda: Pipe(tally, ended), sys.stdin)
    await ended.wait()


async def serve_http(tally: Tally, port: int) -> None:
    loop, sessions = asyncio.get_running_loop(), set[str]()
    loop.add_signal_handler(signal.SIGHUP, sessions.clear)
    streams: dict[str, Newest] = {}
    server = await loop.create_server(lambda: Http(tally, sessions, streams), "127.0.0.1", port, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve_http(Tally(), int(WORDS["http"])) if "http" in WORDS else serve_pipe(Tally()))
