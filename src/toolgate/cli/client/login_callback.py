"""Where a browser comes back to after a login: one answer, on loopback, and no more."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from toolgate.cli.failure import CommandError, UsageError

CALLBACK_PATH: Final = "/callback"
WAIT_S: Final = 300.0
_GOODBYE: Final = b"Toolgate has what it needs. You can close this window.\n"
_MAX_FIELDS: Final = 16


class LoginCallbackServer:
    """A listener that waits for one browser."""

    def __init__(self, server: HTTPServer, answers: list[Mapping[str, str]]) -> None:
        self._server = server
        self._answers = answers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{CALLBACK_PATH}"

    def wait(self, state: str, clock_s: Callable[[], float] = time.monotonic) -> Mapping[str, str]:
        """What the browser came back with. Answers to something else are passed over."""
        until_s = clock_s() + WAIT_S
        while clock_s() < until_s:
            self._server.timeout = max(0.0, until_s - clock_s())
            self._server.handle_request()
            for answer in self._answers:
                if answer.get("state") == state:
                    return answer
            self._answers.clear()
        raise CommandError(
            f"no callback from the browser within {WAIT_S / 60:.0f} minutes",
            hint="start again; with --paste, give the address where the browser ended by hand",
        )


@contextmanager
def open_callback() -> Iterator[LoginCallbackServer]:
    """A listener on a free port of this machine, closed at the end."""
    answers: list[Mapping[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        timeout = 5  # a browser that opens a connection ahead and says nothing must not keep us

        def do_GET(self) -> None:
            is_answer = urlsplit(self.path).path == CALLBACK_PATH
            if is_answer:
                answers.append(parse_callback(self.path))
            self.send_response(200 if is_answer else 404)
            self.send_header("content-type", "text/plain; charset=utf-8")
            self.send_header("cache-control", "no-store")
            self.end_headers()
            self.wfile.write(_GOODBYE if is_answer else b"")

        def log_message(self, *_args: object) -> None:
            """The address holds a code: it is written nowhere."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        yield LoginCallbackServer(server, answers)


def parse_callback(address: str) -> Mapping[str, str]:
    """The fields in the address a browser ended at."""
    try:
        return dict(parse_qsl(urlsplit(address.strip()).query, max_num_fields=_MAX_FIELDS))
    except ValueError:
        return {}


def check_callback(answer: Mapping[str, str], state: str) -> Mapping[str, str]:
    """The fields that the gateway needs. Raises CommandError if the login was refused."""
    if answer.get("state") != state:
        raise UsageError(
            "this address is not the answer to this login",
            hint="paste the whole address that the browser ended at",
        )
    if "code" not in answer:
        raise CommandError(f"the authorization server refuses: {answer.get('error', 'no code')}")
    return {name: answer[name] for name in ("state", "code", "iss") if name in answer}
