"""How the MCP door answers: JSON-RPC bodies, HTTP statuses, and the one translation of errors."""

from collections.abc import Mapping
from typing import Final

import msgspec

from toolgate import __version__
from toolgate.catalog.encoding import make_error_result
from toolgate.errors import ToolgateError, UnknownResource
from toolgate.model.json_text import Members, decode_members
from toolgate.model.servers import EMPTY
from toolgate.surfaces.http.messages import Headers, Responder

SERVER_INFO: Final = msgspec.json.encode({"name": "toolgate", "title": "Toolgate", "version": __version__})
NO_RESOURCE: Final = -32002
"""How the handshake era says that there is no such resource. The stateless era says -32602."""

# Failures of the call itself, which the model should see and may act on: results, not protocol errors.
_RESULT_CODES: Final = frozenset(
    {
        "budget_exceeded",
        "mcp_approval_denied",
        "mcp_approval_required",
        "mcp_busy",
        "mcp_input_not_given",
        "mcp_login_required",
        "mcp_output_too_large",
        "mcp_timeout",
        "mcp_unavailable",
        "node_busy",
    }
)
# By JSON-RPC code, for both eras of HTTP; refusals of our own keep the status of their code.
_STATUS: Final = {-32700: 400, -32600: 400, -32020: 400, -32021: 400, -32022: 400}
_STATELESS_STATUS: Final = _STATUS | {-32602: 400, -32601: 404}

# Not about credentials, so HTTP 200 and the hint in the message: with 401 or 403, clients show no text but
# ask their user to log in.
_SHOWN_AS_TEXT: Final = frozenset(
    {"mcp_approval_denied", "mcp_approval_required", "mcp_login_required", "too_many_tools"}
)


class _RpcError(msgspec.Struct):
    """What every client insists on."""

    code: int
    message: str


_decode_error = msgspec.json.Decoder(_RpcError).decode
_UNREADABLE: Final = b'{"code":-32603,"message":"the server answered with an error that cannot be read"}'

_encode = msgspec.json.encode
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")


def send_empty(responder: Responder, status: int) -> None:
    """An answer without a body."""
    responder.send(status, b"")


def send_result(responder: Responder, request_id: bytes, result: bytes, headers: Headers = ()) -> None:
    """The result of a request."""
    responder.send(200, b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result), headers)


def encode_notification(method: str, params: bytes) -> bytes:
    """A message to a client that wants no answer."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_encode(method), params)


def encode_request(request_id: bytes, method: str, params: bytes) -> bytes:
    """A question to a client."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (request_id, _encode(method), params)


def send_upstream_error(
    responder: Responder, request_id: bytes, error: bytes, *, method: str, modern: bool
) -> None:
    """A server's own JSON-RPC error, as it came; one of ours where it is none."""
    try:
        code = _decode_error(error).code
        if modern and code == NO_RESOURCE and method == "resources/read":
            code = -32602
            error = _encode(decode_members(error) | {"code": msgspec.Raw(b"-32602")})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error, code = _UNREADABLE, -32603
    status = _STATELESS_STATUS.get(code, 200) if modern else 200
    responder.send(status, b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, error))


def send_error(
    responder: Responder,
    exc: ToolgateError,
    *,
    request_id: bytes | None = None,
    modern: bool = False,
    headers: Mapping[str, str] = EMPTY,
) -> None:
    """The one shape of every JSON-RPC error of this door."""
    data = {"code": exc.code, "hint": exc.hint, "retryable": exc.retryable, **exc.data}
    is_old_form = isinstance(exc, UnknownResource) and not modern
    error = {
        "code": NO_RESOURCE if is_old_form else exc.wire.jsonrpc,
        "message": f"{exc}: {exc.hint}" if exc.code in _SHOWN_AS_TEXT else str(exc),
        "data": data,
    }
    body = {"jsonrpc": "2.0", "id": msgspec.Raw(request_id or b"null"), "error": error}
    sent = [_NO_SNIFF, *((name.encode(), value.encode()) for name, value in headers.items())]
    responder.send(_status(exc, modern=modern), msgspec.json.encode(body), sent)


def build_failed_result(exc: ToolgateError) -> Members | None:
    """A failure of the call itself as a tool result, or None where it is a protocol error."""
    return make_error_result(exc) if exc.code in _RESULT_CODES else None


def _status(exc: ToolgateError, *, modern: bool) -> int:
    if exc.wire.jsonrpc in (-32600, -32700):
        return exc.wire.http
    if -32768 <= exc.wire.jsonrpc <= -32000:
        return (_STATELESS_STATUS if modern else _STATUS).get(exc.wire.jsonrpc, 200)
    return 200 if exc.code in _SHOWN_AS_TEXT else exc.wire.http
