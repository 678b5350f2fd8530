"""The bodies of servers, packages, pins and secrets, as people and programs write them.

A body is made by validation and converted to a model value at once (`value()`). The docstrings of fields
become the reference pages.
"""

from typing import Annotated, Final, Literal

from pydantic import AliasChoices, Field, model_validator

from toolgate.errors import InvalidRecord
from toolgate.model import servers
from toolgate.model.names import is_tool_name
from toolgate.model.packages import Package, SchemaVersion, Source
from toolgate.model.principals import InternalSecret
from toolgate.model.tools import Pin
from toolgate.policy.patterns import EFFECT, check_patterns, parse_pattern
from toolgate.registry.records import fields
from toolgate.registry.records.body import StrictBody, make_value

_BUDGETS: Final = servers.ServerBudgets()
MAX_TIMEOUT_MS: Final = 300_000  # the last bound of `LATENCY_MS`, by which calls are counted
MAX_CONCURRENCY: Final = 1_024  # far above what one server does at a time
MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024  # a result is held in memory as a whole
MAX_IDLE_S: Final = 30 * 24 * 3600  # longer is effectively never
MAX_START_S: Final = 3600  # room for the download of a large image
_ToolName = Annotated[str, Field(max_length=128)]
_Digests = Annotated[dict[_ToolName, fields.Sha256], Field(max_length=2_000)]


class StdioBody(StrictBody, makes=servers.StdioLaunch):
    """How to start a server as a child process."""

    command: fields.Path
    """The program, looked up on the node's PATH. No shell runs it."""
    args: Annotated[list[fields.Argument], Field(max_length=256)] = Field(default=[])
    """Its arguments, passed literally. They may contain `${ENV:NAME}` and `${ENV:NAME:-default}`."""
    env: Annotated[dict[fields.VariableName, fields.Argument], Field(max_length=256)] = Field(default={})
    """Environment variables of the child. Values may contain references, which the node resolves at
    connect."""
    env_from: Annotated[list[fields.VariableName], Field(max_length=256)] = Field(default=[])
    """Environment variables of the node to pass under the same name. `X` is short for `X = "${ENV:X}"`."""
    cwd: Annotated[fields.Path | None, fields.ABSENT_IF_EMPTY] = None
    """The working directory of the child."""


class OAuthBody(StrictBody, makes=servers.OAuth):
    """The OAuth client with which the gateway requests tokens from an authorization server."""

    grant: servers.Grant
    """`client_credentials`: the gateway itself is the client. `authorization_code`: an admin logs in once
    with `toolgate servers login`. This needs the control plane and the node in one process."""
    client_id: Annotated[fields.ClientId | None, fields.ABSENT_IF_EMPTY] = None
    """The client id that the authorization server registered, or the `https` URL of a client metadata
    document. Unset, for logins: the gateway's own metadata URL, or else dynamic client registration (RFC
    7591)."""
    client_secret_ref: Annotated[fields.SecretName | None, fields.ABSENT_IF_EMPTY] = None
    """The name of a secret that the node resolves. Never the secret itself."""
    issuer: Annotated[fields.Url | None, fields.ABSENT_IF_EMPTY] = None
    """The issuer, exactly as in the metadata of the authorization server. Unset: the authorization server
    that the MCP server names, which never gets a secret."""
    scopes: Annotated[list[fields.OAuthScope], Field(max_length=64)] = Field(default=[])
    """The scopes to request. Empty: the default scopes of the authorization server."""
    per_principal: bool = False
    """Whether each principal logs in and its calls carry only its own token. The login of an admin with
    `toolgate servers login --shared` then serves only to list the server's tools."""

    @model_validator(mode="after")
    def _bound_to_an_issuer(self) -> "OAuthBody":
        if self.grant == "client_credentials" and self.client_secret_ref is None:
            raise fields.field_error("grant `client_credentials` needs `client_secret_ref`")
        if self.client_id is None and self.client_secret_ref is not None:
            raise fields.field_error("`client_secret_ref` needs `client_id`: name the client of the secret")
        if self.client_secret_ref is not None and self.issuer is None:
            raise fields.field_error("`client_secret_ref` needs `issuer`: name the authorization server")
        if self.per_principal and self.grant != "authorization_code":
            raise fields.field_error("`per_principal` needs the grant `authorization_code`")
        return self


class HttpBody(StrictBody, makes=servers.HttpEndpoint):
    """The URL of a server, and the credentials for it."""

    url: fields.Url
    """The server's MCP endpoint. The part after `http://` or `https://` may contain references."""
    headers: Annotated[dict[fields.HeaderName, fields.HeaderValue], Field(max_length=64)] = Field(default={})
    """Headers sent with every request. Values may contain references."""
    auth_ref: Annotated[fields.SecretName | None, fields.ABSENT_IF_EMPTY] = None
    """The name of a secret that the node sends as a bearer token. Never the secret itself."""
    oauth: OAuthBody | None = None
    """The OAuth client for this server, instead of `auth_ref`."""

    @model_validator(mode="after")
    def _one_credential(self) -> "HttpBody":
        names = {name.lower() for name in self.headers}
        if len(names) < len(self.headers):
            raise fields.field_error("`headers` has a duplicate name: header names ignore case")
        if self.oauth is not None and (self.auth_ref is not None or "authorization" in names):
            raise fields.field_error("`oauth` excludes `auth_ref` and the header `Authorization`: remove one")
        return self


class BudgetsBody(StrictBody, makes=servers.ServerBudgets):
    """Limits of one server. An omitted field has its default; zero is not allowed."""

    tool_timeout_ms: int = Field(default=_BUDGETS.tool_timeout_ms, ge=100, le=MAX_TIMEOUT_MS)
    """The time limit of a call, in milliseconds."""
    max_concurrency: int = Field(default=_BUDGETS.max_concurrency, ge=1, le=MAX_CONCURRENCY)
    """The maximum number of concurrent calls. More calls wait in a bounded queue."""
    max_tool_output_bytes: int = Field(default=_BUDGETS.max_tool_output_bytes, ge=1_024, le=MAX_OUTPUT_BYTES)
    """The largest result that the gateway passes on. The rest is cut, with a mark."""


class ApprovalBody(StrictBody, makes=servers.ApprovalPolicy):
    """Which calls need an approval."""

    default: servers.Approval = Field(
        default="never", validation_alias=AliasChoices("default", "default_policy")
    )
    """For tools that `per_tool` does not name. `policy`: for tools that are not marked as read-only."""
    per_tool: Annotated[dict[_ToolName, servers.Approval], Field(max_length=2_000)] = Field(default={})
    """Maps a tool name, a pattern with `*` and `?`, or an effect like `@destructive` to `never`, `always` or
    `policy`. A name takes precedence over patterns. Of the matching patterns, the strictest applies."""
    in_place: bool = True
    """Whether the user of the calling client may approve, if the client supports elicitation. `false`: only
    callers who may decide on approvals."""

    @model_validator(mode="after")
    def _names_of_tools(self) -> "ApprovalBody":
        names = [name for name in self.per_tool if not name.startswith(EFFECT)]
        if not all(is_tool_name(name.replace("*", "_").replace("?", "_")) for name in names):
            raise fields.field_error(
                "`per_tool` needs tool names as keys: letters, digits, `_`, `.`, `-` and wildcards `*`, `?`"
            )
        try:
            check_patterns([parse_pattern(name) for name in self.per_tool])
        except InvalidRecord as exc:
            raise fields.field_error(f"`per_tool`: {exc}; {exc.hint}") from exc
        return self

    @model_validator(mode="before")
    @classmethod
    def _from_one_word(cls, value: object) -> object:
        """`approval_policy = "always"` is short for a table with that default, `""` for an empty table."""
        return ({"default": value} if value else {}) if isinstance(value, str) else value


class RedactionBody(StrictBody, makes=servers.RedactionRules):
    """What to hide of the arguments of a server's calls, in addition to values that look like secrets.

    Patterns with `*` and `?` match member names at any depth, ignoring case.
    """

    hide: fields.MemberPatterns = Field(default=[])
    """Member names to hide with their values, from the audit log and from approvers."""
    show: fields.MemberPatterns = Field(default=[])
    """Member names to show although they look like names of secrets, such as the `key` of a key-value store.
    Values that look like tokens stay hidden, and so do names in `hide` and the setting `redact_arguments`."""
    arguments: servers.AuditedArguments = "redacted"
    """`none`: the audit log contains no arguments. Approvers still see them, redacted."""


class PackageRefBody(StrictBody, makes=servers.PackageRef):
    """The package a server runs from."""

    version: fields.Version
    """The version of the package."""
    sha256: fields.Sha256
    """The SHA-256 of its archive. A node runs exactly this archive."""


class ServerBody(StrictBody):
    """An MCP server: how to reach it and what the platform allows of it."""

    version: Literal[1] = 1
    """The version of the record format."""
    server_id: fields.ServerId
    """The id in URLs, policy and tool names: lower case, up to 40 characters."""
    transport: servers.Transport
    """`stdio` starts a child process; the others connect to a URL."""
    stdio: StdioBody | None = None
    """Required for the transport `stdio`, not allowed with others."""
    http: HttpBody | None = None
    """Required for the transports `streamable_http` and `http_sse_legacy`, not allowed with `stdio`."""
    display_name: fields.Title = ""
    """The name shown to people."""
    tool_namespace: Annotated[fields.Namespace | None, fields.ABSENT_IF_EMPTY] = None
    """The prefix of tool names for models. Must be unique. Default: `mcp.<server_id>`."""
    allowed_tools: fields.Patterns = Field(default=[])
    """Patterns of the tools that this server may offer. Empty: no tools."""
    approval_policy: ApprovalBody = ApprovalBody()
    """Which calls need an approval."""
    budgets: BudgetsBody = BudgetsBody()
    """The limits of its calls."""
    redaction: RedactionBody = RedactionBody()
    """What to hide of the arguments of its calls."""
    tags: Annotated[list[fields.Tag], Field(max_length=64)] = Field(default=[])
    """Tags by which profiles and tasks select servers."""
    category: fields.Label = ""
    """The category to list it under."""
    enabled: bool = True
    """Whether the gateway offers its tools. A disabled server stays registered."""
    sharing: servers.Sharing = "shared"
    """`shared`: one connection serves all callers. `per_session`: each session has its own connection, for
    servers that keep state or request roots from their client."""
    idle_timeout_s: int = Field(default=0, ge=0, le=MAX_IDLE_S)
    """The idle time after which the gateway closes the connection until the next call. 0: never, but after
    300 s for connections of sessions."""
    start_timeout_s: int = Field(default=0, ge=0, le=MAX_START_S)
    """The time limit of a start, downloads included. 0: 300 s if the command is a package runner (`npx`,
    `uvx`, `bunx`, `pipx`, `docker` and similar), else 10 s."""
    list_ttl_s: fields.ListTtl = 0
    """How often the gateway lists the server again, with or without change notifications: 30 to 300 s. 0: by
    the server's `ttlMs` within the same bounds, or else every 120 s."""
    prewarm: bool = False
    """Whether to connect when the gateway starts, not on the first call, and to reconnect at once when the
    connection ends."""
    protocol: servers.Protocol = "auto"
    """The protocol revision to use. `auto`: 2026-07-28 if the server supports it, with an additional
    session-based connection for clients and tools that need one. `stateless`: only 2026-07-28. `session`:
    only revisions up to 2025-11-25."""
    package: PackageRefBody | None = None
    """The package that the server runs from, written by an installation. `${PACKAGE_DIR}` in arguments and
    variables is the directory of its files, and the command runs there."""

    @model_validator(mode="after")
    def _launch_fits_transport(self) -> "ServerBody":
        needed, other = ("stdio", "http") if self.transport == "stdio" else ("http", "stdio")
        if getattr(self, needed) is None:
            raise fields.field_error(f"transport `{self.transport}` needs `{needed}`")
        if getattr(self, other) is not None:
            raise fields.field_error(f"transport `{self.transport}` does not allow `{other}`")
        if self.transport == "http_sse_legacy" and self.http is not None and self.http.oauth is not None:
            raise fields.field_error("transport `http_sse_legacy` does not allow `http.oauth`")
        if self.transport == "http_sse_legacy" and self.protocol == "stateless":
            raise fields.field_error(
                "transport `http_sse_legacy` is session-based: `protocol` cannot be `stateless`"
            )
        return self

    def value(self) -> servers.ServerRecord:
        namespace = self.tool_namespace or default_namespace(self.server_id)
        return make_value(self, servers.ServerRecord, tool_namespace=namespace)


def default_namespace(server_id: str) -> str:
    return f"mcp.{server_id}"


class PinBody(StrictBody, makes=Pin):
    """The approved tool definitions of one server. The gateway offers no other tools of it."""

    server_id: fields.ServerId
    """The id of the server."""
    tools: _Digests = Field(default={})
    """Tool name to the SHA-256 of its approved definition."""
    changed: _Digests = Field(default={})
    """Tool name to the SHA-256 of the changed definition. The gateway writes it and quarantines the tool
    until someone approves it."""

    @model_validator(mode="after")
    def _names_of_tools(self) -> "PinBody":
        if not all(is_tool_name(name) for name in (*self.tools, *self.changed)):
            raise fields.field_error("`tools` needs tool names as keys: letters, digits, `_`, `.` and `-`")
        return self


class SecretBody(StrictBody, makes=InternalSecret):
    """A secret that the processes of the gateway share. No surface shows or accepts it."""

    secret_id: fields.Name
    """The purpose of the secret."""
    hex: fields.Sha256
    """32 random bytes in hexadecimal."""


class PackageBody(StrictBody, makes=Package):
    """An installed package. An installation writes it; its manifest declares the rest."""

    package_id: fields.ServerId
    """The id of the package, and of its server."""
    version: fields.Version
    """The installed version."""
    sha256: fields.Sha256
    """The SHA-256 of its archive."""
    name: fields.Title = ""
    """The name shown to people."""
    description: fields.LongText = ""
    """What the package is for."""
    category: fields.Label = ""
    """The category to list it under."""
    tags: list[fields.Tag] = Field(default=[], max_length=64)
    """Tags to find it by."""
    schema_version: SchemaVersion = "legacy"
    """The schema version of its manifest."""
    source: Source = "legacy"
    """How its manifest describes its tools: `manifest` in full, `summary` by name, `legacy` not at all."""
    declared: list[_ToolName] = Field(default=[], max_length=2_000)
    """The tools that its manifest names."""
    attached: bool = False
    """Whether it only describes a server that is registered separately."""
