"""What the MCP endpoint sends: JSON-RPC bodies, HTTP statuses, and the one translation of errors."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from toolgate import __version__
from toolgate.catalog.encoding import make_error_result
from toolgate.errors import CallCancelled, ToolgateError, UnknownResource
from toolgate.model.json_text import Members, decode_members
from toolgate.model.servers import EMPTY
from toolgate.surfaces.http.messages import Headers, Responder

SERVER_INFO: Final = msgspec.json.encode({"name": "toolgate", "title": "Toolgate", "version": __version__})
NO_RESOURCE: Final = -32002
"""JSON-RPC code for an unknown resource in session-based revisions. The stateless revision has -32602."""

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
# By JSON-RPC code. Errors of the gateway itself keep the status of their code.
_STATUS: Final = {-32700: 400, -32600: 400, -32020: 400, -32021: 400, -32022: 400}
_STATELESS_STATUS: Final = _STATUS | {-32602: 400, -32601: 404}

# Not about credentials, so HTTP 200 and the hint in the message: with 401 or 403, clients show no text but
# ask their user to log in.
_SHOWN_AS_TEXT: Final = frozenset(
    {"mcp_approval_denied", "mcp_approval_required", "mcp_login_required", "too_many_tools"}
)


class _RpcError(msgspec.Struct):
    """The members that every client requires."""

    code: int
    message: str


_decode_error = msgspec.json.Decoder(_RpcError).decode
_UNREADABLE: Final = b'{"code":-32603,"message":"the server sent an error that cannot be read"}'

_log = logging.getLogger(__name__)
_encode = msgspec.json.encode
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")


def send_empty(responder: Responder, status: int) -> None:
    """Send a response without a body."""
    responder.send(status, b"")


def send_result(responder: Responder, request_id: bytes, result: bytes, headers: Headers = ()) -> None:
    """Send the result of a request."""
    responder.send(200, b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result), headers)


def encode_notification(method: str, params: bytes) -> bytes:
    """A JSON-RPC notification to a client."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (_encode(method), params)


def encode_request(request_id: bytes, method: str, params: bytes) -> bytes:
    """A JSON-RPC request to a client."""
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (request_id, _encode(method), params)


def send_upstream_error(
    responder: Responder, request_id: bytes, error: bytes, *, method: str, stateless: bool
) -> None:
    """Send a server's own JSON-RPC error as it came, or the gateway's if it is not valid."""
    try:
        code = _decode_error(error).code
        if stateless and code == NO_RESOURCE and method == "resources/read":
            code = -32602
            error = _encode(decode_members(error) | {"code": msgspec.Raw(b"-32602")})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error, code = _UNREADABLE, -32603
    status = _STATELESS_STATUS.get(code, 200) if stateless else 200
    responder.send(status, b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, error))


def send_error(
    responder: Responder,
    exc: ToolgateError,
    *,
    request_id: bytes | None = None,
    stateless: bool = False,
    headers: Mapping[str, str] = EMPTY,
) -> None:
    """Send an error of the gateway. Every JSON-RPC error of this endpoint has this shape."""
    data = {"code": exc.code, "hint": exc.hint, "retryable": exc.retryable, **exc.data}
    is_stateful_form = isinstance(exc, UnknownResource) and not stateless
    error = {
        "code": NO_RESOURCE if is_stateful_form else exc.wire.jsonrpc,
        "message": f"{exc}: {exc.hint}" if exc.code in _SHOWN_AS_TEXT else str(exc),
        "data": data,
    }
    body = {"jsonrpc": "2.0", "id": msgspec.Raw(request_id or b"null"), "error": error}
    sent = [_NO_SNIFF, *((name.encode(), value.encode()) for name, value in headers.items())]
    responder.send(_status(exc, stateless=stateless), msgspec.json.encode(body), sent)


def build_failed_result(exc: ToolgateError) -> Members | None:
    """A failure of the call itself as a tool result; None for a protocol error."""
    return make_error_result(exc) if exc.code in _RESULT_CODES else None


def _status(exc: ToolgateError, *, stateless: bool) -> int:
    if exc.wire.jsonrpc in (-32600, -32700):
        return exc.wire.http
    if -32768 <= exc.wire.jsonrpc <= -32000:
        return (_STATELESS_STATUS if stateless else _STATUS).get(exc.wire.jsonrpc, 200)
    return 200 if exc.code in _SHOWN_AS_TEXT else exc.wire.http


class HeldResponder:
    """Holds the response to one message of a batch or stream, which has no place for a status or headers."""

    def __init__(self, whole: Responder, task: "asyncio.Task[None]") -> None:
        self._whole = whole
        self.task = task
        self.body = b""

    def add_headers(self, headers: Headers) -> None:
        """Nothing: the whole response has its own."""

    def send(self, status: int, body: bytes, headers: Headers = ()) -> None:
        del status, headers
        self.body = body

    def send_message(self, message: bytes) -> bool:
        return self._whole.send_message(message)

    def start(self, status: int, headers: Headers) -> None:
        """Nothing: the whole response starts on its own."""

    async def write(self, chunk: bytes) -> None:
        await self._whole.write(chunk)

    def end(self) -> None:
        """Nothing: the whole response ends on its own."""


@contextmanager
def responding_with_errors(responder: HeldResponder, request_id: bytes | None) -> Iterator[None]:
    """Make what fails in the block the response to one message. The other messages go on."""
    try:
        yield
    except CallCancelled:
        pass  # the client that cancelled it expects no response
    except ToolgateError as exc:
        send_error(responder, exc, request_id=request_id)
    except Exception:  # a message ends here, whatever is wrong with it
        _log.exception("a request failed")
        send_error(responder, ToolgateError("internal error"), request_id=request_id)
