"""The shape of `manifest.json` as people and programs write it: the format's version 2.

The field docstrings become the reference.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from toolgate.catalog.members import MAX_DESCRIPTION_BYTES, MAX_LISTED
from toolgate.model.names import MAX_SERVER_ID, MAX_TOOL_NAME, is_tool_name
from toolgate.registry.records.fields import Label, LongText, ServerId, Tag, Title, Url, Version, refuse
from toolgate.registry.records.server_bodies import Body, HttpBody, StdioBody

JsonObject = dict[str, Any]

# Told in the published schema too, which knows nothing of validators.
_ID: Final = {"pattern": "^[a-z0-9]+([-_][a-z0-9]+)*$", "maxLength": MAX_SERVER_ID}
_VERSION: Final = {"pattern": "^[0-9A-Za-z]([.+-]?[0-9A-Za-z])*$"}
_TOOL_NAME: Final = {"pattern": rf"^[A-Za-z0-9_.-]{{1,{MAX_TOOL_NAME}}}$"}


def _check_tool_name(text: str) -> str:
    if not is_tool_name(text):
        raise refuse(f"a tool's name is 1 to {MAX_TOOL_NAME} of `A-Z a-z 0-9 _ . -`")
    return text


def _spell_version(given: object) -> object:
    return "v2" if given in ("2", 2) else given


SchemaVersion = Annotated[Literal["v2"], BeforeValidator(_spell_version)]
ToolName = Annotated[str, Field(json_schema_extra=_TOOL_NAME), AfterValidator(_check_tool_name)]


class StdioRunBody(StdioBody):
    """A server that is started as a child process, in the directory of the package's files.

    `${PACKAGE_DIR}` in `args`, `env` and `cwd` stands for that directory. A `command` with a `/` inside is a
    program of the package.
    """

    transport: Literal["stdio"]
    """How to talk to it."""


class HttpRunBody(HttpBody):
    """A server that listens at a URL; nothing of the package is started."""

    transport: Literal["streamable_http", "http_sse_legacy"]
    """How to talk to it."""


RunBody = Annotated[StdioRunBody | HttpRunBody, Field(discriminator="transport")]


class ToolBody(Body):
    """A tool's definition, as its server lists it. What else MCP has (`icons`, `_meta`) may be there, too."""

    model_config = ConfigDict(extra="allow")

    name: ToolName
    """Unique in the package, also without regard to case."""

    title: str = ""
    """For people."""

    description: str = Field(default="", max_length=MAX_DESCRIPTION_BYTES)
    """What it does, for models."""

    inputSchema: JsonObject  # noqa: N815, MCP's spelling
    """JSON Schema of its arguments, an object. At most 256 KiB and 32 levels deep; references stay within."""

    outputSchema: JsonObject | None = None  # noqa: N815
    """JSON Schema of its structured result, within the same bounds."""

    annotations: JsonObject | None = None
    """Hints like `readOnlyHint`."""


class SummaryBody(Body):
    """A tool of which only this much is known."""

    name: ToolName
    """As its server lists it."""

    description: str = Field(default="", max_length=MAX_DESCRIPTION_BYTES)
    """What it does."""


class OldManifestBody(Body):
    """What a manifest from before version 2 is made into before it is checked."""

    manifestSchemaVersion: SchemaVersion  # noqa: N815, the format's spelling
    """The version of this format. The number 2 is understood, too."""

    id: Annotated[ServerId, Field(json_schema_extra=_ID)]
    """Its name in every URL and policy, and that of its server: lower case, up to 40 characters."""

    name: Title = ""
    """For people, in any language."""

    version: Annotated[Version, Field(json_schema_extra=_VERSION)] = "0.0.0"
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

    tools: Annotated[list[ToolBody], Field(max_length=MAX_LISTED)] | None = None
    """The full definition of every tool. `toolgate publish` writes them from what the server lists."""

    toolsSummary: Annotated[list[SummaryBody], Field(max_length=MAX_LISTED)] | None = None  # noqa: N815
    """Names and descriptions, where there are no `tools`. Passed over where there are."""

    run: RunBody | None = None
    """How its server is run or reached."""


class ManifestBody(OldManifestBody):
    """`manifest.json` at the root of a package."""

    version: Annotated[Version, Field(json_schema_extra=_VERSION)]
    """Letters and digits with single `.`, `+` or `-` between, like `1.2.0`. What was published as one version
    never changes."""

    run: RunBody | None = None
    """How its server is run or reached. Left out: it describes a server that is registered already."""
