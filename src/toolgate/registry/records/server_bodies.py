"""The bodies of servers, packages, pins and secrets, as people and programs write them.

A body is made by validation and turned at once into a model value (`value()`); nothing keeps one. The
docstrings of fields become the reference.
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
MAX_IDLE_S: Final = 30 * 24 * 3600  # as good as never
MAX_START_S: Final = 3600  # room for the download of a large image
_ToolName = Annotated[str, Field(max_length=128)]
_Digests = Annotated[dict[_ToolName, fields.Sha256], Field(max_length=2_000)]


class StdioBody(StrictBody, makes=servers.StdioLaunch):
    """How to start a server as a child process."""

    command: fields.Path
    """The program, found on the node's PATH. No shell is involved."""
    args: Annotated[list[fields.Argument], Field(max_length=256)] = Field(default=[])
    """Its arguments, passed literally. May hold `${ENV:NAME}` and `${ENV:NAME:-default}`."""
    env: Annotated[dict[fields.VariableName, fields.Argument], Field(max_length=256)] = Field(default={})
    """Variables the child gets. Values may hold references, resolved on the node at connect time."""
    env_from: Annotated[list[fields.VariableName], Field(max_length=256)] = Field(default=[])
    """Variables of the node passed on under their own names; `X` is short for `X = "${ENV:X}"`."""
    cwd: Annotated[fields.Path | None, fields.ABSENT_IF_EMPTY] = None
    """The child's working directory."""


class OAuthBody(StrictBody, makes=servers.OAuth):
    """As whom the gateway asks an authorization server for tokens."""

    grant: servers.Grant
    """`client_credentials`: the gateway is itself the client. `authorization_code`: an admin logs in once, by
    `toolgate servers login`; only where control and node are one process."""
    client_id: Annotated[fields.ClientId | None, fields.ABSENT_IF_EMPTY] = None
    """The name the authorization server knows the gateway by; or the `https` URL of a client's metadata.
    Unset, for logins: the gateway's own such URL, or else it registers itself there (RFC 7591)."""
    client_secret_ref: Annotated[fields.SecretName | None, fields.ABSENT_IF_EMPTY] = None
    """The name of a secret the node resolves; never the secret itself."""
    issuer: Annotated[fields.Url | None, fields.ABSENT_IF_EMPTY] = None
    """The authorization server, exactly as its metadata says. Unset: the one that the server names, which
    never gets a secret."""
    scopes: Annotated[list[fields.OAuthScope], Field(max_length=64)] = Field(default=[])
    """What to ask for. Empty: what the authorization server gives by itself."""
    per_principal: bool = False
    """Each principal logs in for itself, and its calls show its own token and no other. The login of an
    administrator, by `toolgate servers login --shared`, then lists the server and does nothing else."""

    @model_validator(mode="after")
    def _bound_to_an_issuer(self) -> "OAuthBody":
        if self.grant == "client_credentials" and self.client_secret_ref is None:
            raise fields.field_error("grant `client_credentials` needs `client_secret_ref`")
        if self.client_id is None and self.client_secret_ref is not None:
            raise fields.field_error("`client_secret_ref` is of a client: name it in `client_id`")
        if self.client_secret_ref is not None and self.issuer is None:
            raise fields.field_error("a secret is for one authorization server: name it in `issuer`")
        if self.per_principal and self.grant != "authorization_code":
            raise fields.field_error("`per_principal` needs the grant `authorization_code`")
        return self


class HttpBody(StrictBody, makes=servers.HttpEndpoint):
    """Where a server listens."""

    url: fields.Url
    """The server's MCP endpoint. The part after `http://` or `https://` may hold references."""
    headers: Annotated[dict[fields.HeaderName, fields.HeaderValue], Field(max_length=64)] = Field(default={})
    """Headers sent with every request. Values may hold references."""
    auth_ref: Annotated[fields.SecretName | None, fields.ABSENT_IF_EMPTY] = None
    """The name of a secret the node resolves and sends as a bearer token; never the secret itself."""
    oauth: OAuthBody | None = None
    """How to get tokens for this server by OAuth, instead of `auth_ref`."""

    @model_validator(mode="after")
    def _one_credential(self) -> "HttpBody":
        names = {name.lower() for name in self.headers}
        if len(names) < len(self.headers):
            raise fields.field_error("`headers` names a header twice, in different case")
        if self.oauth is not None and (self.auth_ref is not None or "authorization" in names):
            raise fields.field_error("`oauth` cannot be combined with `auth_ref` or a header `Authorization`")
        return self


class BudgetsBody(StrictBody, makes=servers.ServerBudgets):
    """Limits of one server. A field left out has its own default; none can be zero."""

    tool_timeout_ms: int = Field(default=_BUDGETS.tool_timeout_ms, ge=100, le=MAX_TIMEOUT_MS)
    """How long a call may take, in milliseconds."""
    max_concurrency: int = Field(default=_BUDGETS.max_concurrency, ge=1, le=MAX_CONCURRENCY)
    """Calls in flight at once; more wait in a bounded queue."""
    max_tool_output_bytes: int = Field(default=_BUDGETS.max_tool_output_bytes, ge=1_024, le=MAX_OUTPUT_BYTES)
    """The largest result passed on; more is cut, and marked as cut."""


class ApprovalBody(StrictBody, makes=servers.ApprovalPolicy):
    """When a person must agree to a call."""

    default: servers.Approval = Field(
        default="never", validation_alias=AliasChoices("default", "default_policy")
    )
    """For every tool that `per_tool` does not name. `policy`: for those that are not marked as read-only."""
    per_tool: Annotated[dict[_ToolName, servers.Approval], Field(max_length=2_000)] = Field(default={})
    """Tool name, pattern with `*` and `?`, or effect like `@destructive`, to `never`, `always` or `policy`.
    A name wins over patterns; of patterns, the strictest that matches does."""
    in_place: bool = True
    """Whether the person at the client that calls may be the one who agrees, where the client can ask it.
    `false`: only those who may decide on approvals do."""

    @model_validator(mode="after")
    def _names_of_tools(self) -> "ApprovalBody":
        names = [name for name in self.per_tool if not name.startswith(EFFECT)]
        if not all(is_tool_name(name.replace("*", "_").replace("?", "_")) for name in names):
            raise fields.field_error(
                "`per_tool` is keyed by tool name: letters, digits, `_`, `.` and `-`, and `*` and `?` for any"
            )
        try:
            check_patterns([parse_pattern(name) for name in self.per_tool])
        except InvalidRecord as exc:
            raise fields.field_error(f"`per_tool`: {exc}; {exc.hint}") from exc
        return self

    @model_validator(mode="before")
    @classmethod
    def _from_one_word(cls, value: object) -> object:
        """`approval_policy = "always"` is short for a table with that default; `""` for an empty one."""
        return ({"default": value} if value else {}) if isinstance(value, str) else value


class RedactionBody(StrictBody, makes=servers.RedactionRules):
    """What of the arguments of a server's calls is hidden, in addition to what looks like a secret.

    Patterns with `*` and `?`, held against the names of members at any depth, whatever their case.
    """

    hide: fields.MemberPatterns = Field(default=[])
    """Names of members to hide, with all within them, from the audit and from approvers."""
    show: fields.MemberPatterns = Field(default=[])
    """Names that look like those of secrets but are not, such as the `key` of a key-value store. What looks
    like a token stays hidden, and so does what `hide` or the setting `redact_arguments` names."""
    arguments: servers.AuditedArguments = "redacted"
    """`none`: the audit records no arguments. Approvers still see them, redacted."""


class PackageRefBody(StrictBody, makes=servers.PackageRef):
    """The package a server runs from."""

    version: fields.Version
    """Which version of it."""
    sha256: fields.Sha256
    """Of its archive: a node runs exactly this."""


class ServerBody(StrictBody):
    """One MCP server: how to reach it and what the platform allows of it."""

    version: Literal[1] = 1
    """The version of this format. There is one so far."""
    server_id: fields.ServerId
    """Its name in every URL, policy and tool name: lower case, up to 40 characters."""
    transport: servers.Transport
    """`stdio` starts a child process; the others connect to a URL."""
    stdio: StdioBody | None = None
    """Needed by transport `stdio`, refused with the others."""
    http: HttpBody | None = None
    """Needed by transports `streamable_http` and `http_sse_legacy`, refused with `stdio`."""
    display_name: fields.Title = ""
    """For people."""
    tool_namespace: Annotated[fields.Namespace | None, fields.ABSENT_IF_EMPTY] = None
    """The prefix of tool names for models; `mcp.<server_id>` unless given. Unique."""
    allowed_tools: fields.Patterns = Field(default=[])
    """Patterns of the tools this server may offer at all. Empty: none."""
    approval_policy: ApprovalBody = ApprovalBody()
    """Which of its calls a person must agree to."""
    budgets: BudgetsBody = BudgetsBody()
    """Limits of its calls."""
    redaction: RedactionBody = RedactionBody()
    """What of the arguments of its calls is hidden."""
    tags: Annotated[list[fields.Tag], Field(max_length=64)] = Field(default=[])
    """Words by which profiles and tasks select servers."""
    category: fields.Label = ""
    """One heading to list it under."""
    enabled: bool = True
    """False: registered, and nothing of it is offered."""
    sharing: servers.Sharing = "shared"
    """`shared`: one connection serves all callers. `per_session`: each session has its own, for servers that
    keep state or ask their client for roots."""
    idle_timeout_s: int = Field(default=0, ge=0, le=MAX_IDLE_S)
    """After this long without a call the connection is closed until the next. 0: never, but 300 s for the
    connections of sessions."""
    start_timeout_s: int = Field(default=0, ge=0, le=MAX_START_S)
    """How long a start may take, downloads included. 0: 300 s where the command is a package runner (`npx`,
    `uvx`, `bunx`, `pipx`, `docker` and the like), else 10 s."""
    list_ttl_s: fields.ListTtl = 0
    """How often the server's lists are read again, whether or not it announces changes: 30 to 300. 0: as
    often as the server says (`ttlMs`, within the same bounds), else every 120 s."""
    prewarm: bool = False
    """Connect at start, not by the first call, and stay connected: a connection that ends is opened again at
    once, not by the next call or list."""
    protocol: servers.Protocol = "auto"
    """The protocol revision to use. `auto`: 2026-07-28 if the server supports it, and a session-based
    connection as well for clients and tools that need one. `stateless`: 2026-07-28 only. `session`: up to
    2025-11-25 only."""
    package: PackageRefBody | None = None
    """The package it runs from; written by installing one. `${PACKAGE_DIR}` is the directory of its files in
    arguments and variables, and a command runs in their directory."""

    @model_validator(mode="after")
    def _launch_fits_transport(self) -> "ServerBody":
        needed, other = ("stdio", "http") if self.transport == "stdio" else ("http", "stdio")
        if getattr(self, needed) is None:
            raise fields.field_error(f"transport `{self.transport}` needs `{needed}`")
        if getattr(self, other) is not None:
            raise fields.field_error(f"transport `{self.transport}` has no use for `{other}`")
        if self.transport == "http_sse_legacy" and self.http is not None and self.http.oauth is not None:
            raise fields.field_error("transport `http_sse_legacy` has no use for `http.oauth`")
        if self.transport == "http_sse_legacy" and self.protocol == "stateless":
            raise fields.field_error(
                "transport `http_sse_legacy` is session-based: `protocol` cannot be `stateless`"
            )
        return self

    def value(self) -> servers.ServerRecord:
        return make_value(
            self,
            servers.ServerRecord,
            tool_namespace=self.tool_namespace or default_namespace(self.server_id),
        )


def default_namespace(server_id: str) -> str:
    return f"mcp.{server_id}"


class PinBody(StrictBody, makes=Pin):
    """The approved definitions of one server: nothing else of it is offered."""

    server_id: fields.ServerId
    """The server."""
    tools: _Digests = Field(default={})
    """Tool name to the SHA-256 of its definition."""
    changed: _Digests = Field(default={})
    """Tool name to the SHA-256 of what was found in place of the approved definition. The gateway notes it;
    such a tool is hidden until it is approved again."""

    @model_validator(mode="after")
    def _names_of_tools(self) -> "PinBody":
        if not all(is_tool_name(name) for name in (*self.tools, *self.changed)):
            raise fields.field_error("`tools` is keyed by tool name: letters, digits, `_`, `.` and `-`")
        return self


class SecretBody(StrictBody, makes=InternalSecret):
    """What the parts of the gateway share among themselves. No surface shows or takes one."""

    secret_id: fields.Name
    """What it is for."""
    hex: fields.Sha256
    """32 random bytes in hexadecimal."""


class PackageBody(StrictBody, makes=Package):
    """An installed package. Written by installing one; what it declares is in its manifest."""

    package_id: fields.ServerId
    """Its name, and that of its server."""
    version: fields.Version
    """Which version is installed."""
    sha256: fields.Sha256
    """Of its archive."""
    name: fields.Title = ""
    """For people."""
    description: fields.LongText = ""
    """What it is for."""
    category: fields.Label = ""
    """One heading to list it under."""
    tags: list[fields.Tag] = Field(default=[], max_length=64)
    """Words to find it by."""
    schema_version: SchemaVersion = "legacy"
    """Of its manifest."""
    source: Source = "legacy"
    """How far its manifest describes its tools: `manifest` in full, `summary` by name, `legacy` not."""
    declared: list[_ToolName] = Field(default=[], max_length=2_000)
    """The tools its manifest names."""
    attached: bool = False
    """Whether it only describes its server, which is registered by itself."""
