"""Server-sent events, as far as the gateway sends them: an id, a name, and JSON on data lines.

The REST API as commands see it. It alone knows the HTTP library; every failure leaves as CommandError.

It never follows a redirect and never sends the key anywhere but to the address it was given.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import httpx2

from toolgate import __version__
from toolgate.cli.failure import CommandError, ExitCode, UsageError
from toolgate.model.http import is_loopback
from toolgate.model.revisions import Kind


class ServerSentEvent(NamedTuple):
    """One event."""

    id: str
    name: str
    data: Any


def parse_events(lines: Iterable[str]) -> Iterator[ServerSentEvent]:
    """The events in the lines of a stream. Comments, which only keep it open, are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                name = fields.get("event", "message")
                yield ServerSentEvent(fields.get("id", ""), name, json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[field] = f"{fields[field]}\n{value}" if field == "data" and field in fields else value


COLLECTIONS: Final[Mapping[Kind, str]] = {
    "server": "/admin/api/mcp/servers",
    "task": "/admin/api/tasks",
    "profile": "/admin/api/profiles",
    "key": "/admin/api/keys",
    "pin": "/admin/api/pins",
    "chat_upstream": "/admin/api/chat-upstreams",
}

# A server may take 10 s to start and 30 s to list, and the gateway waits for both when asked to test it.
_TIMEOUT = httpx2.Timeout(60.0, connect=5.0)
_START_TIMEOUT = httpx2.Timeout(3_660.0, connect=5.0)
"""A record allows a start at most an hour."""
_AUTH_CODES: Final = frozenset({"unauthenticated", "forbidden"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConditions:
    """On what a change is made."""

    revision: int | None = None
    """Only if this is still the record's newest."""
    plan_id: str | None = None
    """Only if it does what this plan showed."""

    @property
    def headers(self) -> dict[str, str]:
        match = {} if self.revision is None else {"if-match": f'"{self.revision}"'}
        return match if self.plan_id is None else {**match, "toolgate-plan": self.plan_id}


UNCONDITIONAL: Final = WriteConditions()


class RestClient:
    """One gateway's REST API."""

    def __init__(self, http: httpx2.Client, url: str) -> None:
        self._http = http
        self.url = url

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        return self._send("GET", path, query=query)

    def post(
        self,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        *,
        conditions: WriteConditions = UNCONDITIONAL,
    ) -> Any:
        return self._send("POST", path, body=body, query=query, headers=conditions.headers)

    def test_server(self, server_id: str, body: Mapping[str, Any] | None) -> Any:
        """Have the gateway connect to a server once, which may download it first."""
        path = f"{build_record_path('server', server_id)}/test"
        with self._translate_errors():
            return self._content(self._http.post(path, json=body, timeout=_START_TIMEOUT))

    def records(self, kind: Kind) -> list[dict[str, Any]]:
        """All records of a kind."""
        return self.pages(COLLECTIONS[kind], f"{kind}s")

    def pages(
        self, path: str, member: str, query: Mapping[str, str] = MappingProxyType({})
    ) -> list[dict[str, Any]]:
        """All of a list, page by page."""
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            answer = self.get(path, {**query, **cursor})
            found += answer[member]
            if not answer.get("next_cursor"):
                return found
            cursor = {"cursor": answer["next_cursor"]}

    def record(self, kind: Kind, record_id: str) -> dict[str, Any]:
        """One record."""
        found: dict[str, Any] = self.get(build_record_path(kind, record_id))
        return found

    def put(
        self,
        kind: Kind,
        record_id: str,
        body: Mapping[str, Any],
        *,
        conditions: WriteConditions = UNCONDITIONAL,
    ) -> Any:
        """Create or replace a record."""
        return self._send("PUT", build_record_path(kind, record_id), body=body, headers=conditions.headers)

    def delete(self, kind: Kind, record_id: str, *, conditions: WriteConditions = UNCONDITIONAL) -> Any:
        """Remove a record."""
        return self._send("DELETE", build_record_path(kind, record_id), headers=conditions.headers)

    def put_bytes(self, path: str, content: bytes) -> Any:
        """Send what is not JSON."""
        headers = {"content-type": "application/octet-stream"}
        return self._send("PUT", path, content=content, headers=headers)

    def put_path(self, path: str, body: Mapping[str, Any]) -> Any:
        """Replace what is a part of a record."""
        return self._send("PUT", path, body=body)

    def delete_path(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        conditions: WriteConditions = UNCONDITIONAL,
    ) -> Any:
        """Remove what is no record."""
        return self._send("DELETE", path, query=query, headers=conditions.headers)

    def roll_back(
        self, kind: Kind, record_id: str, *, to: int, conditions: WriteConditions = UNCONDITIONAL
    ) -> Any:
        """Make a record what it was at a revision."""
        path = f"{build_record_path(kind, record_id)}/rollback"
        return self.post(path, {"revision": to}, conditions=conditions)

    def invoke(self, task_id: str, body: Mapping[str, Any], *, idempotency_key: str | None = None) -> Any:
        """Have a task run."""
        headers = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
        return self._send("POST", build_invocation_path(task_id), body=body, headers=headers)

    def chunks(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """What is not JSON, a piece at a time."""
        with self._translate_errors(), self._http.stream("GET", path, params=query) as answer:
            if not answer.is_success:
                answer.read()
                raise _parse_refusal(answer, self.url)
            yield from answer.iter_bytes()

    def events(
        self, path: str, query: Mapping[str, str], *, silence_s: float | None = None
    ) -> Iterator[ServerSentEvent]:
        """The events of a stream, until it ends. A silence of `silence_s` is a timeout."""
        headers = {"accept": "text/event-stream"}
        timeout = _TIMEOUT if silence_s is None else httpx2.Timeout(silence_s, connect=5.0)
        with (
            self._translate_errors(),
            self._http.stream("GET", path, params=query, headers=headers, timeout=timeout) as answer,
        ):
            if not answer.is_success:
                answer.read()
                raise _parse_refusal(answer, self.url)
            yield from parse_events(answer.iter_lines())

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        with self._translate_errors():
            answer = self._http.request(
                method, path, json=body, content=content, params=query, headers=headers
            )
        return self._content(answer)

    def _content(self, answer: httpx2.Response) -> Any:
        if answer.is_success:
            return _decode(answer, self.url) if answer.content else {}
        raise _parse_refusal(answer, self.url)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Failures of the HTTP library as failures of the command."""
        try:
            yield
        except httpx2.TimeoutException as exc:
            raise CommandError(
                f"no answer from `{self.url}` in time",
                hint="look at the gateway's log; `toolgate doctor` says what it is busy with",
                code="timeout",
                exit_code=ExitCode.UNREACHABLE,
            ) from exc
        except httpx2.HTTPError as exc:
            raise _connection_error(self.url, str(exc)) from exc


@contextmanager
def open_client(url: str, key: str | None) -> Iterator[RestClient]:
    """A client of the gateway at `url`, closed at the end."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(
            f"`{url}` is not the address of a gateway", hint="give one like http://127.0.0.1:8080"
        )
    headers = {"user-agent": f"toolgate-cli/{__version__}"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    # A proxy from the environment has no business between us and our own machine, nor with the key.
    trust_env = not is_loopback(parts.hostname)
    with httpx2.Client(base_url=url, headers=headers, timeout=_TIMEOUT, trust_env=trust_env) as http:
        yield RestClient(http, url)


def build_login_path(server_id: str) -> str:
    """Where a principal logs in to a server, for itself or for all."""
    return f"/api/v1/mcp/servers/{quote(server_id, safe='')}/login"


def build_invocation_path(task_id: str, invocation_id: str = "", *more: str) -> str:
    """Where the runs of a task are, or one of them, or something of one."""
    ids = [quote(part, safe="") for part in (task_id, "invocations", invocation_id, *more) if part]
    return "/".join(["/api/v1/tasks", *ids])


def build_record_path(kind: Kind, record_id: str) -> str:
    """Where a record lives."""
    return f"{COLLECTIONS[kind]}/{quote(record_id, safe='')}"


def _connection_error(url: str, why: str) -> CommandError:
    return CommandError(
        f"cannot reach the gateway at `{url}`: {why}",
        hint="is `toolgate up` running? another address goes into --url or TOOLGATE_URL",
        code="unreachable",
        exit_code=ExitCode.UNREACHABLE,
    )


def _decode(answer: httpx2.Response, url: str) -> Any:
    try:
        return answer.json()
    except ValueError as exc:
        raise _not_toolgate_error(url) from exc


def _not_toolgate_error(url: str) -> CommandError:
    return CommandError(
        f"something answers at `{url}`, but it is not Toolgate",
        hint="give the gateway's own address with --url or TOOLGATE_URL",
        code="not_toolgate",
        exit_code=ExitCode.UNREACHABLE,
    )


def _parse_refusal(answer: httpx2.Response, url: str) -> CommandError:
    try:
        return parse_error(answer.json()["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return _not_toolgate_error(url)


def parse_error(error: Mapping[str, Any]) -> CommandError:
    """The gateway's own error, with its hint."""
    code, hint = str(error["code"]), str(error.get("hint", ""))
    if code == "unauthenticated":
        hint = "set TOOLGATE_KEY or give --key-file; `toolgate keys add` makes a key"
    return CommandError(
        str(error["message"]),
        hint=hint,
        code=code,
        exit_code=ExitCode.AUTH if code in _AUTH_CODES else ExitCode.FAILED,
        data=dict(error.get("data") or {}),
    )
