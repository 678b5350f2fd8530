"""What can be found of a tool, as text."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from toolgate.model.packages import ALL_TOOLS, CatalogRow

MAX_PARAMETER_CHARS: Final = 8_192
_MAX_TEXTS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tool that can be found."""

    key: str
    """Its full name, `server_id.tool`."""
    name: str
    server: str
    server_name: str
    """For people."""
    title: str = ""
    description: str = ""
    parameters: str = ""
    """Names and descriptions of its arguments: `parameter_text`."""
    category: str = ""
    tags: tuple[str, ...] = ()


def entry_of(row: CatalogRow) -> Entry:
    """A row of the catalog as it is found. A package of which no tool is known is found by what it says."""
    is_known = row.tool_name != ALL_TOOLS
    return Entry(
        key=row.full_name,
        name=row.tool_name if is_known else "",
        server=row.package_id,
        server_name=row.package_name,
        title=row.title,
        description=row.description or ("" if is_known else row.package_description),
        parameters=parameter_text(_decoded(row.input_schema)),
        category=row.category,
        tags=row.tags,
    )


def parameter_text(schema: Mapping[str, Any]) -> str:
    """Names and descriptions of the arguments that `schema` has, those of nested ones behind."""
    texts: list[str] = []
    pending: deque[Mapping[str, Any]] = deque([schema])
    while pending and len(texts) < _MAX_TEXTS:
        node = pending.popleft()
        properties = node.get("properties")
        for name, argument in properties.items() if isinstance(properties, Mapping) else ():
            texts.append(name)
            if isinstance(argument, Mapping):
                description = argument.get("description")
                texts += [description] if isinstance(description, str) else []
                pending.append(argument)
        items = node.get("items")
        pending += [items] if isinstance(items, Mapping) else []
    return " ".join(texts)[:MAX_PARAMETER_CHARS]


def _decoded(schema: bytes) -> Mapping[str, Any]:
    try:
        decoded = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, Mapping) else {}
