"""JSON-RPC towards servers: whole messages from parts, answers into parts, and the envelope of each era.

The `Mcp-*` headers by which a modern HTTP server checks what intermediaries route on against the body.

Headers are made from the bytes that are sent, never from anything else the caller said.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from toolgate import __version__
from toolgate.errors import InvalidParams
from toolgate.model.json_text import UNREADABLE, Members, decode_members
from toolgate.model.protocol import (
    CANCELLED,
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    RESERVED_PREFIX,
)
from toolgate.model.servers import EMPTY
from toolgate.model.tools import Revision, ToolDefinition
from toolgate.upstream.connection.contract import NO_CAPABILITIES, ClientChannel, Params, RpcResponse

CLIENT_INFO: Final = msgspec.json.encode({"name": "toolgate", "version": __version__})

_CLIENT_INFO: Final = msgspec.Raw(CLIENT_INFO)
_MAX_CACHED_BYTES: Final = 2_048


def _encode_envelope(capabilities: bytes, log_level: str) -> bytes:
    """The members that speak for a client, as the beginning of an object."""
    members = {
        PROTOCOL_VERSION_KEY: msgspec.Raw(msgspec.json.encode(MODERN_VERSION)),
        CLIENT_CAPABILITIES_KEY: msgspec.Raw(capabilities),
    }
    if log_level:
        members[LOG_LEVEL_KEY] = msgspec.Raw(msgspec.json.encode(log_level))
    return msgspec.json.encode(members)[:-1]


_cached_envelope: Final = lru_cache(maxsize=64)(_encode_envelope)
_OWN_ENVELOPE: Final = _encode_envelope(NO_CAPABILITIES, "")
_OWN_INFO: Final = b",%b" % msgspec.json.encode({CLIENT_INFO_KEY: _CLIENT_INFO})[1:]
OWN_META: Final = msgspec.Raw(_OWN_ENVELOPE + _OWN_INFO)
"""The whole `_meta` of a request that no client stands behind."""

PROGRESS_KEY: Final = "progressToken"
_PROGRESS_BYTES: Final = PROGRESS_KEY.encode()

LISTEN: Final = "subscriptions/listen"


class IncomingMessage(msgspec.Struct):
    """The envelope of any message a server may send; members we only carry stay raw."""

    id: msgspec.Raw = msgspec.Raw(b"")
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: Members | msgspec.UnsetType | None = msgspec.UNSET
    error: msgspec.Raw = msgspec.Raw(b"")

    @property
    def is_response(self) -> bool:
        return self.result is not msgspec.UNSET or bool(self.error)


class RpcError(msgspec.Struct):
    """What a server says went wrong. `code` should be an integer, and is whatever the server made it."""

    code: Any = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


decode_incoming = msgspec.json.Decoder(IncomingMessage).decode
"""What `decode_incoming` raises for bytes that are no message."""
NOT_UTF8: Final = RpcResponse(error=b'{"code":-32603,"message":"the server\'s answer is not valid UTF-8"}')
NOT_JSON: Final = RpcResponse(
    error=b'{"code":-32603,"message":"the server\'s answer is not JSON that can be carried"}'
)
"""What a caller gets in place of an answer that cannot be handed on."""
_encode = msgspec.json.encode


_DEEP_RESPONSE: Final = re.compile(
    rb'\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"id"\s*:\s*(\d{1,18})\s*,\s*"(?:result|error)"'
)
"""How an answer begins that is nested too deep to be read, written in the usual order."""


def guess_response_id(line: bytes | bytearray) -> bytes:
    """The id of the request that an unreadable message means to answer; empty where it answers none."""
    try:
        # Takes what other languages write and we do not: lone surrogates, NaN, numbers out of range.
        message = json.loads(line) if line[:1] == b"{" else None
    except RecursionError:
        answered = _DEEP_RESPONSE.match(line)
        return bytes(answered[1]) if answered else b""
    except ValueError:
        return b""
    if not isinstance(message, dict) or not message.keys() & {"result", "error"}:
        return b""
    number = message.get("id")
    return b"%d" % number if type(number) is int else b""


def is_utf8(message: bytes | bytearray) -> bool:
    """Whether `message` is text throughout: decoding it does not look into what stays raw."""
    if message.isascii():
        return True
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True


def encode_request(number: int, method: str, params: Params) -> bytes:
    """One request, without the line end."""
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (
        number,
        _encode(method),
        _encode(params),
    )


def encode_notification(method: str, params: Params) -> bytes:
    """One notification, without the line end."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_encode(method), _encode(params))


def encode_cancelled(key: bytes) -> bytes:
    """Nobody waits for the answer to our request `key` any more."""
    return encode_notification(CANCELLED, {"requestId": msgspec.Raw(key)})


def encode_response(request: IncomingMessage, reply: RpcResponse) -> bytes:
    """What is said to a server's own request, without the line end."""
    if reply.error is not None:
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request.id, reply.error)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request.id, reply.result or b"{}")


def is_tool_error(members: Members) -> bool:
    """Whether the result of a `tools/call` says that the tool failed."""
    is_error = members.get("isError")
    return is_error is not None and bytes(is_error) == b"true"


def parse_response(message: IncomingMessage) -> RpcResponse:
    """The answer in a response. Neither member, or both, is the server's fault and reads as an error."""
    error, result = message.error, message.result
    if isinstance(result, dict) and (not error or bytes(error) == b"null"):
        return RpcResponse(members=result)
    if error and not result:
        return RpcResponse(error=bytes(error))
    return RpcResponse(error=b'{"code":-32603,"message":"the server sent neither a result nor an error"}')


def parse_error(raw: bytes | msgspec.Raw | None) -> RpcError:
    """A response's error object; an empty one where there is none to read."""
    try:
        return msgspec.json.decode(raw or b"{}", type=RpcError)
    except UNREADABLE:
        return RpcError()


def build_params(era: Revision, params: Params, client: ClientChannel | None = None) -> Params:
    """A caller's `params` with the `_meta` that a server of `era` may see. Raises InvalidParams.

    Without its progress token: that comes back on a connection which many callers share (see `Relay`).
    """
    meta = params.get("_meta")
    if meta is None:
        return add_meta(era, params, None, client)
    raw = bytes(meta)
    # Clients send the same over and over.
    carried = (_cached_visible_meta if len(raw) <= _MAX_CACHED_BYTES else _parse_visible_meta)(era, raw)
    return _add_visible_meta(era, params, carried, client)


def may_want_progress(params: Params) -> bool:
    """Whether a caller's `_meta` may hold a progress token. Escapes could hide one."""
    meta = params.get("_meta")
    return meta is not None and (_PROGRESS_BYTES in (raw := bytes(meta)) or b"\\u" in raw)


def parse_meta(raw: bytes | msgspec.Raw) -> Params:
    """The members of a caller's `_meta`. Raises InvalidParams."""
    try:
        return decode_members(raw)
    except msgspec.DecodeError as exc:
        raise InvalidParams("`_meta` is not an object") from exc


def add_meta(era: Revision, params: Params, members: Params | None, client: ClientChannel | None) -> Params:
    """`params` with a `_meta` of these members, as far as a server of `era` may see them.

    A modern server gets an envelope that speaks for `client`: its capabilities are the ones the server may
    rely on. A legacy one never sees a key that MCP reserves.
    """
    if members is not None:
        return _add_visible_meta(era, params, _encode_visible_meta(era, members), client)
    return {**params, "_meta": msgspec.Raw(_envelope(client) + _OWN_INFO)} if era == "modern" else params


def _add_visible_meta(era: Revision, params: Params, carried: bytes, client: ClientChannel | None) -> Params:
    if era == "modern":
        return {**params, "_meta": msgspec.Raw(b"%b,%b" % (_envelope(client), carried[1:]))}
    if carried:
        return {**params, "_meta": msgspec.Raw(carried)}
    return {name: value for name, value in params.items() if name != "_meta"}


def _parse_visible_meta(era: Revision, raw: bytes) -> bytes:
    members = parse_meta(raw)
    members.pop(PROGRESS_KEY, None)
    return _encode_visible_meta(era, members)


_cached_visible_meta: Final = lru_cache(maxsize=256)(_parse_visible_meta)


def _encode_visible_meta(era: Revision, members: Params) -> bytes:
    """What of a `_meta` a server sees beside the envelope, as an object; empty where it sees nothing."""
    kept = {key: value for key, value in members.items() if not key.startswith(RESERVED_PREFIX)}
    if era == "modern":
        kept[CLIENT_INFO_KEY] = members.get(CLIENT_INFO_KEY, _CLIENT_INFO)
    return _encode(kept) if kept else b""


def _envelope(client: ClientChannel | None) -> bytes:
    """How the `_meta` of a modern request begins: one for all clients that can do the same."""
    if client is None:
        return _OWN_ENVELOPE
    is_short = len(client.capabilities) <= _MAX_CACHED_BYTES
    return (_cached_envelope if is_short else _encode_envelope)(client.capabilities, client.log_level)


_PLAIN = re.compile(r"[\x20-\x7e]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_NOT_MIRRORED: Final = (b"{", b"[", b"n")
"""How objects, arrays and null begin."""
_NAMED_BY: Final = {"prompts/get": "name", "resources/read": "uri"}
"""The member of `params` that `Mcp-Name` repeats, where no tool is called."""

_decode_text = msgspec.json.Decoder(str).decode


class McpHeaders:
    """The headers of one server's calls. Most need only the name, and get the same object every time."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Mapping[str, str]] = {}

    def of(self, method: str, tool: ToolDefinition | None, params: Params) -> Mapping[str, str]:
        """What a request with `params` carries; `tool` is the one it calls, if it calls one."""
        if tool is None:
            return _build_name_header(method, params)
        fixed = self._by_name.get(tool.ref.name)
        if fixed is None:
            name = tool.native_name or tool.ref.name
            fixed = MappingProxyType({"Mcp-Name": encode_header_value(name)})
            self._by_name[tool.ref.name] = fixed
        arguments = params.get("arguments")
        if not tool.param_headers or arguments is None:
            return fixed
        return {**fixed, **_build_param_headers(tool, bytes(arguments))}

    def clear(self) -> None:
        """Forget names, so that a server that keeps renaming its tools is not remembered in full."""
        self._by_name.clear()


def encode_header_value(text: str) -> str:
    """`text` as it is where an HTTP field keeps it so, else `=?base64?…?=` (MCP 2026-07-28, transports)."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


def _build_name_header(method: str, params: Params) -> Mapping[str, str]:
    try:
        return {"Mcp-Name": encode_header_value(_decode_text(params[_NAMED_BY[method]]))}
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return EMPTY


def iter_mirrored_headers(tool: ToolDefinition, arguments: bytes) -> Iterator[tuple[str, str | None]]:
    """Each header that repeats an argument of `tool`, and its value; None where there is none to repeat."""
    for path, token in tool.param_headers:
        yield f"Mcp-Param-{token}", _read_text_at(arguments, path)


def _build_param_headers(tool: ToolDefinition, arguments: bytes) -> dict[str, str]:
    values = iter_mirrored_headers(tool, arguments)
    return {name: encode_header_value(text) for name, text in values if text is not None}


def _read_text_at(raw: bytes, path: tuple[str, ...]) -> str | None:
    """The string, number or boolean at `path`, as text; None where there is none to mirror."""
    try:
        for key in path:
            raw = bytes(decode_members(raw)[key])
        if raw.startswith(b'"'):
            return _decode_text(raw)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if raw.startswith(_NOT_MIRRORED) else raw.decode("ascii")
