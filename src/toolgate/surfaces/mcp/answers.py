"""How the MCP door answers: JSON-RPC bodies, HTTP statuses, and the one translation of errors."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from toolgate import __version__
from toolgate.errors import ToolgateError
from toolgate.surfaces.guard import Send

SERVER_INFO: Final = msgspec.json.encode({"name": "toolgate", "title": "Toolgate", "version": __version__})
ERROR_META: Final = "toolgate/error"

# Failures of the call itself, which the model should see and may act on: results, not protocol errors.
_RESULTS: Final = frozenset(
    {"mcp_unavailable", "mcp_timeout", "mcp_busy", "mcp_output_too_large", "mcp_approval_required"}
)
# By JSON-RPC code, for both eras of HTTP; refusals of our own keep the status of their code.
_STATUS: Final = {-32700: 400, -32600: 400, -32020: 400, -32022: 400}
_MODERN_STATUS: Final = _STATUS | {-32602: 400, -32601: 404}


class _Coded(msgspec.Struct):
    code: int = 0


_decode_code = msgspec.json.Decoder(_Coded).decode

Headers = Iterable[tuple[bytes, bytes]]
_JSON: Final = (b"content-type", b"application/json")
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")


async def send_json(send: Send, body: bytes, *, status: int = 200, headers: Headers = ()) -> None:
    """One complete JSON answer."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_empty(send: Send, status: int, headers: Headers = ()) -> None:
    """An answer without a body."""
    all_headers = [(b"content-length", b"0"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": b""})


async def send_result(send: Send, request_id: bytes, result: bytes, headers: Headers = ()) -> None:
    """The result of a request."""
    body = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)
    await send_json(send, body, headers=headers)


async def send_upstream_error(send: Send, request_id: bytes, error: bytes, *, modern: bool) -> None:
    """A server's own JSON-RPC error, as it came."""
    status = _MODERN_STATUS.get(_decode_code(error).code, 200) if modern else 200
    body = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, error)
    await send_json(send, body, status=status)


async def send_error(
    send: Send, exc: ToolgateError, *, request_id: bytes | None = None, modern: bool = False
) -> None:
    """The one shape of every JSON-RPC error of this door."""
    code = exc.wire.jsonrpc
    error: dict[str, Any] = {"code": code, "message": str(exc)}
    data = {"code": exc.code, "hint": exc.hint, "retryable": exc.retryable, **exc.data}
    error["data"] = data
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": msgspec.Raw(request_id or b"null"), "error": error})
    await send_json(send, body, status=_status(exc, modern=modern), headers=_error_headers(exc))


def failed_call(exc: ToolgateError) -> bytes | None:
    """A failure of the call itself as a tool result, or None where it is a protocol error."""
    if exc.code not in _RESULTS:
        return None
    detail = {"code": exc.code, "message": str(exc), "hint": exc.hint, "retryable": exc.retryable}
    text = f"{exc.code}: {exc}. {exc.hint}"
    return msgspec.json.encode(
        {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {ERROR_META: detail}}
    )


def _status(exc: ToolgateError, *, modern: bool) -> int:
    if exc.wire.jsonrpc in (-32600, -32700):
        return exc.wire.http
    if -32768 <= exc.wire.jsonrpc <= -32000:
        return (_MODERN_STATUS if modern else _STATUS).get(exc.wire.jsonrpc, 200)
    return exc.wire.http


def _error_headers(exc: ToolgateError) -> Headers:
    if exc.wire.http == 401:
        return [_NO_SNIFF, (b"www-authenticate", b"Bearer")]
    if exc.wire.http == 503:
        return [_NO_SNIFF, (b"retry-after", b"1")]
    return [_NO_SNIFF]
