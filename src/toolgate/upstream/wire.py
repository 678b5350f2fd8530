"""JSON-RPC towards servers: whole messages from parts, answers into parts, and the envelope of each era."""

import json
import re
from typing import Any, Final

import msgspec

from toolgate import __version__
from toolgate.errors import InvalidParams
from toolgate.model.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    RESERVED_PREFIX,
)
from toolgate.model.tools import Era
from toolgate.upstream.link import Params, Reply

CLIENT_INFO: Final = msgspec.json.encode({"name": "toolgate", "version": __version__})

_OWN_MEMBERS: Final[Params] = {
    PROTOCOL_VERSION_KEY: msgspec.Raw(msgspec.json.encode(MODERN_VERSION)),
    CLIENT_CAPABILITIES_KEY: msgspec.Raw(b"{}"),
    CLIENT_INFO_KEY: msgspec.Raw(CLIENT_INFO),
}
OWN_META: Final = msgspec.Raw(msgspec.json.encode(_OWN_MEMBERS))
"""The envelope of a request that no caller stands behind, or whose caller sent none."""
# These come back as messages on a connection that many callers share, so none may leave as it came.
_NOT_CARRIED: Final = frozenset({"progressToken"})

LIST_CHANGED: Final = "notifications/tools/list_changed"
LISTEN: Final = "subscriptions/listen"
LISTEN_PARAMS: Final[Params] = {
    "_meta": OWN_META,
    "notifications": msgspec.Raw(b'{"toolsListChanged":true}'),
}
"""How a modern server is asked to tell when its tools change."""


class Incoming(msgspec.Struct):
    """The envelope of any message a server may send; members we only carry stay raw."""

    id: msgspec.Raw = msgspec.Raw(b"")
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class RpcError(msgspec.Struct):
    """What a server says went wrong. `code` should be an integer, and is whatever the server made it."""

    code: Any = 0
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


decode_incoming = msgspec.json.Decoder(Incoming).decode
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `decode_incoming` raises for bytes that are no message."""
NOT_UTF8: Final = Reply(error=b'{"code":-32603,"message":"the server\'s answer is not valid UTF-8"}')
NOT_JSON: Final = Reply(
    error=b'{"code":-32603,"message":"the server\'s answer is not JSON that can be carried"}'
)
"""What a caller gets in place of an answer that cannot be handed on."""
_decode_members = msgspec.json.Decoder(Params).decode
_encode = msgspec.json.encode


_DEEP_ANSWER: Final = re.compile(
    rb'\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"id"\s*:\s*(\d{1,18})\s*,\s*"(?:result|error)"'
)
"""How an answer begins that is nested too deep to be read, written in the usual order."""


def guess_answered(line: bytes) -> bytes:
    """The id of the request that an unreadable message means to answer; empty where it answers none."""
    try:
        # Takes what other languages write and we do not: lone surrogates, NaN, numbers out of range.
        message = json.loads(line) if line[:1] == b"{" else None
    except RecursionError:
        answered = _DEEP_ANSWER.match(line)
        return answered[1] if answered else b""
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


def encode_answer(request: Incoming) -> bytes:
    """What we say to a server's own request, without the line end: we offer it nothing but `ping`."""
    if request.method == "ping":
        return b'{"jsonrpc":"2.0","id":%b,"result":{}}' % request.id
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"method not found"}}' % request.id


class _ToolResult(msgspec.Struct):
    is_error: bool = msgspec.field(default=False, name="isError")


_decode_tool_result = msgspec.json.Decoder(_ToolResult).decode


def is_tool_error(result: bytes) -> bool:
    """Whether the result of a `tools/call` says that the tool failed. Skipping over a result is cheap."""
    try:
        return _decode_tool_result(result).is_error
    except UNREADABLE:
        return False


def reply_of(message: Incoming) -> Reply:
    """The answer in a response. Neither member, or both, is the server's fault and reads as an error."""
    error = bytes(message.error)
    if message.result and error in {b"", b"null"}:
        return Reply(result=bytes(message.result))
    if error and not message.result:
        return Reply(error=error)
    return Reply(error=b'{"code":-32603,"message":"the server sent neither a result nor an error"}')


def parse_error(raw: bytes | msgspec.Raw | None) -> RpcError:
    """A response's error object; an empty one where there is none to read."""
    try:
        return msgspec.json.decode(raw or b"{}", type=RpcError)
    except UNREADABLE:
        return RpcError()


def params_for(era: Era, params: Params) -> Params:
    """A caller's `params` with the `_meta` that a server of `era` may see.

    A modern caller's own envelope goes through to a modern server: its capabilities are the ones the
    server may rely on. A legacy server never sees envelope keys, a modern one always does. Raises
    InvalidParams.
    """
    meta = params.get("_meta")
    if meta is None:
        return {**params, "_meta": OWN_META} if era == "modern" else params
    try:
        members = _decode_members(meta)
    except msgspec.DecodeError as exc:
        raise InvalidParams("`_meta` is not an object") from exc
    kept = {key: value for key, value in members.items() if key not in _NOT_CARRIED}
    if era == "modern":
        return {**params, "_meta": msgspec.Raw(_encode(_OWN_MEMBERS | kept))}
    kept = {key: value for key, value in kept.items() if not key.startswith(RESERVED_PREFIX)}
    if kept:
        return {**params, "_meta": msgspec.Raw(_encode(kept))}
    return {name: value for name, value in params.items() if name != "_meta"}
