"""The three tools of find mode, which replace a list of all tools: their definitions and arguments.

They are always the same for every caller; the tools that a caller finds with them are its own scope.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from toolgate.catalog.definitions import check_definition
from toolgate.errors import InvalidArguments
from toolgate.model.json_text import KnownNames, Members, decode_members, describe_ambiguity
from toolgate.model.tools import ToolDefinition

SEARCH_TOOLS: Final = "search_tools"
DESCRIBE_TOOL: Final = "describe_tool"
CALL_TOOL: Final = "call_tool"

MAX_QUERY_BYTES: Final = 1_024  # as the characters of `q` in the REST search; a purpose is a sentence
MAX_RESULTS: Final = 50  # five times the default; a model that needs more has to narrow its query
DEFAULT_RESULTS: Final = 10  # a choice: enough to pick from, and cheap in tokens
MAX_DESCRIPTION_CHARS: Final = 300  # of a tool in a result; `describe_tool` has the rest
MAX_NAME_CHARS: Final = 256  # above the 128 of a tool's name with the 40 of its server's id

FIND_INSTRUCTIONS: Final = (
    "The tools of this endpoint are not listed: `search_tools` finds them by what they do, "
    "`describe_tool` shows the arguments of one, and `call_tool` calls it by the name that was found."
)

_NAME: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_NAME_CHARS,
    "description": "The tool's name, exactly as `search_tools` returned it.",
}
_RESULT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "title": {"type": "string"},
        "description": {"type": "string"},
        "server": {"type": "string"},
        "readOnly": {"type": "boolean"},
        "tokens": {"type": "integer", "description": "Estimated tokens of its full definition."},
    },
    "required": ["name", "description", "server", "tokens"],
}
_RAW: Final[tuple[Mapping[str, Any], ...]] = (
    {
        "name": SEARCH_TOOLS,
        "title": "Search tools",
        "description": (
            "Find tools by what they do. Start here: the tools of this endpoint are not listed one by one. "
            "Describe in a few words, in any language, what to do, for example `create a spreadsheet` or "
            "`send a message to a channel`. Searching for one step at a time finds more than a whole task. "
            "Names have the form `server.tool` or `tool`: use them unchanged. Then read the arguments of one "
            "with `describe_tool` and call it with `call_tool`. An empty query lists tools by name."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in a few words."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_RESULTS,
                    "default": DEFAULT_RESULTS,
                    "description": "The maximum number of tools to show.",
                },
                "server": {"type": "string", "description": "Only tools of this server."},
                "category": {"type": "string", "description": "Only tools of servers in this category."},
                "tag": {"type": "string", "description": "Only tools of servers with this tag."},
                "read_only": {
                    "type": "boolean",
                    "description": "true: only tools that are marked as read-only; false: only others.",
                },
            },
            "required": ["query"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "tools": {"type": "array", "items": _RESULT_SCHEMA, "description": "The best match first."},
                "total": {
                    "type": "integer",
                    "description": "The number of tools here that pass the filters, found or not.",
                },
                "note": {"type": "string"},
            },
            "required": ["tools", "total"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": DESCRIBE_TOOL,
        "title": "Describe a tool",
        "description": (
            "The full definition of one tool that `search_tools` found: its description, the JSON Schema of "
            "its arguments and its effects. Read it before you call the tool the first time."
        ),
        "inputSchema": {"type": "object", "properties": {"name": _NAME}, "required": ["name"]},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": CALL_TOOL,
        "title": "Call a tool",
        "description": (
            "Call one tool that `search_tools` found. `arguments` must match the `inputSchema` that "
            "`describe_tool` shows for it. The result is the result of that tool."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": _NAME,
                "arguments": {
                    "type": "object",
                    "description": "The arguments of that tool, as an object.",
                    "additionalProperties": True,
                },
            },
            "required": ["name"],
        },
    },
)


def _define(members: Mapping[str, Any]) -> ToolDefinition:
    definition = check_definition("", msgspec.json.encode(members))
    assert isinstance(definition, ToolDefinition)  # as valid as those of any server
    return definition


FIND_TOOLS: Final[Mapping[str, ToolDefinition]] = {one.ref.name: one for one in map(_define, _RAW)}
"""By name, in the order of the list."""

_Word = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]


class SearchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_RESULTS)] = DEFAULT_RESULTS
    server: _Word | None = None
    category: _Word | None = None
    tag: _Word | None = None
    read_only: bool | None = None

    @property
    def has_filter(self) -> bool:
        return any(one is not None for one in (self.server, self.category, self.tag, self.read_only))


class _TargetArguments(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_TARGET_NAMES: Final = KnownNames("name", "arguments")
_decode_search = msgspec.json.Decoder(SearchArguments).decode
_decode_target = msgspec.json.Decoder(_TargetArguments).decode
_NO_ARGUMENTS: Final = msgspec.Raw(b"{}")


def parse_search_arguments(params: Members) -> SearchArguments:
    try:
        search = _decode_search(params.get("arguments", _NO_ARGUMENTS))
    except msgspec.DecodeError as exc:
        raise InvalidArguments(f"`{SEARCH_TOOLS}`: {exc}") from exc
    if len(search.query.encode()) > MAX_QUERY_BYTES:
        message = f"`{SEARCH_TOOLS}`: the query is longer than {MAX_QUERY_BYTES} bytes"
        raise InvalidArguments(message, hint="describe in a few words what one tool should do")
    return search


def parse_target(tool: str, params: Members) -> tuple[str, Members]:
    """The target of a call of `describe_tool` or `call_tool`, and the params of a call of the target. Other
    members of the params are kept. Raises InvalidArguments."""
    raw = params.get("arguments", _NO_ARGUMENTS)
    try:
        target = _decode_target(raw)
    except msgspec.DecodeError as exc:
        hint = "`search_tools` finds names, `describe_tool` shows arguments"
        raise InvalidArguments(f"`{tool}`: {exc}", hint=hint) from exc
    impostor = _TARGET_NAMES.find_impostor(decode_members(raw))
    if impostor is not None:
        raise InvalidArguments(f"`{tool}`: {describe_ambiguity(impostor, '`arguments`')}")
    own = {name: raw for name, raw in params.items() if name != "arguments"}
    own["name"] = msgspec.Raw(msgspec.json.encode(target.name))
    if target.arguments is not msgspec.UNSET:
        own["arguments"] = target.arguments
    return target.name, own
