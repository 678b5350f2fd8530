"""The client of the REST API. Only this module uses the HTTP library; every failure is a CommandError.

It never follows a redirect, and never sends the key to another address than the given one.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx2

from toolgate import __version__
from toolgate.cli.command import CommandError, ExitCode, UsageError, drop_unset
from toolgate.errors import NotFound
from toolgate.model.http import is_loopback
from toolgate.model.revisions import Kind
from toolgate.upstream.http.sse import SseParser, StreamRefused

COLLECTIONS: Final[Mapping[Kind, str]] = {
    "server": "/admin/api/mcp/servers",
    "task": "/admin/api/tasks",
    "profile": "/admin/api/profiles",
    "key": "/admin/api/keys",
    "pin": "/admin/api/pins",
    "chat_upstream": "/admin/api/chat-upstreams",
}

# Testing a server waits for its start (10 s) and its list (30 s).
_TIMEOUT = httpx2.Timeout(60.0, connect=5.0)
START_TIMEOUT = httpx2.Timeout(3_660.0, connect=5.0)
"""A record allows a start at most an hour, for the download of a package."""

_MAX_EVENT_BYTES: Final = 64 * 1024**2
"""A choice: far above any event, and a bound for a stream without an end of event."""

Query = Mapping[str, str | int | None]
"""Parameters of a URL; None: not sent."""


def build_conditions(*, revision: int | None = None, plan_id: str | None = None) -> dict[str, str]:
    """The headers of a change: only at this revision, only with the effect of this plan."""
    match = {} if revision is None else {"if-match": f'"{revision}"'}
    return match if plan_id is None else {**match, "toolgate-plan": plan_id}


class RestClient:
    """One gateway's REST API."""

    def __init__(self, http: httpx2.Client, url: str) -> None:
        self._http = http
        self.url = url

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        return self.send("GET", path, query=query)

    def find(self, path: str) -> dict[str, Any] | None:
        """The response of a path; None if the gateway does not have it."""
        try:
            return self.get(path)
        except CommandError as failure:
            if failure.code != NotFound.code:
                raise
        return None

    def post(self, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        return self.send("POST", path, body, **more)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: httpx2.Timeout = _TIMEOUT,
    ) -> dict[str, Any]:
        """Send bytes as they are, and anything else as JSON. Returns the response."""
        sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
        sent |= {"params": drop_unset(query or {}), "headers": headers, "timeout": timeout}
        with self._translate_errors():
            response = self._http.request(method, path, **sent)
        return self._parse(response)

    def records(self, kind: Kind) -> list[dict[str, Any]]:
        return self.pages(COLLECTIONS[kind], f"{kind}s")

    def pages(self, path: str, member: str) -> list[dict[str, Any]]:
        """All of a list, page by page."""
        found: list[dict[str, Any]] = self.merge_pages(path, member, {})[member]
        return found

    def merge_pages(self, path: str, member: str, query: Query) -> dict[str, Any]:
        """The first page of a list, with `member` of all pages."""
        response = first = self.get(path, query)
        while cursor := response.get("next_cursor"):
            response = self.get(path, {**query, "cursor": cursor})
            first[member] += response[member]
        return {**first, "next_cursor": None}

    def chunks(self, path: str, query: Query) -> Iterator[bytes]:
        """A response that is not JSON, in chunks."""
        with self._stream(path, query) as response:
            yield from response.iter_bytes()

    def events(self, path: str, query: Query, *, silence_s: float = 60.0) -> Iterator[tuple[str, Any]]:
        """The names and data of events, until the stream ends. A silence of `silence_s` is a timeout."""
        headers, parser = {"accept": "text/event-stream"}, SseParser(_MAX_EVENT_BYTES)
        timeout = httpx2.Timeout(silence_s, connect=5.0)
        with self._stream(path, query, headers=headers, timeout=timeout) as response:
            for event in (event for chunk in response.iter_bytes() for event in parser.feed(chunk)):
                yield event.type.decode(), json.loads(event.data)

    @contextmanager
    def _stream(self, path: str, query: Query, **how: Any) -> Iterator[httpx2.Response]:
        params = drop_unset(query)
        with self._translate_errors(), self._http.stream("GET", path, params=params, **how) as response:
            if not response.is_success:
                response.read()
                self._parse(response)
            yield response

    def _parse(self, response: httpx2.Response) -> dict[str, Any]:
        """The response. Raises CommandError for an error, or if it is not from a gateway."""
        try:
            body: dict[str, Any] = response.json() if response.content else {}
            refusal = None if response.is_success else parse_error(body["error"])
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            message = f"`{self.url}` is not a Toolgate gateway"
            hint = "give the gateway's address with --url or TOOLGATE_URL"
            raise _unreachable(message, hint, "not_toolgate") from exc
        if refusal is not None:
            raise refusal
        return body

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Failures of the HTTP library as failures of the command."""
        try:
            yield
        except httpx2.TimeoutException as exc:
            hint = "see the gateway's log, or run `toolgate doctor`"
            raise _unreachable(f"no response from `{self.url}` in time", hint, "timeout") from exc
        except (httpx2.HTTPError, StreamRefused) as exc:
            hint = "start it with `toolgate up`, or give another address with --url or TOOLGATE_URL"
            message = f"cannot reach the gateway at `{self.url}`: {exc}"
            raise _unreachable(message, hint, "unreachable") from exc


def _unreachable(message: str, hint: str, code: str) -> CommandError:
    return CommandError(message, hint=hint, code=code, exit_code=ExitCode.UNREACHABLE)


@contextmanager
def open_client(url: str, key: str | None) -> Iterator[RestClient]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        hint = "give an address such as http://127.0.0.1:8080"
        raise UsageError(f"invalid address of a gateway: `{url}`", hint=hint)
    headers = {"user-agent": f"toolgate-cli/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    # A proxy from the environment must not get the key of a gateway on this machine.
    direct = {"http://": None, "https://": None} if is_loopback(parts.hostname) else None
    with httpx2.Client(base_url=url, headers=headers, timeout=_TIMEOUT, mounts=direct) as http:
        yield RestClient(http, url)


def build_path(base: str, *parts: str) -> str:
    """A path below `base`. Each part is quoted as a whole: an id may contain a slash."""
    return "/".join([base, *(quote(part, safe="") for part in parts)])


def build_invocation_path(task_id: str, *parts: str) -> str:
    """The path of a task's runs, of one run, or of a part of one."""
    return build_path("/api/v1/tasks", task_id, "invocations", *parts)


def build_record_path(kind: Kind, *parts: str) -> str:
    return build_path(COLLECTIONS[kind], *parts)


def parse_error(error: Mapping[str, Any]) -> CommandError:
    """The error in a response, with its hint."""
    code, hint = str(error["code"]), str(error.get("hint", ""))
    if code == "unauthenticated":
        hint = "log in with `toolgate login`, or give a key in TOOLGATE_KEY or with --key-file"
    return CommandError(
        str(error["message"]),
        hint=hint,
        code=code,
        exit_code=ExitCode.AUTH if code in {"unauthenticated", "forbidden"} else ExitCode.FAILED,
        data=dict(error.get("data") or {}),
    )
