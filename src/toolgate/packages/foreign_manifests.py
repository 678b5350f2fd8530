"""Converts other manifests to version 2: older ones, and those of MCP bundles (`.mcpb`, formerly `.dxt`).

These members of old manifests are read:

- `id`, or a `name` that is a valid id, and the texts of version 2
- `tools` as full definitions
- `tools` or `toolsSummary` as a list of names or of objects with `name` and `description`, as an object of
  names to descriptions, or as one text with commas
- a `command` with its `args` and `env`, or a `url`, at the top or under one of `run`, `server`, `mcp`,
  `mcp_config` and `runtime`

All other members are ignored.

A bundle is made for a desktop, whose user fills in a form on installation. Each form field becomes a
reference to a variable of the node, and a secret never has a default. Signatures are ignored: keys decide who
may publish. Never checks the manifest that it returns.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from toolgate.catalog.definitions import check_definition
from toolgate.errors import InvalidRecord
from toolgate.model.json_text import decode_members
from toolgate.model.names import is_tool_name, slugify_server_id
from toolgate.model.tools import ToolDefinition
from toolgate.registry.interchange.imports import parse_imports

DESCRIBING: Final = ("id", "name", "version", "description", "category", "tags", "homepage", "license")
"""The members with the same meaning in manifests of any version."""
_PLACES: Final = ("run", "server", "mcp", "mcp_config", "runtime")
_LISTS: Final = ("tools", "toolsSummary", "tools_summary")
_SEPARATOR: Final = re.compile(r"[,;\n\uff0c\u3001\uff1b]")  # and their Chinese forms

JsonObject = dict[str, Any]


def upgrade_manifest(document: JsonObject) -> JsonObject:
    """The members of version 2 for an old manifest. They are unchecked."""
    members: JsonObject = {name: document[name] for name in DESCRIBING if document.get(name) is not None}
    members["manifestSchemaVersion"] = "v2"
    members.setdefault("version", "0.0.0")
    if "id" not in members and "name" in members:
        members["id"] = members["name"]
    tools = next((found for name in _LISTS if (found := _tools(document.get(name)))), [])
    is_complete = all(
        isinstance(tool.get("inputSchema"), dict)
        and isinstance(check_definition("", msgspec.json.encode(tool)), ToolDefinition)
        for tool in tools
    )
    if tools and is_complete:
        members["tools"] = tools
    elif tools:
        members["toolsSummary"] = [
            {name: tool[name] for name in ("name", "description") if isinstance(tool.get(name), str)}
            for tool in tools
        ]
    run = _run(document)
    return members if run is None else {**members, "run": run}


def _tools(value: object) -> list[JsonObject]:
    """The tools from any of the old shapes, each once. Entries without a valid name are dropped."""
    found: dict[str, JsonObject] = {}
    for tool in _each(value):
        name = tool.get("name")
        if isinstance(name, str) and is_tool_name(name):
            found.setdefault(name.casefold(), tool)
    return list(found.values())


def _each(value: object) -> Iterator[JsonObject]:
    match value:
        case str():
            yield from ({"name": name.strip()} for name in _SEPARATOR.split(value))
        case list():
            yield from (one if isinstance(one, dict) else {"name": one} for one in value)
        case dict():
            for name, one in value.items():
                yield {"name": name, **(one if isinstance(one, dict) else {"description": one})}


def _run(document: JsonObject) -> JsonObject | None:
    """The launch, flat as in version 2, with other programs' variables as Toolgate's references."""
    for place in (document, *(document.get(name) for name in _PLACES)):
        if isinstance(place, dict) and (place.get("command") or place.get("url")):
            (body,) = parse_imports({"mcpServers": {"server": _split(place)}}, "mcpServers").bodies
            return {"transport": body["transport"], **body.get("stdio", {}), **body.get("http", {})}
    return None


def _split(place: JsonObject) -> JsonObject:
    """Separate the arguments from a command that contains them, as a list or as one text."""
    command, args = place.get("command"), place.get("args") or []
    if isinstance(command, str) and not args and " " in command:
        try:
            command = shlex.split(command)
        except ValueError:
            command = [command]
    if command and isinstance(command, list) and isinstance(args, list):
        return {**place, "command": command[0], "args": [*command[1:], *args]}
    return place


_VERSIONS: Final = ("manifest_version", "dxt_version")
_KNOWN: Final = ("0.1", "0.2", "0.3", "0.4")
_PLATFORM: Final = "linux"
_VARIABLE: Final = re.compile(r"\$\{([^{}]+)\}")
_DIRECTORY: Final = "${__dirname}"
_NOT_IN_VARIABLE: Final = re.compile(r"[^A-Z0-9]+")
_MEANINGS: Final = {
    "__dirname": "${PACKAGE_DIR}",
    "/": "/",
    "pathSeparator": "/",
    "HOME": "${ENV:HOME}",
    "DESKTOP": "${ENV:HOME}/Desktop",
    "DOCUMENTS": "${ENV:HOME}/Documents",
    "DOWNLOADS": "${ENV:HOME}/Downloads",
}
_USUAL: Final[Mapping[str, Sequence[str]]] = {
    "uv": ("uv", "run", "--directory", _DIRECTORY),
    "node": ("node",),
    "python": ("python3",),
    "binary": (),
}
"""The commands of bundles that declare only a language and an entry point."""

T = TypeVar("T", str, list[Any], JsonObject)


def is_bundle_manifest(manifest: bytes) -> bool:
    """Whether a `manifest.json` belongs to a bundle. False if it is unreadable."""
    try:
        members = decode_members(manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return "manifestSchemaVersion" not in members and not members.keys().isdisjoint(_VERSIONS)


def convert_bundle(manifest: bytes) -> bytes:
    """Convert a bundle's manifest to version 2, without checking it. Raises InvalidRecord."""
    try:
        document: dict[str, Any] = msgspec.json.decode(manifest, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRecord(f"the bundle's manifest is not a JSON object: {exc}") from None
    version = next(document[name] for name in _VERSIONS if name in document)
    if version not in _KNOWN:
        raise InvalidRecord("the bundle's manifest has an unsupported version")
    platforms = _read(document, "compatibility", dict).get("platforms")
    if isinstance(platforms, list) and _PLATFORM not in platforms:
        raise InvalidRecord("the bundle does not support Linux, by its `compatibility`")
    package_id = slugify_server_id(_read(document, "name", str))
    ours = {
        "manifestSchemaVersion": "v2",
        "id": package_id,
        "name": _label(document.get("display_name") or document.get("name"), 200),
        "version": document.get("version"),
        "description": _read(document, "description", str)[:4_096],
        "tags": [label for word in _read(document, "keywords", list) if (label := _label(word, 64))][:64],
        "license": _label(document.get("license"), 200),
        "toolsSummary": [
            {"name": tool["name"], "description": _read(tool, "description", str)}
            for tool in _read(document, "tools", list)
            if isinstance(tool, dict) and is_tool_name(_read(tool, "name", str))
        ],
        "run": {"transport": "stdio", **_convert_launch(package_id, document)},
    }
    shown = {name: value for name, value in ours.items() if value not in ("", [])}
    return msgspec.json.format(msgspec.json.encode(shown), indent=2)


def _convert_launch(package_id: str, document: JsonObject) -> JsonObject:
    """The launch of a bundle, with references to variables of the node for the fields of its form."""
    prefix, options = _variable(package_id), _read(document, "user_config", dict)

    def resolve(match: re.Match[str]) -> str:
        kind, _, key = match[1].partition(".")
        if kind != "user_config" or not key:
            return _MEANINGS.get(match[1], match[0])
        option = _read(options, key, dict)
        # The variable's name contains the bundle's, so that no bundle gets another one's value.
        name = _variable(key)
        name = name if name.startswith(f"{prefix}_") else f"{prefix}_{name}"
        default = None if option.get("required") is True else ""
        if "default" in option and option.get("sensitive") is not True:
            default = _default(option["default"])
        return f"${{ENV:{name}}}" if default is None else f"${{ENV:{name}:-{default}}}"

    def fill(text: object) -> str:
        return _VARIABLE.sub(resolve, str(text))

    server = _read(document, "server", dict)
    config, kind = _read(server, "mcp_config", dict), server.get("type")
    if not config and isinstance(kind, str) and kind in _USUAL:
        words = (*_USUAL[kind], f"{_DIRECTORY}/{server.get('entry_point')}")
        config = {"command": words[0], "args": [*words[1:]]}
    override = _read(_read(config, "platform_overrides", dict), _PLATFORM, dict)
    command = override.get("command") or config.get("command")
    if not isinstance(command, str):
        raise InvalidRecord("the bundle's manifest has no command for its server")
    # A program of the bundle has a path from its directory, in which it starts.
    inside = command.removeprefix(f"{_DIRECTORY}/")
    is_inside = inside != command or ("/" in command and not command.startswith(("/", "./", "$")))
    env = {**_read(config, "env", dict), **_read(override, "env", dict)}
    return {
        "command": f"./{inside}" if is_inside else fill(command),
        "args": [fill(one) for one in _read(override, "args", list) or _read(config, "args", list)],
        "env": {name: fill(value) for name, value in env.items()},
    }


def _default(value: object) -> str | None:
    """A default that a reference can have: one plain value."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str() if "}" not in value:
            return value
        case [one]:
            return _default(one)
    return None


def _variable(name: str) -> str:
    variable = _NOT_IN_VARIABLE.sub("_", name.upper()).strip("_") or "VALUE"
    return f"_{variable}" if variable[0].isdigit() else variable


def _label(value: object, length: int) -> str:
    """A text as a valid label, without invisible characters."""
    words = "".join(one for one in value if one.isprintable()).split() if isinstance(value, str) else []
    return " ".join(words)[:length].strip()


def _read(owner: JsonObject, member: str, kind: type[T]) -> T:
    """The member if it has that type, else an empty value."""
    found = owner.get(member)
    return found if isinstance(found, kind) else kind()
