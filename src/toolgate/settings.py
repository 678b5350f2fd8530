"""Everything an operator can set. The field docstrings become the reference page.

Loaded once by the composition root, which hands each part the few values it needs.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from toolgate.errors import StartRefused
from toolgate.model.tasks import Environment

PREFIX: Final = "TOOLGATE_"
ALIASES: Final = {"SMS_MCP_REGISTRY_DIR": "mcp_registry_dir"}
LogLevel = Literal["debug", "info", "warning", "error"]


class Settings(BaseModel):
    """The configuration, checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    listen: str = "127.0.0.1:8080"
    """Address and port to bind. Anything but loopback needs keys. Port 0 takes a free one."""

    data_dir: Path = Path(".toolgate")
    """Where the registry, the audit log and the session key live. Made on first start, for its owner only."""

    mcp_registry_dir: Path | None = None
    """Directory of server files (`*.toml`, `*.json`), loaded at start and whenever one changes."""

    registry_recursive: bool = False
    """Whether to look for server files in sub-directories too."""

    strict: bool = False
    """Refuse unknown fields and any invalid server file instead of warning and going on."""

    environment: Environment = "prod"
    """Which selection of a profile applies: `dev`, `staging` or `prod`."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names clients may call this gateway by, besides its own address and loopback."""

    admin_key_file: Path | None = None
    """File that holds an administrator's key of at least 32 characters, for the first start off loopback."""

    trust_loopback: bool = True
    """Whether a caller without a key is the local administrator. Only ever so when bound to loopback."""

    secrets_dir: Path | None = None
    """Directory whose files are the secrets that `auth_ref` may name. Else they come from the environment."""

    allow_private_upstreams: bool = True
    """Whether servers may be registered on loopback and private networks."""

    max_tools: int = Field(default=128, ge=1, le=10_000)
    """The most tools one scope may show before it is refused."""

    max_definition_tokens: int | None = Field(default=None, ge=1)
    """The most tokens the definitions of one scope may cost. Unset: no limit."""

    max_children: int = Field(default=256, ge=1, le=10_000)
    """The most child processes this node may run at once."""

    drain_s: float = Field(default=10.0, ge=0, le=300)
    """How long a stopping node waits for calls in flight."""

    log_level: LogLevel = "info"
    """How much is logged: `debug`, `info`, `warning` or `error`."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        """A variable holds a list as text: names separated by commas."""
        return tuple(filter(None, value.split(","))) if isinstance(value, str) else value

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        parse_listen(value)
        return value

    @property
    def address(self) -> tuple[str, int]:
        return parse_listen(self.listen)

    @property
    def is_loopback(self) -> bool:
        host = self.address[0]
        return host == "localhost" or ipaddress.ip_address(host).is_loopback

    @property
    def is_everywhere(self) -> bool:
        """Bound to every address of the machine, none of which it can be called by for sure."""
        host = self.address[0]
        return host != "localhost" and ipaddress.ip_address(host).is_unspecified


def parse_listen(text: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT` or `[IPV6]:PORT`; the host is an address or `localhost`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"`{text}` is not HOST:PORT")
    if host != "localhost":
        ipaddress.ip_address(host)
    return host, int(port)


def load_settings(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read the file; variables named TOOLGATE_<FIELD> win over it, and `overrides` win over both.

    Raises StartRefused, naming the setting and what is wrong with it.
    """
    values = _read(path) if path is not None else {}
    names = Settings.model_fields
    for variable, field in ALIASES.items():
        if variable in environ:
            values[field] = environ[variable]
    values |= {name: environ[PREFIX + name.upper()] for name in names if PREFIX + name.upper() in environ}
    values |= {name: value for name, value in (overrides or {}).items() if value is not None}
    try:
        return Settings.model_validate(values)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise _unknown(where) from exc
        raise StartRefused(f"setting `{where}`: {first['msg'].removeprefix('Value error, ')}") from exc


def _unknown(name: str) -> StartRefused:
    close = get_close_matches(name, Settings.model_fields, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`docs/reference/settings.md` lists them all"
    return StartRefused(f"there is no setting `{name}`", hint=hint)


def _read(path: Path) -> dict[str, Any]:
    """A settings file. `[mcp] registry_dir` is an alias of `mcp_registry_dir`."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise StartRefused(f"cannot read settings from `{path}`: {exc}") from exc
    section = values.pop("mcp", {})
    if not isinstance(section, dict):
        raise _unknown("mcp")
    for name, value in section.items():
        if name != "registry_dir":
            raise _unknown(f"mcp.{name}")
        values["mcp_registry_dir"] = value
    return values
