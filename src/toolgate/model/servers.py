"""The server record: how to reach one MCP server and what the platform allows of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

from toolgate.model.packages import PackageRef

Transport = Literal["stdio", "streamable_http", "http_sse_legacy"]
Sharing = Literal["shared", "per_session"]
Protocol = Literal["auto", "stateless", "session"]
"""The protocol revision a server is spoken to in: 2026-07-28 (stateless), or up to 2025-11-25 (session)."""
Approval = Literal["never", "always", "policy"]
Grant = Literal["client_credentials", "authorization_code"]
AuditedArguments = Literal["redacted", "none"]

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioLaunch:
    """How to start a server as a child process. Values may hold `${ENV:NAME}`, resolved at connect."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    env_from: tuple[str, ...] = ()
    cwd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """As whom the gateway asks for tokens for a server.

    Invariant: where there is a secret, there is an issuer. Credentials are meant for one authorization
    server, never for whichever a server names.
    """

    grant: Grant
    client_id: str | None = None
    """None: for logins, the gateway sees to that itself."""
    client_secret_ref: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    per_principal: bool = False
    """Each principal logs in for itself, and its calls show its own token and no other."""
    owner: str = ""
    """Whose login a link shows. Empty in every record that is stored, and on the links that all share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    """Where a server listens. `auth_ref` names a secret the node resolves; it is never the secret."""

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    auth_ref: str | None = None
    oauth: OAuth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Per-server limits. An absent field has its default; present-but-partial never means zero."""

    tool_timeout_ms: int = 30_000
    max_concurrency: int = 16
    max_tool_output_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """When a person must agree to a call: by default, and by tool name or pattern."""

    default: Approval = "never"
    per_tool: Mapping[str, Approval] = field(default_factory=lambda: MappingProxyType({}))
    in_place: bool = True
    """Whether the person at the client that calls may be the one who agrees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionRules:
    """What of arguments is hidden from the audit and from whoever approves calls, beside what looks secret.

    Patterns are held against the names of members at any depth, whatever their case.
    """

    hide: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    """Names that only look like those of secrets."""
    arguments: AuditedArguments = "redacted"
    """`none`: the audit has none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """One registered server. Invariant: exactly the launch that `transport` needs is present."""

    server_id: str
    transport: Transport
    stdio: StdioLaunch | None = None
    http: HttpEndpoint | None = None
    display_name: str = ""
    tool_namespace: str = ""
    allowed_tools: tuple[str, ...] = ()
    approval_policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    budgets: Budgets = field(default_factory=Budgets)
    redaction: RedactionRules = field(default_factory=RedactionRules)
    tags: tuple[str, ...] = ()
    category: str = ""
    enabled: bool = True
    sharing: Sharing = "shared"
    idle_timeout_s: int = 0
    start_timeout_s: int = 0
    """0: by what it starts (`model.runners`)."""
    list_ttl_s: int = 0
    """When its lists are read again. 0: as the server says (`ttlMs`), or after the default."""
    prewarm: bool = False
    protocol: Protocol = "auto"
    """`auto`: what the server and its callers speak."""
    package: PackageRef | None = None
    """The package it runs from, where it was installed as one."""

    @property
    def launch(self) -> tuple[object, ...]:
        """What a connection depends on: when this changes, the server is reconnected."""
        return (self.transport, self.stdio, self.http, self.sharing, self.protocol, self.package)

    @property
    def is_per_principal(self) -> bool:
        """Whether a caller's own login is shown to the server, so that callers cannot share a link."""
        return self.http is not None and self.http.oauth is not None and self.http.oauth.per_principal

    def owned_by(self, principal_id: str) -> "ServerRecord":
        """As the links of one principal have it."""
        assert self.http is not None
        assert self.http.oauth is not None
        oauth = replace(self.http.oauth, owner=principal_id)
        return replace(self, http=replace(self.http, oauth=oauth))
