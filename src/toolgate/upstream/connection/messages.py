"""JSON-RPC towards servers: requests, responses, and the `_meta` and `Mcp-*` headers of each revision.

A stateless server checks the `Mcp-*` headers, on which intermediaries route, against the body. They are made
from the bytes that are sent, never from anything else in the caller's request.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from toolgate import __version__
from toolgate.errors import InvalidParams
from toolgate.model.json_text import UNREADABLE, Members, decode_members, encode_raw
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
from toolgate.redaction.credentials import CredentialMask
from toolgate.upstream.connection.contract import (
    NO_CAPABILITIES,
    ClientChannel,
    Params,
    RpcResponse,
    ServerInfo,
)

CLIENT_INFO: Final = msgspec.json.encode({"name": "toolgate", "version": __version__})
PROGRESS_KEY: Final = "progressToken"
LISTEN: Final = "subscriptions/listen"
# JSON-RPC 2.0, section 5.1.
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

_CLIENT_INFO: Final = msgspec.Raw(CLIENT_INFO)
_PROGRESS_BYTES: Final = PROGRESS_KEY.encode()
_MAX_CACHED_BYTES: Final = 2_048
"""A longer `_meta` or set of capabilities is not cached: clients could fill the memory with them."""
_encode = msgspec.json.encode


def _encode_envelope(capabilities: bytes, log_level: str) -> bytes:
    """The members that describe a client, as the beginning of a JSON object."""
    members = {
        PROTOCOL_VERSION_KEY: encode_raw(MODERN_VERSION),
        CLIENT_CAPABILITIES_KEY: msgspec.Raw(capabilities),
    }
    if log_level:
        members[LOG_LEVEL_KEY] = encode_raw(log_level)
    return _encode(members)[:-1]


_cached_envelope: Final = lru_cache(maxsize=64)(_encode_envelope)
_OWN_ENVELOPE: Final = _encode_envelope(NO_CAPABILITIES, "")
_OWN_INFO: Final = b",%b" % _encode({CLIENT_INFO_KEY: _CLIENT_INFO})[1:]
OWN_META: Final = msgspec.Raw(_OWN_ENVELOPE + _OWN_INFO)
"""The whole `_meta` of a request that the gateway sends for itself."""


class IncomingMessage(msgspec.Struct):
    """Any message that a server may send. Members that the gateway only relays stay raw."""

    id: msgspec.Raw = msgspec.Raw(b"")
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: Members | msgspec.UnsetType | None = msgspec.UNSET
    error: msgspec.Raw = msgspec.Raw(b"")


class RpcError(msgspec.Struct):
    """A server's error object. `code` should be an integer, but may be anything."""

    code: Any = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


decode_incoming = msgspec.json.Decoder(IncomingMessage).decode
"""Raises UNREADABLE for bytes that are not a message."""


def build_error(code: int, message: str) -> RpcResponse:
    return RpcResponse(error=_encode({"code": code, "message": message}))


# What a caller gets instead of a response that the gateway cannot relay.
NOT_UTF8: Final = build_error(INTERNAL_ERROR, "the server's response is not valid UTF-8")
NOT_JSON: Final = build_error(INTERNAL_ERROR, "the server's response is not JSON that the gateway can relay")
_NO_OUTCOME: Final = build_error(INTERNAL_ERROR, "the server sent neither a result nor an error")

_DEEP_RESPONSE: Final = re.compile(
    rb'\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"id"\s*:\s*(\d{1,18})\s*,\s*"(?:result|error)"'
)
"""The usual beginning of a response that is nested too deep to be parsed."""


def guess_response_id(line: bytes | bytearray) -> bytes:
    """The id of the request that an unreadable message responds to; empty if it is not a response."""
    try:
        # Takes what other languages write and msgspec rejects: lone surrogates, NaN, numbers out of range.
        message = json.loads(line) if line[:1] == b"{" else None
    except RecursionError:
        found = _DEEP_RESPONSE.match(line)
        return bytes(found[1]) if found else b""
    except ValueError:
        return b""
    if not isinstance(message, dict) or not message.keys() & {"result", "error"}:
        return b""
    number = message.get("id")
    return b"%d" % number if type(number) is int else b""


def is_utf8(message: bytes | bytearray) -> bool:
    """Whether all of `message` is UTF-8: decoding does not check members that stay raw."""
    if message.isascii():
        return True
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True


def encode_request(number: int, method: str, params: Params) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (number, _encode(method), _encode(params))


def encode_notification(method: str, params: Params) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_encode(method), _encode(params))


def encode_cancelled(key: bytes) -> bytes:
    return encode_notification(CANCELLED, {"requestId": msgspec.Raw(key)})


def encode_response(request: IncomingMessage, response: RpcResponse) -> bytes:
    if response.error is not None:
        return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request.id, response.error)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request.id, response.result or b"{}")


def is_tool_error(members: Members) -> bool:
    is_error = members.get("isError")
    return is_error is not None and bytes(is_error) == b"true"


class Redactor(CredentialMask):
    """Masks a server's own credentials in its errors and its instructions."""

    def mask_info(self, info: ServerInfo) -> ServerInfo:
        """`info` with masked instructions: they are shown to clients."""
        return replace(info, instructions=self.text(info.instructions)) if info.instructions else info

    def mask_response(self, response: RpcResponse) -> RpcResponse:
        """`response` unchanged, unless it is an error of either kind that shows a credential."""
        if self.is_empty:
            return response
        if response.error is not None:
            return RpcResponse(error=self.raw(response.error))
        is_error = is_tool_error(response.members or {})
        return RpcResponse(result=self.raw(response.result or b"")) if is_error else response


def parse_response(message: IncomingMessage) -> RpcResponse:
    """The result or error of a response. Neither, or both, is the server's fault and counts as an error."""
    error, result = message.error, message.result
    if isinstance(result, dict) and (not error or bytes(error) == b"null"):
        return RpcResponse(members=result)
    if error and not result:
        return RpcResponse(error=bytes(error))
    return _NO_OUTCOME


def parse_error(raw: bytes | msgspec.Raw | None) -> RpcError:
    """A response's error object; an empty one if it is missing or unreadable."""
    try:
        return msgspec.json.decode(raw or b"{}", type=RpcError)
    except UNREADABLE:
        return RpcError()


def build_params(revision: Revision, params: Params, client: ClientChannel | None = None) -> Params:
    """A caller's `params` with the `_meta` that a server of `revision` may see. Raises InvalidParams.

    Leaves the progress token out: it would come back on a connection that many callers share (see `Relay`).
    """
    meta = params.get("_meta")
    if meta is None:
        if revision == "legacy":
            return params
        return {**params, "_meta": msgspec.Raw(_select_envelope(client) + _OWN_INFO)}
    raw = bytes(meta)
    # Clients repeat the same `_meta` in every request.
    visible = (_cached_visible_meta if len(raw) <= _MAX_CACHED_BYTES else _parse_visible_meta)(revision, raw)
    return _join_meta(revision, params, visible, client)


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


def add_meta(revision: Revision, params: Params, members: Params, client: ClientChannel | None) -> Params:
    """`params` with a `_meta` of those members that a server of `revision` may see.

    A stateless server gets an envelope with the capabilities of `client`, on which it may rely. A
    session-based server never sees a key that MCP reserves.
    """
    return _join_meta(revision, params, _encode_visible_meta(revision, members), client)


def _join_meta(revision: Revision, params: Params, visible: bytes, client: ClientChannel | None) -> Params:
    if revision == "modern":
        return {**params, "_meta": msgspec.Raw(b"%b,%b" % (_select_envelope(client), visible[1:]))}
    if visible:
        return {**params, "_meta": msgspec.Raw(visible)}
    return {name: value for name, value in params.items() if name != "_meta"}


def _parse_visible_meta(revision: Revision, raw: bytes) -> bytes:
    members = parse_meta(raw)
    members.pop(PROGRESS_KEY, None)
    return _encode_visible_meta(revision, members)


_cached_visible_meta: Final = lru_cache(maxsize=256)(_parse_visible_meta)


def _encode_visible_meta(revision: Revision, members: Params) -> bytes:
    """The part of a `_meta` that a server sees besides the envelope, as an object; empty if none."""
    visible = {key: value for key, value in members.items() if not key.startswith(RESERVED_PREFIX)}
    if revision == "modern":
        visible[CLIENT_INFO_KEY] = members.get(CLIENT_INFO_KEY, _CLIENT_INFO)
    return _encode(visible) if visible else b""


def _select_envelope(client: ClientChannel | None) -> bytes:
    """The beginning of a stateless request's `_meta`: shared by clients with equal capabilities."""
    if client is None:
        return _OWN_ENVELOPE
    is_short = len(client.capabilities) <= _MAX_CACHED_BYTES
    return (_cached_envelope if is_short else _encode_envelope)(client.capabilities, client.log_level)


_PLAIN = re.compile(r"[\x20-\x7e]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_NOT_MIRRORED: Final = (b"{", b"[", b"n")
"""The first byte of objects, arrays and null."""
_NAME_PARAM: Final = {"prompts/get": "name", "resources/read": "uri"}
"""The member of `params` that `Mcp-Name` repeats, for requests other than tool calls."""

_decode_text = msgspec.json.Decoder(str).decode


def build_mcp_headers(method: str, tool: ToolDefinition | None, params: Params) -> Mapping[str, str]:
    """The `Mcp-*` headers of a request with `params`; `tool` is the tool that it calls, if any.

    Most calls need only the name and share one mapping.
    """
    if tool is None:
        try:
            return {"Mcp-Name": encode_header_value(_decode_text(params[_NAME_PARAM[method]]))}
        except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
            return EMPTY
    fixed = _build_name_header(tool.native_name or tool.ref.name)
    arguments = params.get("arguments")
    if not tool.param_headers or arguments is None:
        return fixed
    mirrored = iter_mirrored_headers(tool, bytes(arguments))
    return {**fixed, **{name: encode_header_value(text) for name, text in mirrored if text is not None}}


@lru_cache(maxsize=4096)
def _build_name_header(name: str) -> Mapping[str, str]:
    return MappingProxyType({"Mcp-Name": encode_header_value(name)})


def encode_header_value(text: str) -> str:
    """`text` unchanged if an HTTP field preserves it, else `=?base64?…?=` (MCP 2026-07-28, transports)."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


def iter_mirrored_headers(tool: ToolDefinition, arguments: bytes) -> Iterator[tuple[str, str | None]]:
    """Each header that repeats an argument of `tool`, and its value; None if there is no value to repeat."""
    for path, token in tool.param_headers:
        yield f"Mcp-Param-{token}", _read_text_at(arguments, path)


def _read_text_at(raw: bytes, path: tuple[str, ...]) -> str | None:
    try:
        for key in path:
            raw = bytes(decode_members(raw)[key])
        if raw.startswith(b'"'):
            return _decode_text(raw)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if raw.startswith(_NOT_MIRRORED) else raw.decode("ascii")
