"""A tool as a server defines it, kept as the bytes it came in, and what a server currently offers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from toolgate.model.effects import UNSTATED, Effects
from toolgate.model.names import ToolRef
from toolgate.model.servers import ServerRecord

ListState = Literal["pending", "ready", "env_missing", "list_timeout", "list_failed"]
Revision = Literal["legacy", "modern"]
ListKind = Literal["tools", "prompts", "resources", "templates"]
"""The lists of a server. A template stands for resources that are not listed one by one."""
FEATURES: Final = frozenset({"tools", "prompts", "resources", "completions", "logging"})
"""The capabilities of servers that the gateway knows what to do with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """One checked definition. `raw` is the server's own JSON object, unknown fields and all."""

    ref: ToolRef
    raw: bytes
    digest: str
    """SHA-256 over the canonical JSON of what a model or client acts on."""
    tokens: int
    """About how many tokens the definition costs a model."""
    native_name: str = ""
    """What its server calls it, where that is not a tool name and `ref` has an alias. Empty: as in `ref`."""
    description: str = ""
    is_legacy_safe: bool = True
    """Whether handshake-era clients accept it as it is."""
    effects: Effects = UNSTATED
    """What its annotations say that a call does."""
    param_headers: tuple[tuple[tuple[str, ...], str], ...] = ()
    """(argument path, header token) for each argument that modern HTTP mirrors as `Mcp-Param-*`."""

    @property
    def is_read_only(self) -> bool:
        """Whether its server says that it changes nothing: `readOnlyHint`, and no `destructiveHint`."""
        return self.effects.counts_as("read_only", is_deny=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A prompt, a resource or a resource template as its server lists it."""

    server_id: str
    name: str
    """The prompt's name, the resource's URI or the URI template."""
    raw: bytes
    """The server's own JSON object, unknown fields and all."""
    digest: str
    """SHA-256 over its canonical JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTools:
    """What one server offers as far as this node knows: the last good list, and how fresh it is."""

    record: ServerRecord
    state: ListState = "pending"
    tools: Mapping[str, ToolDefinition] = field(default_factory=lambda: MappingProxyType({}))
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Tool name → why its definition was refused. Prompts and resources stand here as policy names them."""
    prompts: Mapping[str, Listing] = field(default_factory=lambda: MappingProxyType({}))
    resources: Mapping[str, Listing] = field(default_factory=lambda: MappingProxyType({}))
    templates: Mapping[str, Listing] = field(default_factory=lambda: MappingProxyType({}))
    features: frozenset[str] = frozenset()
    """What the server announced when it was last connected, of FEATURES."""
    era: Revision | None = None
    """What the server spoke when it was last connected."""
    instructions: str = ""
    """What the server then said about itself, bounded."""
    is_stale: bool = False
    """Something here is last-known-good: the newest attempt to list it failed. `detail` says what."""
    detail: str = ""
    """For people: why the state is what it is."""
