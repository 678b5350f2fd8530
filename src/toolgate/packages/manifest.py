"""The manifest of a package: its description, its tools, and the launch of its server.

Manifests are untrusted, like archives. `parse_manifest` returns only checked manifests: their tools are
definitions that a server may list, and their `run` is valid in a server's record. `ManifestBody` is the shape
of `manifest.json` in version 2 of the format; its field docstrings become the reference page.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError

from toolgate.catalog import checks
from toolgate.catalog.definitions import check_definition, estimate_tokens
from toolgate.errors import BodyTooLarge, InvalidRecord
from toolgate.model.json_text import decode_members
from toolgate.model.names import MAX_SERVER_ID, MAX_TOOL_NAME, ToolRef, is_tool_name
from toolgate.model.packages import SchemaVersion, Source
from toolgate.model.servers import PackageRef
from toolgate.model.tools import ToolDefinition
from toolgate.packages.foreign_manifests import DESCRIBING, JsonObject, upgrade_manifest
from toolgate.registry.records.body import (
    UNKNOWN_FIELD,
    FieldProblem,
    StrictBody,
    find_problems,
    invalid_record,
)
from toolgate.registry.records.fields import Label, LongText, ServerId, Tag, Title, Url, Version, field_error
from toolgate.registry.records.server_bodies import HttpBody, StdioBody

MANIFEST_NAME: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 4 * 1024 * 1024  # as large as a request body: half a full list of tools

_MAX_DEPTH: Final = checks.MAX_DEFINITION_DEPTH + 1  # a definition, in a list
_V2: Final = ("v2", "2", 2)
_OLD: Final = (None, "legacy", "v1", "1", 1)
_LAUNCHES: Final = {"stdio": "stdio", "streamable_http": "http", "http_sse_legacy": "http"}
_TOOL_PLACE: Final = re.compile(r"tools\[[0-9]+\]")
# The name of a union member, which pydantic puts into a path.
_RUN_CHOICE: Final = re.compile(r"run\.(?:stdio|streamable_http|http_sse_legacy)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checked manifest."""

    id: str
    version: str
    name: str = ""
    description: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    homepage: str | None = None
    license: str = ""
    schema_version: SchemaVersion = "v2"
    source: Source = "legacy"
    """How it describes its tools: `manifest`, in full; `summary`, by name; `legacy`, not at all."""
    tools: tuple[ToolDefinition, ...] = ()
    """The tools. Those of a summary have only a name and a description, and no digest."""
    run: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """`transport`, and `stdio` or `http`, as in a server's record. Empty: the manifest has no `run`."""
    extensions: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Members that begin with `x-`, and `$schema`: kept, not interpreted."""


def parse_manifest(content: bytes) -> Manifest:
    """Parse a manifest of any version. Raises InvalidRecord with all problems, and BodyTooLarge."""
    if len(content) > MAX_MANIFEST_BYTES:
        raise BodyTooLarge(f"the manifest is larger than {MAX_MANIFEST_BYTES:,} bytes")
    try:
        members = decode_members(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidRecord(f"the manifest is not a JSON object: {exc}") from None
    document = {name: _decode(raw) for name, raw in members.items()}
    version = document.get("manifestSchemaVersion")
    if isinstance(version, bool | float):
        version = ""  # `True` and 1.0 equal 1 in Python, but are not versions
    if version in _OLD:
        own = upgrade_manifest(document)
        raws = [msgspec.json.encode(tool) for tool in own.get("tools", ())]
        return replace(_build_manifest(own, raws), schema_version="legacy")
    if version not in _V2:
        hint = "set it to `v2`, or update the gateway"
        raise InvalidRecord("`manifestSchemaVersion`: not a version that this gateway supports", hint=hint)
    kept = {name: value for name, value in document.items() if name.startswith(("x-", "$schema"))}
    own = {name: value for name, value in document.items() if name not in kept}
    raws = []
    if isinstance(own.get("tools"), list):
        raws = [bytes(one) for one in msgspec.json.decode(members["tools"], type=list[msgspec.Raw])]
    return replace(_build_manifest(own, raws), extensions=MappingProxyType(kept))


def replace_tools(manifest: Manifest, tools: Iterable[ToolDefinition]) -> Manifest:
    """The manifest with full definitions of its tools, from a server's checked list."""
    return replace(manifest, tools=tuple(tools), source="manifest", schema_version="v2")


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as a file of version 2, formatted for people."""
    document: dict[str, Any] = {
        **manifest.extensions,
        "manifestSchemaVersion": "v2",
        **{name: getattr(manifest, name) for name in DESCRIBING},
    }
    if manifest.run:
        transport = manifest.run["transport"]
        document["run"] = {"transport": transport, **manifest.run[_LAUNCHES[transport]]}
    shown = {name: value for name, value in document.items() if value not in ("", [], (), None)}
    if manifest.source != "legacy":
        tools = [msgspec.Raw(tool.raw) for tool in manifest.tools]
        shown["tools" if manifest.source == "manifest" else "toolsSummary"] = tools
    return msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n"


def build_server_body(manifest: Manifest, ref: PackageRef) -> dict[str, Any]:
    """The body of a package's server, without `allowed_tools`. Raises InvalidRecord."""
    if not manifest.run:
        raise InvalidRecord(
            f"the manifest of package `{manifest.id}` has no `run`, so there is nothing to start",
            hint="add `run` with a `command` or a `url` and publish it again; or register the server "
            f"`{manifest.id}` first, so that the manifest describes it",
        )
    described = {"display_name": manifest.name, "category": manifest.category, "tags": list(manifest.tags)}
    return {
        "server_id": manifest.id,
        **manifest.run,
        **{name: value for name, value in described.items() if value},
        "package": {"version": ref.version, "sha256": ref.sha256},
    }


def build_manifest_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a manifest of version 2."""
    schema = ManifestBody.model_json_schema()
    description = "The schema by which an editor checks this file."
    schema["properties"]["$schema"] = {"type": "string", "description": description}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Toolgate package manifest, version 2",
        **{name: value for name, value in schema.items() if name != "title"},
        "patternProperties": {"^x-": {"description": "Kept, not interpreted."}},
    }


def _decode(raw: msgspec.Raw) -> Any:
    """Decode one member of a valid JSON document. Raises InvalidRecord beyond Toolgate's limits."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRecord(f"invalid manifest: {exc}") from None
    if checks.is_deeper_than(value, _MAX_DEPTH):
        raise InvalidRecord(f"the manifest is nested deeper than {_MAX_DEPTH} levels")
    return value


def _build_manifest(document: dict[str, Any], raws: list[bytes]) -> Manifest:
    """Build a manifest from `document`, with tools as written. Raises InvalidRecord."""
    body, problems = None, []
    try:
        body = ManifestBody.model_validate(document)
    except ValidationError as exc:
        problems = [_rephrase_problem(problem) for problem in find_problems(exc)]
    package_id = "" if body is None else body.id
    tools, wrong = _check_tools(package_id, raws, known=problems)
    if body is None or wrong:
        raise invalid_record([*problems, *wrong])
    source: Source = "manifest"
    if body.tools is None:
        for one in body.toolsSummary or ():
            ref, raw = ToolRef(body.id, one.name), msgspec.json.encode(one.model_dump(exclude_defaults=True))
            tokens = estimate_tokens(raw)
            description = one.description
            tools.append(ToolDefinition(ref=ref, raw=raw, digest="", tokens=tokens, description=description))
        source = "summary" if tools else "legacy"
    run = {}
    if body.run is not None:  # in the form of a server's record
        launch = body.run.model_dump(exclude_defaults=True)
        transport = launch.pop("transport")
        run = {"transport": transport, _LAUNCHES[transport]: launch}
    described = {**body.model_dump(include=set(DESCRIBING)), "tags": tuple(body.tags)}
    return Manifest(**described, source=source, tools=tuple(tools), run=MappingProxyType(run))


def _rephrase_problem(problem: FieldProblem) -> FieldProblem:
    """A problem with the names that the manifest's author wrote."""
    path = _RUN_CHOICE.sub("run.", problem["field"])
    words = problem["problem"]
    if words == UNKNOWN_FIELD and "." not in path:
        close = get_close_matches(path, ManifestBody.model_fields, n=1)
        words += f"; did you mean `{close[0]}`?" if close else "; names of extensions begin with `x-`"
    return FieldProblem(field=path, problem=words)


def _check_tools(
    package_id: str, raws: list[bytes], *, known: list[FieldProblem]
) -> tuple[list[ToolDefinition], list[FieldProblem]]:
    """Check each tool as if a server listed it. Tools with a known problem are not reported twice."""
    reported = {match[0] for problem in known if (match := _TOOL_PLACE.match(problem["field"]))}
    tools: list[ToolDefinition] = []
    problems: list[FieldProblem] = []
    names: dict[str, str] = {}
    for place, raw in ((f"tools[{index}]", raw) for index, raw in enumerate(raws[: checks.MAX_DEFINITIONS])):
        checked = check_definition(package_id, raw)
        if isinstance(checked, checks.QuarantinedDefinition):
            if place not in reported:
                words = f"{checked.reason} (`{checked.name}`)" if checked.name else checked.reason
                problems.append(FieldProblem(field=place, problem=words))
            continue
        first = names.setdefault(checked.ref.name.casefold(), place)
        if first != place:
            problems.append(FieldProblem(field=place, problem=f"has the same name as `{first}`"))
        tools.append(checked)
    return tools, problems


# Repeated in the published schema, which does not include validators.
_ID: Final = {"pattern": "^[a-z0-9]+([-_][a-z0-9]+)*$", "maxLength": MAX_SERVER_ID}
_VERSION: Final = {"pattern": "^[0-9A-Za-z]([.+-]?[0-9A-Za-z])*$"}
_TOOL_NAME: Final = {"pattern": rf"^[A-Za-z0-9_.-]{{1,{MAX_TOOL_NAME}}}$"}


def _check_tool_name(text: str) -> str:
    if not is_tool_name(text):
        raise field_error(f"a tool's name has 1 to {MAX_TOOL_NAME} characters of `A-Z a-z 0-9 _ . -`")
    return text


FormatVersion = Annotated[Literal["v2"], BeforeValidator(lambda given: "v2" if given in ("2", 2) else given)]
ToolNameText = Annotated[str, Field(json_schema_extra=_TOOL_NAME), AfterValidator(_check_tool_name)]


class StdioRunBody(StdioBody):
    """A server that runs as a child process, in the directory of the package's files.

    `${PACKAGE_DIR}` in `args`, `env` and `cwd` is that directory. A `command` with a `/` inside is a program
    of the package.
    """

    transport: Literal["stdio"]
    """The transport of its server."""


class HttpRunBody(HttpBody):
    """A server at a URL; no file of the package runs."""

    transport: Literal["streamable_http", "http_sse_legacy"]
    """The transport of its server."""


RunBody = Annotated[StdioRunBody | HttpRunBody, Field(discriminator="transport")]


class ToolBody(StrictBody):
    """A tool's definition, as its server lists it. Other members of MCP (`icons`, `_meta`) are allowed,
    too."""

    model_config = ConfigDict(extra="allow")

    name: ToolNameText
    """Name of the tool, unique in the package, also when ignoring case."""

    title: str = ""
    """Name for people."""

    description: str = Field(default="", max_length=checks.MAX_DESCRIPTION_BYTES)
    """What the tool does, for models."""

    inputSchema: JsonObject  # noqa: N815, MCP's spelling
    """JSON Schema of its arguments, which are an object: at most 256 KiB and 32 levels, with internal
    references only."""

    outputSchema: JsonObject | None = None  # noqa: N815
    """JSON Schema of its structured result, with the same limits."""

    annotations: JsonObject | None = None
    """Hints about the tool, such as `readOnlyHint`."""


class SummaryBody(StrictBody):
    """A tool of which only name and description are known."""

    name: ToolNameText
    """Name of the tool, as its server lists it."""

    description: str = Field(default="", max_length=checks.MAX_DESCRIPTION_BYTES)
    """What the tool does."""


class ManifestBody(StrictBody):
    """`manifest.json` at the root of a package."""

    manifestSchemaVersion: FormatVersion  # noqa: N815, the format's spelling
    """Version of this format. The number 2 is valid, too."""

    id: Annotated[ServerId, Field(json_schema_extra=_ID)]
    """Id of the package and of its server, in URLs and policies: lower case, up to 40 characters."""

    name: Title = ""
    """Name for people, in any language."""

    version: Annotated[Version, Field(json_schema_extra=_VERSION)]
    """Version of the package: letters and digits with single `.`, `+` or `-` between, such as `1.2.0`. A
    published version never changes."""

    description: LongText = ""
    """What the package is for."""

    category: Label = ""
    """Category in the catalog, in any language."""

    tags: list[Tag] = Field(default=[], max_length=64)
    """Tags for searches, and for profiles and tasks that select servers by tag."""

    homepage: Url | None = None
    """URL of the project's page."""

    license: Title = ""
    """License of the package, such as `Apache-2.0`."""

    tools: Annotated[list[ToolBody], Field(max_length=checks.MAX_DEFINITIONS)] | None = None
    """Full definitions of all tools. `toolgate packages publish` fills them in from the server's list."""

    toolsSummary: Annotated[list[SummaryBody], Field(max_length=checks.MAX_DEFINITIONS)] | None = None  # noqa: N815
    """Names and descriptions of the tools, if `tools` is not set. With `tools`, it is ignored."""

    run: RunBody | None = None
    """Command or URL of the server. If left out, the package describes a server that is registered
    already."""
