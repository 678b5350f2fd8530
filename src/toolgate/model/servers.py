"""The record of a server: how to reach it, its limits, and the package runner that it starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

Transport = Literal["stdio", "streamable_http", "http_sse_legacy"]
Sharing = Literal["shared", "per_session"]
Protocol = Literal["auto", "stateless", "session"]
"""The protocol revision for a server: 2026-07-28 (stateless), or up to 2025-11-25 (session)."""
Approval = Literal["never", "always", "policy"]
Grant = Literal["client_credentials", "authorization_code"]
AuditedArguments = Literal["redacted", "none"]

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioLaunch:
    """A server as a child process. Values may contain `${ENV:NAME}`, resolved at connect."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    env_from: tuple[str, ...] = ()
    cwd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """The OAuth client that requests tokens for a server. Invariant: a client with a secret has an issuer.
    Credentials go to that authorization server, never to one that a server names."""

    grant: Grant
    client_id: str | None = None
    """None: the gateway registers itself for logins."""
    client_secret_ref: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    per_principal: bool = False
    """Whether each principal logs in and its calls use its own token."""
    owner: str = ""
    """The principal of the login. Empty in stored records and on shared connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    """A server at a URL. `auth_ref` names a secret that the node resolves. It is never the secret itself."""

    url: str
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    auth_ref: str | None = None
    oauth: OAuth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBudgets:
    tool_timeout_ms: int = 30_000
    max_concurrency: int = 16
    max_tool_output_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """Which calls need an approval: by default, and by tool name or pattern."""

    default: Approval = "never"
    per_tool: Mapping[str, Approval] = field(default_factory=lambda: MappingProxyType({}))
    in_place: bool = True
    """Whether the user of the calling client may approve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionRules:
    """What to hide of arguments from the audit log and approvers, in addition to values that look secret.
    Patterns match member names at any depth, ignoring case."""

    hide: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    """Names that only look like names of secrets."""
    arguments: AuditedArguments = "redacted"
    """`none`: the audit log has no arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRef:
    """The package a server runs from."""

    version: str
    sha256: str
    """The SHA-256 of its archive."""


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
    budgets: ServerBudgets = field(default_factory=ServerBudgets)
    redaction: RedactionRules = field(default_factory=RedactionRules)
    tags: tuple[str, ...] = ()
    category: str = ""
    enabled: bool = True
    sharing: Sharing = "shared"
    idle_timeout_s: int = 0
    start_timeout_s: int = 0
    """0: by the command; see `choose_start_timeout`."""
    list_ttl_s: int = 0
    """When to read its lists again. 0: by the server's `ttlMs`, or the default."""
    prewarm: bool = False
    protocol: Protocol = "auto"
    """`auto`: by what the server and its callers support."""
    package: PackageRef | None = None
    """The package it was installed from."""

    @property
    def launch(self) -> tuple[object, ...]:
        """The fields that a connection depends on: if they change, the server is reconnected."""
        return (self.transport, self.stdio, self.http, self.sharing, self.protocol, self.package)

    @property
    def is_per_principal(self) -> bool:
        """Whether calls use the caller's own login, so that callers cannot share a connection."""
        return self.http is not None and self.http.oauth is not None and self.http.oauth.per_principal

    def owned_by(self, principal_id: str) -> "ServerRecord":
        """The record for connections of one principal."""
        assert self.http is not None
        assert self.http.oauth is not None
        return replace(self, http=replace(self.http, oauth=replace(self.http.oauth, owner=principal_id)))


RUNNER_START_TIMEOUT_S: Final = 300.0
"""Servers took up to 50 s to download on a fast network, and slow networks are ten times slower."""

_RUNNERS: Final = frozenset({"npx", "pnpx", "bunx", "uvx", "pipx", "dnx", "docker", "podman", "nerdctl"})
_RUNNING_BY: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "npm": (("exec",), ("x",)),
    "pnpm": (("dlx",),),
    "yarn": (("dlx",),),
    "bun": (("x",), ("run",)),
    "uv": (("tool", "run"), ("run",)),
    "deno": (("run",),),
    "go": (("run",),),
}
"""Programs that are package runners with one of these subcommands."""
_CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ash"})


def find_runner(record: ServerRecord) -> str | None:
    """The package runner that `record` starts, such as `npx` or `uv tool run`, if any."""
    if record.stdio is None:
        return None
    return _parse_runner((record.stdio.command, *record.stdio.args))


def choose_start_timeout(record: ServerRecord, otherwise_s: float) -> float:
    """The time limit of its start; `otherwise_s` if neither the record nor its command decides."""
    if record.start_timeout_s:
        return float(record.start_timeout_s)
    return otherwise_s if find_runner(record) is None else max(RUNNER_START_TIMEOUT_S, otherwise_s)


def describe_download(runner: str) -> str:
    return f"{runner} is {'pulling the image' if runner in _CONTAINERS else 'downloading packages'}"


def _parse_runner(words: Sequence[str]) -> str | None:
    program, arguments = words[0].rpartition("/")[2].removesuffix(".cmd"), words[1:]
    if program == "env":
        # Drop further `env`s: this must end for every record.
        words = [word for word in arguments if "=" not in word and not word.startswith("-")]
        rest = [word for word in words if word.rpartition("/")[2] != "env"]
        return _parse_runner(rest) if rest else None
    if program in _SHELLS:  # the first command of a script: `sh -c "exec npx …"`
        script = next((word for word in arguments if not word.startswith("-")), "")
        words = [word for word in script.split() if word != "exec"]
        return _parse_runner(words) if words else None
    if program in _RUNNERS:
        return program
    plain = [word for word in arguments if not word.startswith("-")]
    for subcommand in _RUNNING_BY.get(program, ()):
        if plain[: len(subcommand)] == list(subcommand):
            return " ".join((program, *subcommand))
    return None
