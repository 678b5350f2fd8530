"""A gateway's REST API as a table of answers, on a real socket, that remembers what it was asked."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class Asked(NamedTuple):
    """One request, as far as tests look at it."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: Mapping[str, str]


class FakeGateway:
    """Answers are put into `answers`; anything else is a `not_found` in the gateway's own shape."""

    def __init__(self) -> None:
        self.url = ""
        self.responses: dict[str, tuple[int, Any]] = {}
        self.asked: list[Asked] = []

    def respond(self, route: str, body: Any, status: int = 200) -> None:
        """What `GET /path`, or a page `GET /path?cursor=c`, answers from now on. Bytes go out as they are; a
        function is given the request."""
        self.responses[route] = (status, body)

    def refuse(self, route: str, code: str, message: str, *, status: int = 400, **more: Any) -> None:
        self.respond(route, {"error": {"code": code, "message": message, "hint": "", **more}}, status)

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    def find_response(self, asked: Asked) -> tuple[int, bytes]:
        self.asked.append(asked)
        missing = {"error": {"code": "not_found", "message": f"there is no `{asked.path}`", "hint": ""}}
        route = f"{asked.method} {asked.path}"
        paged = f"{route}?cursor={asked.query.get('cursor')}"
        status, body = self.responses.get(paged) or self.responses.get(route, (404, missing))
        body = body(asked) if callable(body) else body
        return status, body if isinstance(body, bytes) else json.dumps(body).encode()


@contextmanager
def open_fake_gateway() -> Iterator[FakeGateway]:
    gateway = FakeGateway()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {
                name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()
            }
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            is_json = self.headers.get("content-type") != "application/octet-stream"
            body = json.loads(content) if content and is_json else content or None
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, response = gateway.find_response(Asked(self.command, parts.path, query, body, headers))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(response)))
            self.end_headers()
            self.wfile.write(response)

        def do_POST(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Nothing: tests look at `asked`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
