"""A model that has made up its mind: the part of the Anthropic API that Claude Code needs, on loopback.

It calls the tools it was told to, one after the other, and then says what they answered. Where the client
does not offer them but a search for tools, it searches first, as a model would.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

SEARCH = "ToolSearch"


@dataclass
class MockModel:
    """What it is going to do, and what it has been asked."""

    plan: Mapping[str, Json]
    """The tools to call, with their arguments."""
    asked: list[Json] = field(default_factory=list)
    """Each request for a message."""
    url: str = ""

    def reply(self, request: Json) -> Json:
        """The next message's one block. One that uses a tool has the tool's name as its id."""
        self.asked.append(request)
        offered = {tool["name"] for tool in request.get("tools", ())}
        responses = dict(answers_in(request))
        missing = [tool for tool in self.plan if tool not in responses]
        if not missing:
            return text(json.dumps([responses[tool] for tool in self.plan]))
        if missing[0] in offered:
            return use(missing[0], self.plan[missing[0]])
        if SEARCH in offered and SEARCH not in responses:
            return use(SEARCH, {"query": f"select:{','.join(missing)}"})
        return text(f"I have no {missing[0]}.")


def text(output: str) -> Json:
    return {"type": "text", "text": output}


def use(tool: str, arguments: Json) -> Json:
    return {"type": "tool_use", "id": tool, "name": tool, "input": arguments}


def answers_in(request: Json) -> Iterator[tuple[str, str]]:
    """What each tool said that has been used so far."""
    for message in request["messages"]:
        for block in message["content"]:
            if isinstance(block, dict) and block["type"] == "tool_result":
                content = block["content"]
                parts = content if isinstance(content, list) else [text(content)]
                yield block["tool_use_id"], "".join(part.get("text", "") for part in parts)


def events_of(block: Json) -> Iterator[Json]:
    """A message of one block, as it is streamed."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_mock", "type": "message", "role": "assistant", "model": "mock", "content": []}
    yield {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
    if block["type"] == "text":
        start, delta = text(""), {"type": "text_delta", "text": block["text"]}
    else:
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": 0, "content_block": start}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if block["type"] == "text" else "tool_use"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    """Messages, streamed; nothing else of the API is there."""

    protocol_version = "HTTP/1.1"
    model: MockModel

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if urlsplit(self.path).path != "/v1/messages":
            return self._send(404, b"")
        events = events_of(self.model.reply(json.loads(body)))
        stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return self._send(200, stream.encode())

    def do_GET(self) -> None:
        self._send(404, b"")

    def do_HEAD(self) -> None:
        self._send(404, b"")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A test has no one to read it."""


@contextmanager
def open_mock_model(plan: Mapping[str, Json]) -> Iterator[MockModel]:
    """It, at its URL, in a thread of the test."""
    model = MockModel(plan)
    handler = type("PlannedHandler", (Handler,), {"model": model})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        model.url = f"http://127.0.0.1:{server.server_port}"
        yield model
        server.shutdown()
        serving.join(60)
