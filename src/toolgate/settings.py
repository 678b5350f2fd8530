"""The settings of a process. The field docstrings become the reference page.

The composition root loads them once, and hands each part the few values it needs.
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
"""The names of the directory in SPEAR's section `[mcp]`: in its design, and in its code."""
INSPECTOR_ORIGINS: Final = ("http://localhost:6274", "http://127.0.0.1:6274")
"""The default origins of the MCP Inspector."""
OTLP_PROTOCOL: Final = "http/protobuf"
OnTooMany = Literal["refuse", "find"]
LogLevel = Literal["debug", "info", "warning", "error"]
LAUNCHERS: Final = ("npx", "bunx", "uvx", "uv", "pipx", "node", "deno", "bun", "python", "python3", "docker")
"""The programs that commonly start servers. With arguments they can run anything: the list only prevents
mistakes. Against attackers, only the role `admin` may register servers."""


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
    """Variables hold a list as text, separated by commas."""
    return tuple(filter(None, value.split(","))) if isinstance(value, str) else value


ListenAddress = Annotated[str, AfterValidator(_check_listen)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split)]


class _FrozenSettings(FieldDescriptions, BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AuditSettings(_FrozenSettings):
    """The retention of the audit log and its index, and whether calls are audited with their arguments."""

    days: int = Field(default=90, ge=1, le=3_650)
    """Days that events stay in the audit index, which searches read."""
    rows: int = Field(default=10_000_000, ge=1_000, le=1_000_000_000)
    """The most events in the audit index. Beyond it, the oldest are dropped."""
    file_mb: int = Field(default=64, ge=1, le=16_384)
    """Size in MiB at which the audit log rotates to a new file."""
    files: int = Field(default=10, ge=1, le=1_000)
    """Full files of the audit log to keep, in addition to the current one."""
    arguments: AuditedArguments = "redacted"
    """How to audit the arguments of calls: `redacted`, with secrets masked, or `none`."""


class OtlpSettings(_FrozenSettings):
    """An OpenTelemetry collector for traces and audit events, reached by OTLP over HTTP (protobuf)."""

    endpoint: str
    """The collector's URL, to which `/v1/traces` and `/v1/logs` are appended. `OTEL_EXPORTER_OTLP_ENDPOINT`
    applies if the table `otlp` is not set."""
    headers_file: Path | None = None
    """File with headers for the collector, such as a token: `Name: value`, one per line. Requires an `https`
    URL or a loopback address."""
    headers: SecretStr | None = None
    """The headers as text, as in `OTEL_EXPORTER_OTLP_HEADERS`: `name=value,…`. Prefer `headers_file`."""
    traces: bool = True
    """Whether to export a trace of each request, from the gateway's endpoint to the server."""
    audit: bool = False
    """Whether to export audit events as log records, in order, each at least once."""
    sample: float = Field(default=1.0, ge=0, le=1)
    """Share of traces to export, 0 to 1. If a caller sends a trace context, its sampling decision applies."""

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str) -> str:
        try:
            parse_target(value)
        except EgressRefused as exc:
            raise ValueError(f"{exc}; use a URL like `http://127.0.0.1:4318`") from exc
        return value.rstrip("/")

    @model_validator(mode="after")
    def _check_secrecy(self) -> Self:
        target = parse_target(self.endpoint)
        has_headers = self.headers is not None or self.headers_file is not None
        if has_headers and not target.is_tls and not is_loopback(target.host):
            raise ValueError("headers require an `https` URL or a loopback address")
        return self


class GrpcSettings(_FrozenSettings):
    """The gRPC listener of the control plane, which nodes connect to."""

    listen: ListenAddress = "127.0.0.1:8090"
    """Address and port that `control` binds. Any address but loopback requires a certificate."""
    cert_file: Path | None = None
    """File with the listener's certificate chain, in PEM."""
    key_file: Path | None = None
    """File with the certificate's private key, in PEM."""
    allow_plaintext: bool = False
    """Whether to allow unencrypted gRPC beyond loopback. Set it only if a mesh or tunnel encrypts it."""


class ApprovalWebhookSettings(_FrozenSettings):
    """The webhook that receives pending approvals, and may decide them."""

    url: str
    """URL of the webhook: `https`, or `http` on loopback. The rules for addresses of servers apply; redirects
    are not followed."""
    secret_file: Path
    """File with the secret that signs requests in both directions, at least 32 characters."""


class Settings(_FrozenSettings):
    """The validated settings of one process."""

    listen: ListenAddress = "127.0.0.1:8080"
    """Address and port to bind. Any address but loopback requires keys. Port 0 picks a free port."""
    data_dir: Path = Path(".toolgate")
    """Directory of the registry and the audit log. The first start creates it, for its owner only."""
    mcp_registry_dir: Path | None = None
    """Directory of server files (`*.toml`, `*.json`), loaded at start and whenever a file changes."""
    registry_recursive: bool = False
    """Whether to load server files from subdirectories, too."""
    strict: bool = False
    """Whether to reject unknown fields, duplicate server ids and invalid server files instead of warning."""
    environment: Environment = "prod"
    """The environment whose selection of a profile applies: `dev`, `staging` or `prod`."""
    allowed_hosts: Texts = ()
    """Host names that clients may use for this gateway, in addition to its address and loopback."""
    allowed_origins: Texts = INSPECTOR_ORIGINS
    """Origins whose pages may call this gateway from a browser. Default: the MCP Inspector on loopback."""
    admin_key_file: Path | None = None
    """File with an admin key of at least 32 characters, for the first start on an address beyond loopback."""
    trust_loopback: bool = True
    """Whether callers without a key are the local admin. It applies only if `listen` is loopback."""
    secrets_dir: Path | None = None
    """Directory with one file per secret. A secret without a file comes from an environment variable."""
    allowed_commands: Texts = (*LAUNCHERS, "mcp-server-*")
    """Programs that may start servers registered over an API; patterns with `*` and `?`. An entry without `/`
    is a program on the PATH, `./*` allows programs in packages, and `*` allows any. Server files may start
    other programs."""
    require_plan: bool = False
    """Whether each change of a server, task or profile must name its plan, from `toolgate plan`."""
    public_url: str | None = None
    """The URL at which clients reach this gateway, if a proxy makes it differ from the address they call."""
    oidc: OidcSettings | None = None
    """The OpenID Connect issuer whose tokens are accepted in addition to keys. Unset: keys only."""
    approval_webhook: ApprovalWebhookSettings | None = None
    """The webhook that `up` or `control` notifies of each pending approval. Unset: none."""
    database: str | None = None
    """URL of the registry database of `control`: `postgresql://…`. Unset: SQLite in the data directory. Put
    the password into `PGPASSWORD` or a password file."""
    grpc: GrpcSettings = GrpcSettings()
    """The gRPC listener of `control`. Flat names such as `grpc_listen` work, too."""
    control: Texts = ()
    """`HOST:PORT` of the control plane that a `node` follows. Separate its replicas by commas."""
    control_key_file: Path | None = None
    """File with the node's key, of role `node`."""
    control_ca_file: Path | None = None
    """File with the CA certificates to verify the control plane by, in PEM. Unset: those of the system."""
    node_id: str | None = None
    """The name of this node in reports. Unset: the machine's host name."""
    max_policy_staleness_s: int | None = Field(default=None, ge=10)
    """How long a node serves without contact to the control plane, which sends a message every 5 s. After
    it, calls fail with `policy_stale`. Unset: no limit."""
    allow_private_upstreams: bool = True
    """Whether servers may have addresses on loopback and in private networks."""
    allowed_upstream_hosts: Texts = ()
    """The only hosts of servers with a URL and of their authorization servers: names, addresses, or patterns
    with `*` and `?`. Empty: any host."""
    artifacts: str | None = None
    """Store for archives of packages: a directory, or `s3://BUCKET/PREFIX` with the variables of AWS. Unset:
    `artifacts` in the data directory. Replicas of `control` need a store that they share."""
    audit: AuditSettings = AuditSettings()
    """How long audit events are kept, and whether they have the arguments of calls."""
    redact_arguments: Texts = Field(default=(), max_length=256)
    """Names of arguments to mask for the audit and for approvers, at any depth, in addition to names that
    look secret; patterns with `*` and `?`. A server's record cannot unmask them."""
    summary_fallback: float | None = Field(default=None, ge=0, le=100)
    """Percentage of catalog rows with a full definition at which rows without one are hidden. Unset: they are
    always shown. Use the same value for every replica of `control`."""
    semantic_model: Path | None = None
    """Directory of a sentence embedding model (MiniLM) for semantic search; requires the extra
    `toolgate[semantic]`. Unset: search by words only."""
    on_too_many: OnTooMany = "find"
    """What clients get if a scope has too many tools: `find`, tools that search it; `refuse`, an error."""
    max_tools: int = Field(default=128, ge=1, le=10_000)
    """The most tools that one scope may list. Above it, `on_too_many` applies."""
    max_definition_tokens: int | None = Field(default=None, ge=1)
    """The most tokens that the definitions of one scope may have; above it, `on_too_many` applies. Unset: no
    limit."""
    max_children: int = Field(default=256, ge=1, le=10_000)
    """The most child processes on this node. At the limit, a new start ends the child of an idle server."""
    max_calls: int = Field(default=512, ge=1, le=100_000)
    """The most calls in flight on this node, over all servers. The same number may wait, with fair slots per
    principal; further calls fail with `node_busy`. Raise it if `toolgate_node_calls_queued` stays above 0
    while the servers have capacity."""
    max_guests: int = Field(default=32, ge=0, le=1_000)
    """The most guests (runs of workloads) on this node at once. 0: it runs none."""
    drain_s: float = Field(default=10.0, ge=0, le=300)
    """How long a stopping node waits for calls and guests in flight."""
    otlp: OtlpSettings | None = None
    """The OpenTelemetry collector. Unset: `OTEL_EXPORTER_OTLP_ENDPOINT`, or none."""
    log_level: LogLevel = "info"
    """The least severe level to log: `debug`, `info`, `warning` or `error`."""

    @field_validator("oidc", "otlp", "approval_webhook", "audit", "grpc", mode="before")
    @classmethod
    def _decode(cls, value: Any) -> Any:
        """Variables hold a table as JSON."""
        return json.loads(value) if isinstance(value, str) else value

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(parse_origin, value))

    @field_validator("database")
    @classmethod
    def _check_database(cls, value: str | None) -> str | None:
        """SQLite would open any other text as a file. The error omits the value: it may hold a password."""
        if value is not None and not value.startswith(("postgresql://", "postgres://")):
            raise ValueError("not a URL that begins with `postgresql://`")
        return value

    @property
    def registry_file(self) -> Path:
        """The SQLite registry, if `database` is unset."""
        return self.data_dir / "registry.db"

    @property
    def process_id(self) -> str:
        """The name of this process in the cluster."""
        return self.node_id or socket.gethostname()

    @property
    def egress(self) -> Egress:
        """The addresses that servers may have."""
        return Egress(allow_private=self.allow_private_upstreams, allowed_hosts=self.allowed_upstream_hosts)

    @property
    def address(self) -> tuple[str, int]:
        return parse_listen(self.listen)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.address[0])

    @property
    def is_everywhere(self) -> bool:
        """Whether it binds every address of the machine, so that no single one is sure to reach it."""
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
"""The flat names of fields of tables, for variables and files: `audit_days` is `audit.days`."""
NAMES: Final = (*Settings.model_fields, *TABLE_FIELDS)


def load_settings(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read the file. Variables TOOLGATE_<FIELD> override it, and `overrides` both. Raises StartRefused."""
    variables = {name: environ[PREFIX + name.upper()] for name in NAMES if PREFIX + name.upper() in environ}
    aliases = {field: environ[variable] for variable, field in ALIASES.items() if variable in environ}
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    values: dict[str, Any] = {}
    for layer in (_read(path) if path is not None else {}, aliases | variables, given):
        values |= {name: value for name, value in layer.items() if name not in TABLE_FIELDS}
        for name in layer.keys() & TABLE_FIELDS.keys():
            table, field = TABLE_FIELDS[name]
            values[table] = {**_as_table(table, values.get(table)), field: layer[name]}
    if "otlp" not in values and (standard := _read_standard_otlp(environ)):
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
    """The table in `value`: TOML, JSON from a variable, or empty."""
    try:
        found = json.loads(value) if isinstance(value, str) else value or {}
    except json.JSONDecodeError as exc:
        raise StartRefused(f"setting `{name}`: not JSON") from exc
    if not isinstance(found, dict):
        raise StartRefused(f"setting `{name}`: not a table")
    return found


def _read_standard_otlp(environ: Mapping[str, str]) -> dict[str, Any]:
    """The table by the standard variables of OpenTelemetry; empty if they name no collector."""
    endpoint = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    if not endpoint or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return {}
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or OTLP_PROTOCOL
    if protocol != OTLP_PROTOCOL:
        raise StartRefused(
            f"`OTEL_EXPORTER_OTLP_PROTOCOL` is `{protocol}`, but Toolgate supports only `{OTLP_PROTOCOL}`",
            hint=f"set it to `{OTLP_PROTOCOL}` with the collector's HTTP port, usually 4318; "
            "or set `OTEL_SDK_DISABLED=true`",
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
    hint = f"did you mean `{close[0]}`?" if close else "see `docs/reference/settings.md` for all settings"
    return StartRefused(f"unknown setting `{name}`", hint=hint)


def _read(path: Path) -> dict[str, Any]:
    """The values of a settings file. SPEAR's `mcp.registry_dir` is an alias of `mcp_registry_dir`."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise StartRefused(f"cannot read settings from `{path}`: {exc}") from exc
    section = values.pop("mcp", {})
    if not isinstance(section, dict):
        raise _unknown("mcp")
    # A quoted TOML key is one name with a dot in it. It is the same setting.
    section |= {name[4:]: values.pop(name) for name in [*values] if name.startswith("mcp.")}
    for name, value in section.items():
        if name not in REGISTRY_DIR_NAMES:
            raise _unknown(f"mcp.{name}")
        values["mcp_registry_dir"] = value
    return values
