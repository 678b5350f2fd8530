"""The `Mcp-*` headers by which a modern HTTP server checks what intermediaries route on against the body.

Headers are made from the bytes that are sent, never from anything else the caller said.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from toolgate.model.raw import decode_members
from toolgate.model.servers import EMPTY
from toolgate.model.tools import ToolDefinition
from toolgate.upstream.connection.contract import Params

_PLAIN = re.compile(r"[\x20-\x7e]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_NOT_MIRRORED: Final = (b"{", b"[", b"n")
"""How objects, arrays and null begin."""
_NAMED_BY: Final = {"prompts/get": "name", "resources/read": "uri"}
"""The member of `params` that `Mcp-Name` repeats, where no tool is called."""

_decode_text = msgspec.json.Decoder(str).decode


class CallHeaders:
    """The headers of one server's calls. Most need only the name, and get the same object every time."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Mapping[str, str]] = {}

    def of(self, method: str, tool: ToolDefinition | None, params: Params) -> Mapping[str, str]:
        """What a request with `params` carries; `tool` is the one it calls, if it calls one."""
        if tool is None:
            return _named(method, params)
        fixed = self._by_name.get(tool.ref.name)
        if fixed is None:
            name = tool.native_name or tool.ref.name
            fixed = MappingProxyType({"Mcp-Name": encode_header_value(name)})
            self._by_name[tool.ref.name] = fixed
        arguments = params.get("arguments")
        if not tool.param_headers or arguments is None:
            return fixed
        return {**fixed, **_mirrored(tool, bytes(arguments))}

    def clear(self) -> None:
        """Forget names, so that a server that keeps renaming its tools is not remembered in full."""
        self._by_name.clear()


def encode_header_value(text: str) -> str:
    """`text` as it is where an HTTP field keeps it so, else `=?base64?…?=` (MCP 2026-07-28, transports)."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


def _named(method: str, params: Params) -> Mapping[str, str]:
    try:
        return {"Mcp-Name": encode_header_value(_decode_text(params[_NAMED_BY[method]]))}
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return EMPTY


def mirrored_values(tool: ToolDefinition, arguments: bytes) -> Iterator[tuple[str, str | None]]:
    """Each header that repeats an argument of `tool`, and its value; None where there is none to repeat."""
    for path, token in tool.param_headers:
        yield f"Mcp-Param-{token}", _text_at(arguments, path)


def _mirrored(tool: ToolDefinition, arguments: bytes) -> dict[str, str]:
    values = mirrored_values(tool, arguments)
    return {name: encode_header_value(text) for name, text in values if text is not None}


def _text_at(raw: bytes, path: tuple[str, ...]) -> str | None:
    """The string, number or boolean at `path`, as text; None where there is none to mirror."""
    try:
        for key in path:
            raw = bytes(decode_members(raw)[key])
        if raw.startswith(b'"'):
            return _decode_text(raw)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if raw.startswith(_NOT_MIRRORED) else raw.decode("ascii")
