"""What the MCP endpoint sends: JSON-RPC bodies, the one translation of errors, and event streams.

No node keeps anything for a broken stream: an event id holds the signatures of the lists at that time, so any
node can notify a client of what it missed. The id only selects notifications, so it is not signed.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from toolgate import __version__
from toolgate.catalog.encoding import adapt_result, make_error_result
from toolgate.errors import ToolgateError, UnknownResource
from toolgate.gateway.subscriptions import SIGNATURE_BYTES, ListenerUpdate, ListSignatures, Subscription
from toolgate.model.json_text import decode_members
from toolgate.model.protocol import LIST_CHANGED, UPDATED
from toolgate.model.servers import EMPTY
from toolgate.model.tools import ListKind, Revision
from toolgate.surfaces.http.messages import KEEPALIVE, KEEPALIVE_S, Headers, Responder, encode_event
from toolgate.surfaces.mcp.jsonrpc import McpMessage, decode_error
from toolgate.upstream.pool.pool import ServerResponse

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

_UNREADABLE: Final = b'{"code":-32603,"message":"the server sent an error that cannot be read"}'

_encode = msgspec.json.encode
_NO_SNIFF: Final = (b"x-content-type-options", b"nosniff")


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
    responder: Responder, message: McpMessage, error: bytes | None, *, stateless: bool
) -> None:
    """Send a server's JSON-RPC error unchanged, or the gateway's if it is not valid."""
    error = error or b"{}"
    try:
        code = decode_error(error).code
        if stateless and code == NO_RESOURCE and message.method == "resources/read":
            code = -32602
            error = _encode(decode_members(error) | {"code": msgspec.Raw(b"-32602")})
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error, code = _UNREADABLE, -32603
    status = _STATELESS_STATUS.get(code, 200) if stateless else 200
    responder.send(status, b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (message.id or b"null", error))


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
    responder.send(_status(exc, stateless=stateless), _encode(body), sent)


def _status(exc: ToolgateError, *, stateless: bool) -> int:
    if exc.wire.jsonrpc in (-32600, -32700):
        return exc.wire.http
    if -32768 <= exc.wire.jsonrpc <= -32000:
        return (_STATELESS_STATUS if stateless else _STATUS).get(exc.wire.jsonrpc, 200)
    return 200 if exc.code in _SHOWN_AS_TEXT else exc.wire.http


def send_server_response(responder: Responder, message: McpMessage, response: ServerResponse) -> None:
    """Send a server's response, adapted to session-based revisions. Raises InputRequired."""
    rpc = response.rpc
    if rpc.members is None:
        send_upstream_error(responder, message, rpc.error, stateless=False)
        return
    result = adapt_result(
        rpc.take_members(), upstream=response.revision, client="legacy", method=message.method
    )
    send_result(responder, message.id or b"null", result)


def send_failure(
    responder: Responder, message: McpMessage, exc: ToolgateError, *, revision: Revision
) -> bool:
    """Send a failed tool call as a result for the model. False, with nothing sent, for other failures."""
    if message.method != "tools/call" or exc.code not in _RESULT_CODES:
        return False
    result = adapt_result(make_error_result(exc), upstream="legacy", client=revision)
    send_result(responder, message.id or b"null", result)
    return True


def list_changed_methods(changes: ListenerUpdate) -> list[str]:
    """The notifications for changed lists, each once."""
    methods = (LIST_CHANGED["resources" if kind == "templates" else kind] for kind in changes.lists)
    return list(dict.fromkeys(methods))


_KINDS: Final[tuple[ListKind, ...]] = ("tools", "prompts", "resources", "templates")
_UNSEEN: Final = bytes(SIGNATURE_BYTES)


def encode_event_id(signatures: ListSignatures) -> bytes:
    """The id of an event that is sent while the lists have these signatures."""
    return base64.urlsafe_b64encode(b"".join(signatures.get(kind, _UNSEEN) for kind in _KINDS))


def parse_event_id(event_id: bytes) -> ListSignatures:
    """The list signatures in the id of a client's last event; empty if the id is invalid."""
    try:
        seen = base64.b64decode(event_id, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        seen = b""
    if len(seen) != SIGNATURE_BYTES * len(_KINDS):
        return {}
    parts = (seen[start : start + SIGNATURE_BYTES] for start in range(0, len(seen), SIGNATURE_BYTES))
    return {kind: part for kind, part in zip(_KINDS, parts, strict=True) if part != _UNSEEN}


def encode_changes(subscription: Subscription, changes: ListenerUpdate) -> bytes:
    """The events of changes on the stream of a session."""
    messages = [encode_notification(method, b"{}") for method in list_changed_methods(changes)]
    messages += [encode_notification(UPDATED, _encode({"uri": uri})) for uri in changes.uris]
    # Only the last event has the id: a stream that breaks before it has not sent everything.
    last = encode_event(messages.pop(), event_id=encode_event_id(subscription.seen))
    return b"".join(map(encode_event, messages)) + last


async def send_changes(
    responder: Responder,
    subscription: Subscription,
    encode: Callable[[Subscription, ListenerUpdate], bytes] = encode_changes,
) -> None:
    """Send changes until the subscription ends. `encode` leaves out those not subscribed to."""
    while not subscription.is_over:
        changes = await subscription.wait(KEEPALIVE_S)
        if changes.lists or changes.uris:
            await responder.write(encode(subscription, changes))
        elif not subscription.is_over:
            await responder.write(KEEPALIVE)
