"""Encodes lists, results and instructions for clients of each protocol revision, as bytes.

Every member that need not change passes as the server wrote it, so `$defs`, `_meta` and vendor keys survive.
A change is made only if a client of that revision would reject the message, and it drops no data that the
client could use. Instructions are a server's own text, and a model gets them without a request: they are
bounded, name their server, and have no invisible characters.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from toolgate.catalog.checks import to_stateful_schema
from toolgate.errors import ServerUnavailable, ToolgateError
from toolgate.model.json_text import NULL, Members, decode_members, encode_canonical, encode_raw
from toolgate.model.protocol import LIST_MEMBERS
from toolgate.model.tools import Listing, ListKind, Revision, ServerTools, ToolDefinition

MAX_INSTRUCTIONS: Final = 16_384  # characters of one server: the limit of a description
MAX_MERGED_EACH: Final = 2_048
"""The limit of one server among others. Claude Code gives a model about as much per connection."""
MAX_MERGED: Final = 8_192  # of all servers of a scope together: about 2,000 tokens

_VISIBLE_CONTROLS: Final = "\n\t"
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def clean_instructions(text: str) -> str:
    """`text` within bounds, without control and format characters, which can hide words from people."""
    kept = (
        char
        for char in text[: 2 * MAX_INSTRUCTIONS]
        if char in _VISIBLE_CONTROLS or unicodedata.category(char) not in _INVISIBLE
    )
    return _truncate("".join(kept).strip(), MAX_INSTRUCTIONS)


def compose_instructions(notes: Sequence[str], servers: Sequence[ServerTools], *, is_single: bool) -> str:
    """The notes, then each server's text under its name. At the path of one server: only its text."""
    texts = [server.instructions for server in servers] if is_single else list(_merge_servers(servers))
    return "\n\n".join([" ".join(notes), *texts] if notes else texts)


def _merge_servers(servers: Sequence[ServerTools]) -> Iterable[str]:
    left = MAX_MERGED
    for position, server in enumerate(servers):
        record = server.record
        title = f" ({record.display_name})" if record.display_name else ""
        text = f"Server `{record.server_id}`{title}:\n{_truncate(server.instructions, MAX_MERGED_EACH)}"
        if len(text) > left:
            yield f"Instructions of {len(servers) - position} more servers are omitted."
            return
        left -= len(text)
        yield text


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


_KEYS: Final[Mapping[ListKind, str]] = {"prompts": "name", "resources": "uri", "templates": "uriTemplate"}
"""The member that is the name of a listing."""
_EMPTY_OBJECT: Final = msgspec.Raw(b"{}")

_decode = msgspec.json.decode
_encode = msgspec.json.encode


def encode_definition(definition: ToolDefinition, name: str, *, revision: Revision) -> bytes:
    """The server's own JSON with the endpoint's `name`, and schemas that clients of the revision accept."""
    members = decode_members(definition.raw)
    members["name"] = encode_raw(name)
    if revision == "legacy" and not definition.is_legacy_safe:
        _downgrade(members)
    return _encode(members)


def encode_listing(listing: Listing, name: str, *, kind: ListKind) -> bytes:
    """The server's own JSON with the endpoint's `name`, for clients of either revision."""
    if name == listing.name:
        return listing.raw
    members = decode_members(listing.raw)
    members[_KEYS[kind]] = encode_raw(name)
    return _encode(members)


def encode_page(
    kind: ListKind,
    listed: Sequence[bytes],
    *,
    revision: Revision,
    next_cursor: str | None,
    ttl_ms: int,
    meta: Mapping[str, Any],
) -> bytes:
    """The result of the list's method, with `listed` in order. A scoped list is never `public`."""
    parts = [b'{"%b":[%b]' % (LIST_MEMBERS[kind].encode(), b",".join(listed))]
    if next_cursor is not None:
        parts.append(b'"nextCursor":%b' % _encode(next_cursor))
    if revision == "modern":
        parts.append(b'"resultType":"complete","ttlMs":%d,"cacheScope":"private"' % ttl_ms)
    if meta:
        parts.append(b'"_meta":%b' % _encode(meta))
    return b",".join(parts) + b"}"


def _downgrade(members: Members) -> None:
    """Convert schemas for session-based clients. An output schema without such a form is dropped."""
    for key in ("inputSchema", "outputSchema"):
        schema = _decode(members.get(key, _EMPTY_OBJECT))
        form = to_stateful_schema(schema)
        if form is None:
            members.pop(key, None)
        elif form is not schema:
            members[key] = encode_raw(form)


ERROR_META: Final = "toolgate/error"

_MODERN_MEMBERS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_COMPLETE: Final = b'"complete"'
_INPUT_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose result may be `input_required`."""
_EMPTY_ARRAY: Final = msgspec.Raw(b"[]")


class InputRequired(Exception):
    """A stateless server requests input first. The gateway handles it: no caller gets this error."""

    def __init__(self, *, input_requests: Members, request_state: msgspec.Raw | None, result: bytes) -> None:
        super().__init__("the server needs input")
        self.input_requests = input_requests
        """By the server's own keys."""
        self.request_state = request_state
        """A JSON string to send back unchanged."""
        self.result = result
        """The whole result."""


def adapt_result(
    result: Members, *, upstream: Revision, client: Revision, method: str = "tools/call"
) -> bytes:
    """The result of `method` for a client of a revision. Raises InputRequired if a stateless server requests
    input first, and ServerUnavailable for a result that no client can use."""
    if upstream == client == "legacy":
        return _encode(result)
    kind = result.get("resultType")
    try:
        if kind is not None and bytes(kind) != _COMPLETE and _decode(kind) != "complete":
            raise _interpret_incomplete(_decode(kind), result, upstream=upstream, method=method)
        if client == "legacy":
            return _encode_stateful(result, method)
        if method == "resources/read":
            return _encode_stateless_read(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ServerUnavailable("the server sent an unreadable result") from exc
    return _encode(result if kind is not None else {"resultType": msgspec.Raw(_COMPLETE), **result})


def make_error_result(exc: ToolgateError) -> Members:
    """An error as a tool result, so that a model can act on it. Its text begins with the code."""
    text = f"{exc.code}: {exc}. {exc.hint}"
    detail = {**exc.detail, "retryable": exc.retryable}
    result = {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {ERROR_META: detail}}
    return {name: encode_raw(value) for name, value in result.items()}


def _interpret_incomplete(kind: object, result: Members, *, upstream: Revision, method: str) -> Exception:
    """The exception for an incomplete result. An unknown kind is rejected, never guessed."""
    if kind != "input_required" or upstream == "legacy" or method not in _INPUT_METHODS:
        return ServerUnavailable("the server sent a kind of result that this gateway does not support")
    requests = decode_members(result.get("inputRequests", _EMPTY_OBJECT))
    state = result.get("requestState", NULL)
    is_stateless = _decode(state, type=str | None) is None
    if not requests and is_stateless:
        return ServerUnavailable("the server requires input but sent no input requests")
    needed = None if is_stateless else state
    return InputRequired(input_requests=requests, request_state=needed, result=_encode(result))


def _encode_stateless_read(result: Members) -> bytes:
    """The content of a resource is private to this caller, whatever its server states."""
    ttl = _decode(result.get("ttlMs", b"0"))
    own = {
        "resultType": msgspec.Raw(_COMPLETE),
        "ttlMs": msgspec.Raw(b"%d" % (ttl if type(ttl) is int and ttl > 0 else 0)),
        "cacheScope": msgspec.Raw(b'"private"'),
    }
    return _encode({**result, **own})


def _encode_stateful(result: Members, method: str) -> bytes:
    members = {name: raw for name, raw in result.items() if name not in _MODERN_MEMBERS}
    structured = members.get("structuredContent")
    if structured is not None and method == "tools/call" and bytes(structured)[:1] != b"{":
        del members["structuredContent"]
        members["content"] = _append_as_text(members.get("content", _EMPTY_ARRAY), structured)
    return _encode(members)


def _append_as_text(content: msgspec.Raw, structured: msgspec.Raw) -> msgspec.Raw:
    """`content` with a structured value that is not an object, unless it is null or already in a text."""
    value = _decode(structured)
    texts = [block.get("text") for block in _decode(content, type=list[dict[str, Any]])]
    if value is None or any(_is_same_json(text, value) for text in texts):
        return content
    blocks: list[object] = [*_decode(content, type=list[msgspec.Raw])]
    return encode_raw([*blocks, {"type": "text", "text": bytes(structured).decode()}])


def _is_same_json(text: object, value: object) -> bool:
    try:
        # Compared as bytes: to Python, `1`, `1.0` and `true` are all one.
        return isinstance(text, str) and encode_canonical(_decode(text)) == encode_canonical(value)
    except (msgspec.DecodeError, RecursionError):
        return False
