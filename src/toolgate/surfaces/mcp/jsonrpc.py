"""JSON-RPC messages: the envelope is parsed and checked once; members that are only forwarded stay raw.

A body is decoded in full once, to prove that it is JSON that any server can read (no NaN, no numbers out of
range, no lone surrogates, no depth bomb). The bytes are forwarded unchanged. A server may ignore letter case,
stop at a NUL or normalize Unicode. So a message is rejected first if a member looks like one that the gateway
decides on and is not spelled like it.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from toolgate.errors import InvalidParams, InvalidRequest, ParseFailed
from toolgate.model.json_text import KnownNames, describe_ambiguity, find_deep_clash
from toolgate.model.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    RESERVED_PREFIX,
)
from toolgate.surfaces.http.parsing import has_duplicate_members, is_small_and_flat, parse_json
from toolgate.upstream.connection.contract import Params, RpcResponse

ENVELOPE_MEMBERS: Final = KnownNames("jsonrpc", "id", "method", "params", "result", "error")
PARAMS_MEMBERS: Final = KnownNames(
    *("name", "arguments", "_meta", "uri", "ref", "argument", "context", "cursor", "level", "task"),
    *("requestState", "inputResponses", "notifications", "requestId", "reason", "progressToken", "progress"),
    *("protocolVersion", "capabilities", "clientInfo", "tools"),
)
"""The members of all methods: a server may read any of them."""
RESULT_MEMBERS: Final = KnownNames("action", "content", "_meta", "model", "role", "stopReason", "roots")
"""The members of a client's result for a request."""
_OBJECT_MEMBERS: Final[Mapping[str, KnownNames]] = {
    "_meta": KnownNames(
        *(PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY),
        *("progressToken", "traceparent", "tracestate", "baggage"),
        prefixes=(RESERVED_PREFIX,),
    ),
    "ref": KnownNames("type", "name", "uri", "title"),
    "argument": KnownNames("name", "value"),
    "context": KnownNames("arguments"),
    "notifications": KnownNames(
        *("toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions")
    ),
}


def find_ambiguity(params: Mapping[str, Any]) -> str:
    """How a server could read `params` differently from the gateway; empty if it cannot.

    The members of `arguments` belong to the tool: they are checked once the tool is known.
    """
    impostor = PARAMS_MEMBERS.find_impostor(params)
    if impostor is not None:
        return describe_ambiguity(impostor, "`params`")
    for name, value in params.items():
        known = _OBJECT_MEMBERS.get(name)
        if known is not None and isinstance(value, dict):
            impostor = known.find_impostor(value)
        elif name == "inputResponses":
            impostor = find_deep_clash(value)
        if impostor is not None:
            return describe_ambiguity(impostor, f"`{name}`")
    return ""


MAX_ID_BYTES: Final = 256  # a choice: clients count, or send UUIDs of 36 characters
MAX_NAME_CHARS: Final = 256  # a choice: a server's id and its tool's name have 40 and 128 at most

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")
_PLAIN_DIGITS: Final = 18  # numbers up to this long are certainly of 64 bits
_NOTHING: Final = msgspec.Raw(b"")
_decode = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode


class _Envelope(msgspec.Struct, gc=False):
    jsonrpc: str = ""
    id: msgspec.Raw = _NOTHING
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: Params = msgspec.field(default_factory=dict)
    result: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


class _RpcError(msgspec.Struct, gc=False):
    """The members that every client requires."""

    code: int
    message: str


class McpMessage(msgspec.Struct):
    """One request or notification. `id` is the client's own bytes, which the response repeats."""

    method: str
    params: Params
    id: bytes | None
    round: int = 0
    """How often its server has required input."""
    fault: str = ""
    """How a server could read `params` differently. A message with a fault is rejected."""

    def check(self) -> None:
        """Raise InvalidParams for an ambiguous message."""
        if self.fault:
            raise InvalidParams(self.fault, hint="send each member once, spelled as in the specification")

    def text(self, member: str) -> str | None:
        """A string member of `params`; None if it is absent. Raises InvalidParams."""
        raw = self.params.get(member)
        if raw is None:
            return None
        try:
            return _decode_text(raw)
        except msgspec.ValidationError as exc:
            raise InvalidParams(f"`{member}` must be a string") from exc


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """The response of a client to a request."""

    id: bytes
    rpc: RpcResponse


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
decode_error: Final = msgspec.json.Decoder(_RpcError).decode


def parse_message(body: bytes) -> McpMessage | ClientResponse:
    """One JSON-RPC request, notification or response. Raises ParseFailed and InvalidRequest."""
    envelope, whole = _parse_envelope(body)
    if envelope.jsonrpc != "2.0":
        raise InvalidRequest("the body is not a JSON-RPC 2.0 message")
    method, params = envelope.method, envelope.params
    if method is msgspec.UNSET:
        return _parse_response(envelope, body, whole)
    if len(method) > MAX_NAME_CHARS:
        raise InvalidRequest("`method` is too long")
    meta = params.get("_meta")
    if meta is not None and memoryview(meta)[0] != ord("{"):
        raise InvalidRequest("`_meta` must be an object")
    fault = find_ambiguity(whole.get("params", {}))
    if has_duplicate_members(body, whole):
        names = json.loads(body, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
        if len(names) > len(set(names)):
            raise InvalidRequest("the message has a duplicate member")
        fault = "an object in `params` has a duplicate member"
    return McpMessage(method, params, _parse_id(bytes(envelope.id)) if envelope.id else None, fault=fault)


def _parse_envelope(body: bytes) -> tuple[_Envelope, dict[str, Any]]:
    """The envelope, and all of the body as values."""
    whole = None if is_small_and_flat(body) else parse_json(body)
    try:
        envelope = _decode_envelope(body)
        if whole is None:
            whole = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        parse_json(body)  # raises ParseFailed if it is not JSON at all
        raise InvalidRequest("the body must be one JSON-RPC message") from exc
    impostor = ENVELOPE_MEMBERS.find_impostor(whole)
    if impostor is not None:
        raise InvalidRequest(describe_ambiguity(impostor, "the message"))
    return envelope, whole


def _parse_response(envelope: _Envelope, body: bytes, whole: dict[str, Any]) -> ClientResponse:
    """Raises InvalidRequest, also if a server could read the response differently from the gateway."""
    if has_duplicate_members(body, whole):
        raise InvalidRequest("an object in the message has a duplicate member")
    result = whole.get("result")
    impostor = RESULT_MEMBERS.find_impostor(result) if isinstance(result, dict) else None
    if impostor is not None:
        raise InvalidRequest(describe_ambiguity(impostor, "`result`"))
    return ClientResponse(_parse_id(bytes(envelope.id)), _parse_outcome(envelope))


def _check_readable(raw: bytes) -> None:
    try:
        _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ParseFailed("the body is not JSON that the gateway can forward") from exc


def _parse_id(raw: bytes) -> bytes:
    if (raw.isdigit() and len(raw) <= _PLAIN_DIGITS) or _INTEGER.fullmatch(raw):
        return raw
    if raw[:1] == b'"' and len(raw) <= MAX_ID_BYTES:
        _check_readable(raw)
        return raw
    raise InvalidRequest("`id` must be a string of at most 256 bytes or a 64-bit integer")


def _parse_outcome(envelope: _Envelope) -> RpcResponse:
    result, error = bytes(envelope.result), bytes(envelope.error)
    _check_readable(result or error)
    if result[:1] == b"{" and not error:
        return RpcResponse(result=result)
    with suppress(msgspec.DecodeError):
        if not result:
            decode_error(error)
            return RpcResponse(error=error)
    raise InvalidRequest("the body is neither a request nor a response with one result or one error")
