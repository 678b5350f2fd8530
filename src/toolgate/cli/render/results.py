"""Results of tool calls, and what a tool takes: texts as they are, data as JSON, files as one line each."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject

_FILES: Final = ("image", "audio")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultText:
    """Text of the tool, or its structured content as JSON."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """An image, a recording or another file. `content` is None if the tool sent no valid Base64."""

    kind: str
    media_type: str
    content: bytes | None

    def describe(self) -> str:
        size = "invalid Base64" if self.content is None else f"{len(self.content):,} bytes"
        return f"{self.kind} {self.media_type}, {size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLink:
    """A resource that can be read at the server."""

    uri: str
    name: str


ResultPart = ResultText | ResultFile | ResultLink


def list_parts(result: JsonObject) -> list[ResultPart]:
    """What a `CallToolResult` holds. What text and structured content both say is there once."""
    blocks = [one for one in result.get("content") or () if isinstance(one, Mapping)]
    texts = [str(one.get("text", "")) for one in blocks if one.get("type") == "text"]
    data = result.get("structuredContent")
    is_structured = isinstance(data, Mapping) and not _is_plain(data, texts)
    parts: list[ResultPart] = []
    if not (is_structured and _is_repeated(data, texts)):
        parts += [ResultText(text=text) for text in texts]
    if is_structured:
        parts.append(ResultText(text=ui.encode_json(data, indent=2)))
    return [*parts, *_list_others(blocks)]


def _is_plain(data: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Whether the data is one text or number in a wrapper, which the text says by itself."""
    if data.keys() != {"result"} or len(texts) != 1 or isinstance(data["result"], list | dict):
        return False
    return data["result"] in (texts[0], _parse(texts[0]))


def _is_repeated(data: Any, texts: Sequence[str]) -> bool:
    """Whether the texts are the data as JSON: servers send both, for clients that read only one."""
    values = [_parse(text) for text in texts]
    inner = data["result"] if data.keys() == {"result"} else data
    return values in ([data], [inner], inner)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _list_others(blocks: Sequence[JsonObject]) -> Iterator[ResultPart]:
    for block in blocks:
        kind, resource = block.get("type"), block.get("resource")
        if kind in _FILES:
            yield _parse_file(str(kind), block.get("mimeType"), block.get("data"))
        elif kind == "resource" and isinstance(resource, Mapping) and "blob" in resource:
            yield _parse_file("file", resource.get("mimeType"), resource["blob"])
        elif kind == "resource" and isinstance(resource, Mapping):
            yield ResultText(text=str(resource.get("text", "")))
        elif kind == "resource_link":
            yield ResultLink(uri=str(block.get("uri", "")), name=str(block.get("name", "")))


def _parse_file(kind: str, media_type: Any, data: Any) -> ResultFile:
    try:
        content = base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except (binascii.Error, ValueError):
        content = None
    return ResultFile(kind=kind, media_type=str(media_type or "of no type"), content=content)


def render_tool(definition: JsonObject, arguments: Sequence[tuple[str, str, str, str]]) -> RenderableType:
    """A tool and its arguments: name, type, whether it is needed or its default, and description."""
    hints = [name for name, holds in (definition.get("annotations") or {}).items() if holds is True]
    table = ui.grid("ARGUMENT", "TYPE*", "DEFAULT", "DESCRIPTION*")
    for name, kind, default, description in arguments:
        table.add_row(ui.bold(name), kind, default, description)
    return ui.stack_parts(
        Group(ui.bold(definition["name"]), Text(ui.escape_block(str(definition.get("description") or "")))),
        ui.sentence(Text("hints: ", style=ui.DIM), ui.join_names(hints)) if hints else None,
        table if arguments else Text("it takes no arguments"),
    )
