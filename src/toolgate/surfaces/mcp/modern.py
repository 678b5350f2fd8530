"""The stateless era (2026-07-28): every request carries its own envelope, and nothing is remembered."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

import msgspec

from toolgate.errors import HeaderMismatch, InvalidParams, MethodNotFound, UnsupportedVersion
from toolgate.gateway.gateway import Gateway
from toolgate.model.protocol import (
    CLIENT_CAPABILITIES_KEY,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
)
from toolgate.surfaces.http.events import encode_event
from toolgate.surfaces.mcp.answers import SERVER_INFO, send_empty, send_result
from toolgate.surfaces.mcp.binding import Binding
from toolgate.surfaces.mcp.envelope import Message
from toolgate.surfaces.mcp.exchange import Exchange
from toolgate.surfaces.mcp.legacy import VERSIONS as LEGACY_VERSIONS
from toolgate.surfaces.mcp.streams import Streams, Words
from toolgate.surfaces.mcp.tools import ToolMethods

SUPPORTED: Final = (MODERN_VERSION, *LEGACY_VERSIONS)
_VERSION_BYTES: Final = MODERN_VERSION.encode()
_VERSION_KEY_BYTES: Final = PROTOCOL_VERSION_KEY.encode()
_LEGACY_BYTES: Final = frozenset(version.encode() for version in LEGACY_VERSIONS)
DISCOVER_TTL_MS: Final = 300_000


class ModernEra:
    """Serves clients that send the envelope with every request."""

    def __init__(self, gateway: Gateway, *, streams: Streams) -> None:
        self._gateway = gateway
        self._tools = ToolMethods(gateway)
        self._streams = streams
        self._good_envelopes: set[bytes] = set()

    async def answer(self, exchange: Exchange, message: Message, binding: Binding) -> None:
        """One POST."""
        if message.id is None:
            # The revision defines no notification from client to server over HTTP; they have no effect.
            send_empty(exchange.responder, 202)
            return
        self._check_envelope(exchange, message)
        if message.method == "tools/call":
            await self._tools.call(exchange.responder, message, binding, era="modern")
        elif message.method == "tools/list":
            await self._tools.list(exchange.responder, message, binding, era="modern")
        elif message.method == "server/discover":
            self._discover(exchange, message.id, binding)
        elif message.method == "subscriptions/listen":
            await self._listen(exchange, message, binding)
        else:
            raise MethodNotFound(f"no method `{message.method}`")

    def _discover(self, exchange: Exchange, request_id: bytes, binding: Binding) -> None:
        view = binding.view(self._gateway)
        result = {
            "supportedVersions": SUPPORTED,
            "capabilities": {"tools": {"listChanged": True}},
            "resultType": "complete",
            "ttlMs": DISCOVER_TTL_MS,
            "cacheScope": "private",
            "_meta": {SERVER_INFO_KEY: msgspec.Raw(SERVER_INFO)},
        }
        if view.warnings:
            result["instructions"] = " ".join(view.warnings)
        send_result(exchange.responder, request_id, msgspec.json.encode(result))

    async def _listen(self, exchange: Exchange, message: Message, binding: Binding) -> None:
        exchange.accepts("text/event-stream")
        honoured = _wants_tool_changes(message)
        request_id = msgspec.Raw(message.id or b"null")
        meta = {SUBSCRIPTION_ID_KEY: request_id}
        acknowledged = {
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": True} if honoured else {}, "_meta": meta},
        }
        changed = {"method": "notifications/tools/list_changed", "params": {"_meta": meta}}
        ended = {"id": request_id, "result": {"resultType": "complete", "_meta": meta}}
        words = Words(
            first=_event(acknowledged),
            changed=_event(changed) if honoured else b": unheard\n\n",
            last=_event(ended),
        )
        await self._streams.announce(exchange, binding.caller, words)

    def _check_envelope(self, exchange: Exchange, message: Message) -> None:
        """The ladder of the specification: envelope, headers against body, version."""
        raw = bytes(message.params.get("_meta", b""))
        if raw not in self._good_envelopes:
            self._check_meta(exchange, raw)
        elif exchange.headers.get(b"mcp-protocol-version") != _VERSION_BYTES:
            _check_header(exchange, b"mcp-protocol-version", MODERN_VERSION)
        _check_header(exchange, b"mcp-method", message.method)
        if message.method == "tools/call":
            _check_header(exchange, b"mcp-name", message.text("name") or "")

    def _check_meta(self, exchange: Exchange, raw: bytes) -> None:
        try:
            meta = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) if raw else {}
            version = msgspec.json.decode(meta.get(PROTOCOL_VERSION_KEY, b"null"), type=str)
            msgspec.json.decode(meta.get(CLIENT_CAPABILITIES_KEY, b"null"), type=dict)
        except msgspec.ValidationError as exc:
            raise InvalidParams(
                f"`_meta` needs `{PROTOCOL_VERSION_KEY}` and `{CLIENT_CAPABILITIES_KEY}`"
            ) from exc
        _check_header(exchange, b"mcp-protocol-version", version)
        if version != MODERN_VERSION:
            data = {"supported": SUPPORTED, "requested": version}
            raise UnsupportedVersion(f"protocol version `{version[:40]}` is not served", data=data)
        # Clients send the same envelope over and over; those that vary it must not fill the memory.
        if len(raw) <= 1_024:
            if len(self._good_envelopes) >= 1_024:
                self._good_envelopes.clear()
            self._good_envelopes.add(raw)


def is_modern(exchange: Exchange, message: Message) -> bool:
    """Body first: an envelope is modern whatever the headers say; then the header alone decides."""
    meta = message.params.get("_meta")
    if meta is not None and _VERSION_KEY_BYTES in bytes(meta):
        return message.method != "initialize"
    version = exchange.headers.get(b"mcp-protocol-version")
    if version is None or version in _LEGACY_BYTES:
        return False
    return message.method != "initialize" and b"mcp-session-id" not in exchange.headers


def _check_header(exchange: Exchange, name: bytes, expected: str) -> None:
    value = exchange.headers.get(name)
    if value is not None and (value == expected.encode() or _decoded(value) == expected):
        return
    shown = name.decode()
    if value is None:
        raise HeaderMismatch(f"the header `{shown}` is missing")
    raise HeaderMismatch(f"the header `{shown}` and the body disagree")


def _decoded(value: bytes) -> str | None:
    """A header value as the specification encodes text that is not plain ASCII; None when malformed."""
    text = value.decode("latin-1").strip(" \t")
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return base64.b64decode(text[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _wants_tool_changes(message: Message) -> bool:
    try:
        wanted = msgspec.json.decode(message.params.get("notifications", b"null"), type=dict)
    except msgspec.ValidationError as exc:
        raise InvalidParams("`notifications` must say what to listen for") from exc
    return wanted.get("toolsListChanged") is True


def _event(message: Mapping[str, object]) -> bytes:
    return encode_event(msgspec.json.encode({"jsonrpc": "2.0", **message}))
