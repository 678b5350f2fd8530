"""The server record: how to reach one MCP server and what the platform allows of it.

Package runners: commands that download a server before they run it. Pure: it looks at the record alone.
"""

from collections.abc import Mapping, Sequence
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
class ServerBudgets:
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
    budgets: ServerBudgets = field(default_factory=ServerBudgets)
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


RUNNER_START_TIMEOUT_S: Final = 300.0
"""How long the start of a package runner may take. Servers took up to 50 s to download on a fast network."""

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
    """The package runner that `record` starts, such as `npx` or `uv tool run`; None: it starts none."""
    if record.stdio is None:
        return None
    return _parse_runner((record.stdio.command, *record.stdio.args))


def choose_start_timeout(record: ServerRecord, otherwise_s: float) -> float:
    """How long its start may take; `otherwise_s` where neither the record nor its command says so."""
    if record.start_timeout_s:
        return float(record.start_timeout_s)
    return otherwise_s if find_runner(record) is None else max(RUNNER_START_TIMEOUT_S, otherwise_s)


def describe_download(runner: str) -> str:
    """What a runner does while its server does not run yet."""
    return f"{runner} is {'pulling the image' if runner in _CONTAINERS else 'downloading packages'}"


def _parse_runner(words: Sequence[str]) -> str | None:
    program, arguments = words[0].rpartition("/")[2].removesuffix(".cmd"), words[1:]
    if program == "env":
        # Without further `env`, however many there are: this must end for every record.
        words = [word for word in arguments if "=" not in word and not word.startswith("-")]
        rest = [word for word in words if word.rpartition("/")[2] != "env"]
        return _parse_runner(rest) if rest else None
    if program in _SHELLS:
        return _parse_script_runner(arguments)
    if program in _RUNNERS:
        return program
    plain = [word for word in arguments if not word.startswith("-")]
    for subcommand in _RUNNING_BY.get(program, ()):
        if plain[: len(subcommand)] == list(subcommand):
            return " ".join((program, *subcommand))
    return None


def _parse_script_runner(arguments: Sequence[str]) -> str | None:
    """Of `sh -c "exec npx …"`: what the first command of the script is."""
    script = next((word for word in arguments if not word.startswith("-")), "")
    words = [word for word in script.split() if word != "exec"]
    return _parse_runner(words) if words else None
