"""Everything an operator can set. The field docstrings become the reference page.

Loaded once by the composition root, which hands each part the few values it needs.
"""

import ipaddress
import json
import socket
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from toolgate.errors import StartRefused
from toolgate.gateway.auth.issuer import OidcSettings
from toolgate.model.http import is_loopback, parse_address, parse_origin
from toolgate.model.servers import AuditedArguments
from toolgate.model.tasks import Environment
from toolgate.registry.records.body import FieldDescriptions
from toolgate.upstream.http.egress import Egress, EgressRefused, parse_target

PREFIX: Final = "TOOLGATE_"
ALIASES: Final = {"SMS_MCP_DIR": "mcp_registry_dir", "SMS_MCP_REGISTRY_DIR": "mcp_registry_dir"}
REGISTRY_DIR_NAMES: Final = ("registry_dir", "dir")
"""What SPEAR calls the directory in its section `[mcp]`: by its design, and in its code."""
INSPECTOR_ORIGINS: Final = ("http://localhost:6274", "http://127.0.0.1:6274")
"""Where the MCP Inspector serves its page, unless it is told otherwise."""
OTLP_PROTOCOL: Final = "http/protobuf"
OnTooMany = Literal["refuse", "find"]
LogLevel = Literal["debug", "info", "warning", "error"]
LAUNCHERS: Final = ("npx", "bunx", "uvx", "uv", "pipx", "node", "deno", "bun", "python", "python3", "docker")
"""What servers are commonly started by. With their arguments these can run anything: the list keeps out
mistakes and programs that were never meant as servers, and the role `admin` keeps out strangers."""


def parse_listen(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT` or `[IPV6]:PORT`; the host is an address or `localhost`."""
    host, port = parse_address(text)
    if host != "localhost":
        ipaddress.ip_address(host)
    return host, port


def _check_listen(value: str) -> str:
    parse_listen(value)
    return value


def _split(value: Any) -> Any:
    """A variable holds a list as text: names separated by commas."""
    return tuple(filter(None, value.split(","))) if isinstance(value, str) else value


ListenAddress = Annotated[str, AfterValidator(_check_listen)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split)]


class _FrozenSettings(FieldDescriptions, BaseModel):
    """What is read once, and has no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AuditSettings(_FrozenSettings):
    """What the audit has of calls, and how much of it is kept."""

    days: int = Field(default=90, ge=1, le=3_650)
    """How long what happened can be looked up."""
    rows: int = Field(default=10_000_000, ge=1_000, le=1_000_000_000)
    """How many events can be looked up at most: the oldest are dropped first."""
    file_mb: int = Field(default=64, ge=1, le=16_384)
    """At how many MiB the log begins a new file."""
    files: int = Field(default=10, ge=1, le=1_000)
    """How many full files of the log are kept in addition to the current one."""
    arguments: AuditedArguments = "redacted"
    """What the audit has of the arguments of calls: what is not hidden in them (`redacted`), or `none`."""


class OtlpSettings(_FrozenSettings):
    """A collector that takes traces, and the audit where it is wanted there, by OTLP over HTTP (protobuf)."""

    endpoint: str
    """Its URL; `/v1/traces` and `/v1/logs` are added. Also from `OTEL_EXPORTER_OTLP_ENDPOINT`, where nothing
    of this is set."""
    headers_file: Path | None = None
    """File with the headers it wants to see, such as a token: `Name: value`, one a line. They are sent over
    TLS, or to this very machine."""
    headers: SecretStr | None = None
    """The same as text, as `OTEL_EXPORTER_OTLP_HEADERS` has them: `name=value,…`. Better in a file."""
    traces: bool = True
    """Whether it gets a trace of every request, from the door to the server."""
    audit: bool = False
    """Whether it gets what the audit log has, as log records: each at least once, in order."""
    sample: float = Field(default=1.0, ge=0, le=1)
    """The part of traces that begin here and are sent. Callers who trace decide for their own."""

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str) -> str:
        try:
            parse_target(value)
        except EgressRefused as exc:
            raise ValueError(f"{exc}; a collector is at `http://127.0.0.1:4318`, or the like") from exc
        return value.rstrip("/")

    @model_validator(mode="after")
    def _check_secrecy(self) -> Self:
        target = parse_target(self.endpoint)
        has_headers = self.headers is not None or self.headers_file is not None
        if has_headers and not target.is_tls and not is_loopback(target.host):
            raise ValueError("`headers` are sent to an `https` URL, or to this very machine")
        return self


class GrpcSettings(_FrozenSettings):
    """The gRPC listener of the control plane, which nodes connect to."""

    listen: ListenAddress = "127.0.0.1:8090"
    """Address and port that `control` binds. Any address other than loopback needs a certificate."""
    cert_file: Path | None = None
    """Certificate chain of the listener, in PEM."""
    key_file: Path | None = None
    """Private key of that certificate, in PEM."""
    allow_plaintext: bool = False
    """Whether gRPC may be unencrypted beyond loopback, because a mesh or tunnel encrypts it."""


class ApprovalWebhookSettings(_FrozenSettings):
    """A program that is told of calls that wait for a person, and may decide on them."""

    url: str
    """Where it takes requests: `https`, or `http` on this machine. Held to what servers' addresses are held
    to; redirects are not followed."""
    secret_file: Path
    """File that holds the secret of at least 32 characters that requests are signed with, both ways."""


class Settings(_FrozenSettings):
    """The configuration, checked."""

    listen: ListenAddress = "127.0.0.1:8080"
    """Address and port to bind. Anything but loopback needs keys. Port 0 takes a free one."""
    data_dir: Path = Path(".toolgate")
    """Where the registry and the audit log live. Made on first start, for its owner only."""
    mcp_registry_dir: Path | None = None
    """Directory of server files (`*.toml`, `*.json`), loaded at start and whenever one changes."""
    registry_recursive: bool = False
    """Whether to look for server files in sub-directories too."""
    strict: bool = False
    """Refuse unknown fields, duplicate server ids and any invalid server file instead of warning."""
    environment: Environment = "prod"
    """Which selection of a profile applies: `dev`, `staging` or `prod`."""
    allowed_hosts: Texts = ()
    """Host names clients may call this gateway by, besides its own address and loopback."""
    allowed_origins: Texts = INSPECTOR_ORIGINS
    """Origins whose pages may call this gateway from a browser. By default the MCP Inspector, on loopback."""
    admin_key_file: Path | None = None
    """File that holds an administrator's key of at least 32 characters, for the first start off loopback."""
    trust_loopback: bool = True
    """Whether a caller without a key is the local administrator. Only ever so when bound to loopback."""
    secrets_dir: Path | None = None
    """Directory whose files are the secrets that `auth_ref` may name. Else they come from the environment."""
    allowed_commands: Texts = (*LAUNCHERS, "mcp-server-*")
    """Programs that a server written over an API may be started by; patterns with `*` and `?`. One without a
    `/` means a program on the PATH; `./*` those that packages bring along. `*` alone allows any. Server files
    are not held to it."""
    require_plan: bool = False
    """Whether a change of a server, task or profile must name the plan that showed it."""
    public_url: str | None = None
    """The URL clients reach this gateway by, where a proxy makes it another than the address they call."""
    oidc: OidcSettings | None = None
    """An OpenID Connect issuer whose tokens are accepted in addition to keys. Unset: keys only."""
    approval_webhook: ApprovalWebhookSettings | None = None
    """The receiver that `up` or `control` notifies of each pending approval. Unset: none."""
    database: str | None = None
    """Where `control` keeps the registry: `postgresql://…`. Unset: SQLite in the data directory. Leave the
    password to `PGPASSWORD` or a password file."""
    grpc: GrpcSettings = GrpcSettings()
    """The gRPC listener of `control`. `grpc_listen`, `grpc_cert_file` and the like are accepted, too."""
    control: Texts = ()
    """`HOST:PORT` of the control a `node` follows; several, separated by commas, are replicas of one."""
    control_key_file: Path | None = None
    """File that holds the node's key, of role `node`."""
    control_ca_file: Path | None = None
    """Certificates, in PEM, that control's own must be signed by. Unset: those of the system."""
    node_id: str | None = None
    """The name a node reports under. Unset: the name of its machine."""
    max_policy_staleness_s: int | None = Field(default=None, ge=10)
    """How long a node serves without hearing from control, which speaks every 5 s. Unset: for ever."""
    allow_private_upstreams: bool = True
    """Whether servers may be registered on loopback and private networks."""
    allowed_upstream_hosts: Texts = ()
    """The only hosts that servers behind URLs, and their authorization servers, may be at: names and
    addresses; patterns with `*` and `?`. Empty: any host."""
    artifacts: str | None = None
    """Where the archives of packages are kept: a directory, or `s3://BUCKET/PREFIX` (variables of AWS).
    Unset: `artifacts` in the data directory. Replicas of control need one that all of them see."""
    audit: AuditSettings = AuditSettings()
    """How much of the audit is kept, in the log and to be looked up."""
    redact_arguments: Texts = Field(default=(), max_length=256)
    """Names of arguments that are hidden in the audit and from approvers, at any depth, in addition to
    those that look like the names of secrets; patterns with `*` and `?`. No server's record shows them."""
    summary_fallback: float | None = Field(default=None, ge=0, le=100)
    """Share of catalog rows with full definitions (from manifest or server), in percent, from which the
    summary fallback is off and other rows are hidden. Unset: it stays. Set the same for every `control`."""
    semantic_model: Path | None = None
    """Directory of a sentence embedding model (MiniLM). Set: search also goes by meaning; needs the extra
    `toolgate[semantic]`. Unset: by words alone."""
    on_too_many: OnTooMany = "find"
    """What clients get of a scope with too many tools: `find`, tools that search it; `refuse`, an error."""
    max_tools: int = Field(default=128, ge=1, le=10_000)
    """The most tools one scope may list. `on_too_many` says what happens above it."""
    max_definition_tokens: int | None = Field(default=None, ge=1)
    """The most tokens the definitions of one scope may cost. Unset: no limit."""
    max_children: int = Field(default=256, ge=1, le=10_000)
    """The most child processes this node may run at once. A start beyond them ends the child of an idle
    server."""
    max_calls: int = Field(default=512, ge=1, le=100_000)
    """The most calls this node has in flight at all servers together. As many again wait for a slot, shared
    fairly between principals; then calls fail with `node_busy`. Raise it if
    `toolgate_node_calls_queued` stays above 0 while the servers have room."""
    max_guests: int = Field(default=32, ge=0, le=1_000)
    """The most guests (runs of tasks with workloads) this node has at once. 0: it runs none."""
    drain_s: float = Field(default=10.0, ge=0, le=300)
    """How long a stopping node waits for calls and guests in flight."""
    otlp: OtlpSettings | None = None
    """An OpenTelemetry collector for traces and audit. Unset: `OTEL_EXPORTER_OTLP_ENDPOINT`, or none."""
    log_level: LogLevel = "info"
    """How much is logged: `debug`, `info`, `warning` or `error`."""

    @field_validator("oidc", "otlp", "approval_webhook", "audit", "grpc", mode="before")
    @classmethod
    def _decode(cls, value: Any) -> Any:
        """A variable holds a table as JSON."""
        return json.loads(value) if isinstance(value, str) else value

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(parse_origin, value))

    @field_validator("database")
    @classmethod
    def _check_database(cls, value: str | None) -> str | None:
        """Anything else would be taken for the name of a file. It is not shown: it may hold a password."""
        if value is not None and not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("is not a URL that begins with `postgresql://`")
        return value

    @property
    def registry_file(self) -> Path:
        """The registry where no database is set: SQLite."""
        return self.data_dir / "registry.db"

    @property
    def process_id(self) -> str:
        """The name of this process among several."""
        return self.node_id or socket.gethostname()

    @property
    def egress(self) -> Egress:
        """The addresses where servers may be."""
        return Egress(allow_private=self.allow_private_upstreams, allowed_hosts=self.allowed_upstream_hosts)

    @property
    def address(self) -> tuple[str, int]:
        return parse_listen(self.listen)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.address[0])

    @property
    def is_everywhere(self) -> bool:
        """Bound to every address of the machine, none of which it can be called by for sure."""
        host = self.address[0]
        return host != "localhost" and ipaddress.ip_address(host).is_unspecified


_TABLES: Final[Mapping[str, type[BaseModel]]] = {
    "approval_webhook": ApprovalWebhookSettings,
    "audit": AuditSettings,
    "grpc": GrpcSettings,
    "oidc": OidcSettings,
    "otlp": OtlpSettings,
}
TABLE_FIELDS: Final = {
    f"{name}_{field}": (name, field) for name, table in _TABLES.items() for field in table.model_fields
} | {"allow_plaintext_grpc": ("grpc", "allow_plaintext")}
"""Flat names of the fields of tables: `audit_days` is `audit.days`, in variables and files alike."""
NAMES: Final = (*Settings.model_fields, *TABLE_FIELDS)


def load_settings(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read the file; variables TOOLGATE_<FIELD> win over it, `overrides` over both. Raises StartRefused."""
    variables = {name: environ[PREFIX + name.upper()] for name in NAMES if PREFIX + name.upper() in environ}
    aliases = {field: environ[variable] for variable, field in ALIASES.items() if variable in environ}
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    values: dict[str, Any] = {}
    for layer in (_read(path) if path is not None else {}, aliases | variables, given):
        values |= {name: value for name, value in layer.items() if name not in TABLE_FIELDS}
        for name in layer.keys() & TABLE_FIELDS.keys():
            table, field = TABLE_FIELDS[name]
            values[table] = {**_as_table(table, values.get(table)), field: layer[name]}
    if "otlp" not in values and (standard := _standard_otlp(environ)):
        values["otlp"] = standard
    try:
        return Settings.model_validate(values)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise _unknown(where) from exc
        raise StartRefused(f"setting `{where}`: {first['msg'].removeprefix('Value error, ')}") from exc


def _as_table(name: str, value: object) -> dict[str, Any]:
    """A table as the layers so far give it: TOML, JSON in a variable, or nothing."""
    try:
        found = json.loads(value) if isinstance(value, str) else value or {}
    except json.JSONDecodeError as exc:
        raise StartRefused(f"setting `{name}`: is not JSON") from exc
    if not isinstance(found, dict):
        raise StartRefused(f"setting `{name}`: is not a table")
    return found


def _standard_otlp(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the variables that OpenTelemetry defines for every program say; empty: nothing."""
    endpoint = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return {}
    spoken = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or OTLP_PROTOCOL
    if spoken != OTLP_PROTOCOL:
        raise StartRefused(
            f"`OTEL_EXPORTER_OTLP_PROTOCOL` is `{spoken}`, and only `{OTLP_PROTOCOL}` is spoken here",
            hint="name the collector's HTTP port, mostly 4318, or set `OTEL_SDK_DISABLED=true`",
        )
    found: dict[str, Any] = {"endpoint": endpoint}
    if environ.get("OTEL_EXPORTER_OTLP_HEADERS"):
        found["headers"] = environ["OTEL_EXPORTER_OTLP_HEADERS"]
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_")
    if sampler == "always_off":
        found["sample"] = 0.0
    elif sampler == "traceidratio":
        found["sample"] = environ.get("OTEL_TRACES_SAMPLER_ARG", "1")
    return found


def _unknown(name: str) -> StartRefused:
    close = get_close_matches(name, Settings.model_fields, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`docs/reference/settings.md` lists them all"
    return StartRefused(f"there is no setting `{name}`", hint=hint)


def _read(path: Path) -> dict[str, Any]:
    """A settings file. `mcp.registry_dir`, as SPEAR's has it, is an alias of `mcp_registry_dir`."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise StartRefused(f"cannot read settings from `{path}`: {exc}") from exc
    section = values.pop("mcp", {})
    if not isinstance(section, dict):
        raise _unknown("mcp")
    # A quoted TOML key is one name with a dot in it, and means the same.
    section |= {name[4:]: values.pop(name) for name in [*values] if name.startswith("mcp.")}
    for name, value in section.items():
        if name not in REGISTRY_DIR_NAMES:
            raise _unknown(f"mcp.{name}")
        values["mcp_registry_dir"] = value
    return values
