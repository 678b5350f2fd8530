"""Parses headers, queries and JSON bodies alike on every endpoint. Ambiguous input is rejected.

Also parses and formats the selection in a URL (`?task=`, `?servers=`, `?tools=`, `?profile=`, `?mode=`).
"""

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec

from toolgate import errors
from toolgate.gateway.scope.caller import Mode
from toolgate.model.names import parse_task_id
from toolgate.model.servers import EMPTY
from toolgate.policy.layers import SessionRequest, parse_servers_selection, parse_tools_selection
from toolgate.surfaces.http.messages import HttpRequest
from toolgate.telemetry.spans import TRACE_HEADERS

MAX_QUERY_BYTES: Final = 16 * 1024  # four times the length of URLs that some clients and proxies reject
MAX_DEPTH: Final = 64  # twice as deep as a tool's schema may be
MAX_DIGITS: Final = 400  # the largest 64-bit float has 309
MAX_CONTAINERS: Final = 200_000
"""Objects and arrays in one body: millions of empty ones take far longer to parse than their size
suggests."""
SMALL_BYTES: Final = 4_096  # a choice: most calls are smaller
LARGE_BYTES: Final = 64 * 1024  # a body of this size or more is parsed in a thread

T = TypeVar("T")

# Matches only where digits begin: from each digit of a long run, it would take quadratic time.
_LONG_DIGITS = re.compile(rb"(?<![0-9])[0-9]{%d}" % (MAX_DIGITS + 1))
_TWO_DIGITS = re.compile(rb"[0-9]{2}")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def read_trace_headers(request: HttpRequest) -> Mapping[str, str]:
    """The trace context in a request's headers. Ignores repeated headers."""
    return {
        name: value.decode("latin-1")
        for name in TRACE_HEADERS
        if (value := request.headers.get(name.encode())) is not None and name.encode() not in request.repeated
    }


def reject_repeated_headers(request: HttpRequest, names: Collection[bytes]) -> None:
    """Reject a request that repeats one of these headers: readers could disagree on which copy counts."""
    for name in request.repeated.intersection(names):
        raise errors.HeaderMismatch(f"the header `{name.decode()}` is repeated")


def check_json_media(request: HttpRequest) -> None:
    """Raises UnsupportedMedia unless the body is declared as JSON. This also stops cross-site form posts."""
    media = request.headers.get(b"content-type", b"")
    if media != b"application/json" and media.split(b";")[0].strip().lower() != b"application/json":
        raise errors.UnsupportedMedia("the request does not have `Content-Type: application/json`")
    if request.headers.get(b"content-encoding", b"identity") != b"identity":
        raise errors.UnsupportedMedia("`Content-Encoding` is not supported")


def parse_query(query: bytes, known: Collection[str]) -> dict[str, str]:
    """The parameters of a query, each known and unique. Raises InvalidRequest.

    A parameter in another case, or a duplicate, may be intended to narrow the scope. Ignoring it would widen
    the scope silently.
    """
    if len(query) > MAX_QUERY_BYTES:
        raise errors.InvalidRequest(f"the query is longer than {MAX_QUERY_BYTES} bytes")
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query), errors="strict"
        )
    except ValueError as exc:
        raise errors.InvalidRequest("invalid query string") from exc
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            allowed = ", ".join(f"`{one}`" for one in sorted(known)) or "none"
            raise errors.InvalidRequest(
                f"unknown query parameter `{ascii(name[:40])[1:-1]}`", hint=f"this route has {allowed}"
            )
        if name in values:
            raise errors.InvalidRequest(
                f"duplicate query parameter `{name}`", hint=f"join the values with commas: `?{name}=a,b`"
            )
        if not value.isprintable():
            raise errors.InvalidRequest(f"query parameter `{name}` has characters that are not printable")
        values[name] = value
    return values


async def parse_off_loop(parse: Callable[[bytes], T], body: bytes) -> T:
    """`parse(body)`, in a thread if the body is large enough to block the loop."""
    return parse(body) if len(body) < LARGE_BYTES else await asyncio.to_thread(parse, body)


def parse_json(body: bytes) -> Any:
    """Parse a body as JSON that every parser reads alike. Raises ParseFailed.

    Rejects NaN, numbers out of range, lone surrogates, and depth, digits or counts that exhaust a parser.
    """
    brackets = _count_brackets(body)
    if brackets > MAX_CONTAINERS and _count_brackets(_strip_strings(body)) > MAX_CONTAINERS:
        raise errors.ParseFailed(f"the body has more than {MAX_CONTAINERS} objects and arrays")
    try:
        whole = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise errors.ParseFailed("the body is not JSON that the gateway can forward") from exc
    # Counting first limits usual small bodies to two scans of the bytes.
    if brackets > MAX_DEPTH and sum(1 for _ in _walk_levels(whole)) > MAX_DEPTH:
        raise errors.ParseFailed(f"the body is nested deeper than {MAX_DEPTH} levels")
    if len(body) > MAX_DIGITS and _LONG_DIGITS.search(body) and _LONG_DIGITS.search(_strip_strings(body)):
        raise errors.ParseFailed(f"a number has more than {MAX_DIGITS} digits")
    return whole


def reject_duplicate_members(body: bytes, whole: Any) -> None:
    """Raises ParseFailed for a duplicate member: a server may read the first one, the gateway the last."""
    if has_duplicate_members(body, whole):
        raise errors.ParseFailed("an object in the body has a duplicate member")


def has_duplicate_members(body: bytes, whole: Any) -> bool:
    """Whether an object of `body`, parsed as `whole`, has a duplicate member."""
    if b"\\" not in body or b"\\u003" not in body:  # no colon is written as an escape
        # Encoded again, all strings have the same colons, but only one of two duplicate members is left.
        return _encode(whole).count(b":") < body.count(b":")
    # Outside of strings, each member has one colon.
    members = sum(len(one) for level in _walk_levels(whole) for one in level if isinstance(one, dict))
    return _strip_strings(body).count(b":") > members


def is_small_and_flat(body: bytes) -> bool:
    """Whether `body` is UTF-8 and too small to exhaust a parser. If not, `parse_json` checks it closely."""
    if len(body) > SMALL_BYTES or _count_brackets(body) > MAX_DEPTH or not body.isascii():
        return False
    # A number that is too long leaves two of these next to each other.
    return len(body) <= MAX_DIGITS or not _TWO_DIGITS.search(body[:: MAX_DIGITS // 2])


def _count_brackets(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _strip_strings(body: bytes) -> bytes:
    """`body` without its JSON strings."""
    return b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def _walk_levels(value: Any) -> Iterator[list[dict[str, Any] | list[Any]]]:
    """The containers of each level of nesting, without recursion."""
    level = [value]
    while containers := [one for one in level if isinstance(one, dict | list)]:
        yield containers
        level = [inner for one in containers for inner in (one.values() if isinstance(one, dict) else one)]


def format_server_url(base_url: str, server_id: str, task_id: str | None = None) -> str:
    """The URL of one server, whose tools keep their names there; with a task, as the task sees it."""
    return f"{base_url}/api/mcp/s/{server_id}{f'?task={task_id}' if task_id else ''}"


def format_mcp_url(base_url: str, task_id: str | None, selection: Mapping[str, str] = EMPTY) -> str:
    """The URL of a task, or of the whole gateway, narrowed by a selection (`servers`, `tools`, `profile`)."""
    path = f"/api/mcp/t/{task_id}" if task_id else "/api/mcp"
    # Commas, stars and slashes are valid in a query, and more readable than their escapes.
    query = "&".join(f"{name}={quote(value, safe=',*/')}" for name, value in selection.items())
    return f"{base_url}{path}{'?' if query else ''}{query}"


def format_scope_url(base_url: str, query: Mapping[str, str]) -> str:
    """The MCP endpoint of the gateway at `base_url`, narrowed by `query`. A task is part of the path."""
    selection = dict(query)
    task = selection.pop("task", None)
    return format_mcp_url(base_url.rstrip("/"), task and parse_task_id(task), selection)


PARAMETERS: Final = frozenset({"mode", "profile", "servers", "task", "tools"})
_MODES: Final[Mapping[str, Mode]] = {"list": "list", "find": "find"}


def parse_selection(values: Mapping[str, str]) -> tuple[str | None, SessionRequest]:
    """The task and session request of a query. An empty list selects nothing. Raises InvalidRequest."""
    try:
        task_id = parse_task_id(values["task"]) if "task" in values else None
        request = SessionRequest(
            servers=parse_servers_selection(_split(values["servers"])) if "servers" in values else None,
            tools=parse_tools_selection(_split(values["tools"])) if "tools" in values else None,
            profile=parse_task_id(values["profile"]) if "profile" in values else None,
        )
    except (errors.InvalidParams, errors.InvalidRecord) as exc:
        raise errors.InvalidRequest(str(exc), hint=exc.hint) from exc
    return task_id, request


def parse_mode(values: Mapping[str, str], *, default: Mode = "list") -> Mode:
    """The mode of listing tools. Raises InvalidRequest."""
    mode = _MODES.get(values.get("mode", default))
    if mode is None:
        raise errors.InvalidRequest("`mode` must be `list` or `find`", hint="leave it out to list the tools")
    return mode


def _split(text: str) -> list[str]:
    return text.split(",") if text else []
