"""The manifest of a package: what it is, which tools it has, and how its server is run.

It comes from strangers, like its archive. What `parse_manifest` returns is checked in all: its tools are
definitions that a server may list, and its `run` is what a server's record may say. `ManifestBody` is the
shape of `manifest.json`, the format's version 2; its field docstrings become the reference.
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
from toolgate.packages.foreign_manifests import DESCRIBING, upgrade_manifest
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
# The name of a choice that pydantic puts into a path.
_RUN_CHOICE: Final = re.compile(r"run\.(?:stdio|streamable_http|http_sse_legacy)\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest that was checked."""

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
    """How it describes its tools: `manifest` in full, `summary` by name, `legacy` not at all."""
    tools: tuple[ToolDefinition, ...] = ()
    """Those of a summary have a name and a description alone, and no digest."""
    run: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """`transport`, and `stdio` or `http`, as a server's record has them. Empty: it does not say."""
    extensions: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Members that begin with `x-`, and `$schema`: carried, not interpreted."""


def parse_manifest(content: bytes) -> Manifest:
    """`content` as a manifest of any version, or InvalidRecord with all that is wrong with it."""
    if len(content) > MAX_MANIFEST_BYTES:
        raise BodyTooLarge(f"the manifest is larger than {MAX_MANIFEST_BYTES:,} bytes")
    try:
        members = decode_members(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidRecord(f"the manifest is not a JSON object: {exc}") from None
    document = {name: _decode(raw) for name, raw in members.items()}
    version = document.get("manifestSchemaVersion")
    if isinstance(version, bool | float):
        version = ""  # `True` and 1.0 equal 1 in Python, and are no versions
    if version in _OLD:
        own = upgrade_manifest(document)
        raws = [msgspec.json.encode(tool) for tool in own.get("tools", ())]
        return replace(_build_manifest(own, raws), schema_version="legacy")
    if version not in _V2:
        hint = "write `v2`, or update the gateway"
        raise InvalidRecord("`manifestSchemaVersion`: not a version that this gateway knows", hint=hint)
    kept = {name: value for name, value in document.items() if name.startswith(("x-", "$schema"))}
    own = {name: value for name, value in document.items() if name not in kept}
    raws = []
    if isinstance(own.get("tools"), list):
        raws = [bytes(one) for one in msgspec.json.decode(members["tools"], type=list[msgspec.Raw])]
    return replace(_build_manifest(own, raws), extensions=MappingProxyType(kept))


def replace_tools(manifest: Manifest, tools: Iterable[ToolDefinition]) -> Manifest:
    """The manifest with the full definitions of its tools, as a server listed them and they were checked."""
    return replace(manifest, tools=tuple(tools), source="manifest", schema_version="v2")


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as a file of version 2 that people can read."""
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
    """The body of the server that runs a package, without `allowed_tools`. Or InvalidRecord."""
    if not manifest.run:
        raise InvalidRecord(
            f"the manifest of `{manifest.id}` does not say how to run it",
            hint=f"register the server `{manifest.id}` first, so that the manifest describes it; "
            "or add `run` with a `command` or a `url`, and publish it again",
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
    description = "The schema that an editor checks it by."
    schema["properties"]["$schema"] = {"type": "string", "description": description}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Toolgate package manifest, version 2",
        **{name: value for name, value in schema.items() if name != "title"},
        "patternProperties": {"^x-": {"description": "Carried, not interpreted."}},
    }


def _decode(raw: msgspec.Raw) -> Any:
    """One member. All of it is valid JSON; what is left to refuse is what JSON allows and we do not."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidRecord(f"the manifest cannot be read: {exc}") from None
    if checks.is_deeper_than(value, _MAX_DEPTH):
        raise InvalidRecord(f"the manifest is nested deeper than {_MAX_DEPTH} levels")
    return value


def _build_manifest(document: dict[str, Any], raws: list[bytes]) -> Manifest:
    """The manifest that `document` is, its tools as they were written; or InvalidRecord."""
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
    if body.run is not None:  # as a server's record has it
        launch = body.run.model_dump(exclude_defaults=True)
        transport = launch.pop("transport")
        run = {"transport": transport, _LAUNCHES[transport]: launch}
    described = {**body.model_dump(include=set(DESCRIBING)), "tags": tuple(body.tags)}
    return Manifest(**described, source=source, tools=tuple(tools), run=MappingProxyType(run))


def _rephrase_problem(problem: FieldProblem) -> FieldProblem:
    """A problem in the terms of the manifest's author."""
    path = _RUN_CHOICE.sub("run.", problem["field"])
    words = problem["problem"]
    if words == UNKNOWN_FIELD and "." not in path:
        close = get_close_matches(path, ManifestBody.model_fields, n=1)
        words += f"; did you mean `{close[0]}`?" if close else "; begin its name with `x-` to keep it"
    return FieldProblem(field=path, problem=words)


def _check_tools(
    package_id: str, raws: list[bytes], *, known: list[FieldProblem]
) -> tuple[list[ToolDefinition], list[FieldProblem]]:
    """Check each tool like one that a server lists. Tools with a known problem are not reported twice."""
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
            problems.append(FieldProblem(field=place, problem=f"has the name of `{first}`"))
        tools.append(checked)
    return tools, problems


JsonObject = dict[str, Any]

# Told in the published schema too, which knows nothing of validators.
_ID: Final = {"pattern": "^[a-z0-9]+([-_][a-z0-9]+)*$", "maxLength": MAX_SERVER_ID}
_VERSION: Final = {"pattern": "^[0-9A-Za-z]([.+-]?[0-9A-Za-z])*$"}
_TOOL_NAME: Final = {"pattern": rf"^[A-Za-z0-9_.-]{{1,{MAX_TOOL_NAME}}}$"}


def _check_tool_name(text: str) -> str:
    if not is_tool_name(text):
        raise field_error(f"a tool's name is 1 to {MAX_TOOL_NAME} of `A-Z a-z 0-9 _ . -`")
    return text


FormatVersion = Annotated[Literal["v2"], BeforeValidator(lambda given: "v2" if given in ("2", 2) else given)]
ToolNameText = Annotated[str, Field(json_schema_extra=_TOOL_NAME), AfterValidator(_check_tool_name)]


class StdioRunBody(StdioBody):
    """A server that is started as a child process, in the directory of the package's files.

    `${PACKAGE_DIR}` in `args`, `env` and `cwd` means that directory. A `command` with a `/` inside is a
    program of the package.
    """

    transport: Literal["stdio"]
    """How to talk to it."""


class HttpRunBody(HttpBody):
    """A server that listens at a URL; nothing of the package is started."""

    transport: Literal["streamable_http", "http_sse_legacy"]
    """How to talk to it."""


RunBody = Annotated[StdioRunBody | HttpRunBody, Field(discriminator="transport")]


class ToolBody(StrictBody):
    """A tool's definition, as its server lists it. What else MCP has (`icons`, `_meta`) may be there, too."""

    model_config = ConfigDict(extra="allow")

    name: ToolNameText
    """Unique in the package, also without regard to case."""

    title: str = ""
    """For people."""

    description: str = Field(default="", max_length=checks.MAX_DESCRIPTION_BYTES)
    """What it does, for models."""

    inputSchema: JsonObject  # noqa: N815, MCP's spelling
    """JSON Schema of its arguments, an object. At most 256 KiB and 32 levels deep; references stay within."""

    outputSchema: JsonObject | None = None  # noqa: N815
    """JSON Schema of its structured result, within the same bounds."""

    annotations: JsonObject | None = None
    """Hints like `readOnlyHint`."""


class SummaryBody(StrictBody):
    """A tool of which only this much is known."""

    name: ToolNameText
    """As its server lists it."""

    description: str = Field(default="", max_length=checks.MAX_DESCRIPTION_BYTES)
    """What it does."""


class ManifestBody(StrictBody):
    """`manifest.json` at the root of a package."""

    manifestSchemaVersion: FormatVersion  # noqa: N815, the format's spelling
    """The version of this format. The number 2 is understood, too."""

    id: Annotated[ServerId, Field(json_schema_extra=_ID)]
    """Its name in every URL and policy, and that of its server: lower case, up to 40 characters."""

    name: Title = ""
    """For people, in any language."""

    version: Annotated[Version, Field(json_schema_extra=_VERSION)]
    """Letters and digits with single `.`, `+` or `-` between, like `1.2.0`. What was published as one version
    never changes."""

    description: LongText = ""
    """What it is for."""

    category: Label = ""
    """One heading to list it under, in any language."""

    tags: list[Tag] = Field(default=[], max_length=64)
    """Words to find it by, and by which profiles and tasks select it."""

    homepage: Url | None = None
    """Where to read more."""

    license: Title = ""
    """Under which it may be used, like `Apache-2.0`."""

    tools: Annotated[list[ToolBody], Field(max_length=checks.MAX_DEFINITIONS)] | None = None
    """The full definition of every tool. `toolgate packages publish` writes what the server lists."""

    toolsSummary: Annotated[list[SummaryBody], Field(max_length=checks.MAX_DEFINITIONS)] | None = None  # noqa: N815
    """Names and descriptions, where there are no `tools`. Passed over where there are."""

    run: RunBody | None = None
    """How its server is run or reached. Left out: it describes a server that is registered already."""
