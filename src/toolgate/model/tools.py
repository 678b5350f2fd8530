"""What a server offers: the definitions of tools as the bytes they came in, listings, and their state."""

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
"""The lists of a server. A template is for resources that are not listed one by one."""
FEATURES: Final = frozenset({"tools", "prompts", "resources", "completions", "logging"})
"""The capabilities of servers that the gateway supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """One valid definition. `raw` is the server's own JSON object with all its members."""

    ref: ToolRef
    raw: bytes
    digest: str
    """SHA-256 over the canonical JSON of the members that a model or client uses."""
    tokens: int
    """Estimated tokens of the definition."""
    native_name: str = ""
    """The server's name, if it is not a tool name and `ref` has an alias. Empty: as in `ref`."""
    description: str = ""
    is_legacy_safe: bool = True
    """Whether session-based clients accept it unchanged."""
    effects: Effects = UNSTATED
    """The effects by its annotations."""
    param_headers: tuple[tuple[tuple[str, ...], str], ...] = ()
    """(argument path, header token) of each argument that stateless HTTP mirrors as `Mcp-Param-*`."""

    @property
    def is_read_only(self) -> bool:
        """Whether its server states that it changes nothing: `readOnlyHint`, and no `destructiveHint`."""
        return self.effects.counts_as("read_only", is_deny=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A prompt, resource or resource template of a server."""

    server_id: str
    name: str
    """The prompt's name, the resource's URI or the URI template."""
    raw: bytes
    """The server's own JSON object with all its members."""
    digest: str
    """SHA-256 over its canonical JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTools:
    """The last valid lists of one server on this node, and their state."""

    record: ServerRecord
    state: ListState = "pending"
    tools: Mapping[str, ToolDefinition] = field(default_factory=lambda: MappingProxyType({}))
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name → why its definition is quarantined. Prompts and resources have their prefix."""
    prompts: Mapping[str, Listing] = field(default_factory=lambda: MappingProxyType({}))
    resources: Mapping[str, Listing] = field(default_factory=lambda: MappingProxyType({}))
    templates: Mapping[str, Listing] = field(default_factory=lambda: MappingProxyType({}))
    features: frozenset[str] = frozenset()
    """The FEATURES that the server declared when it was last connected."""
    era: Revision | None = None
    """Its protocol revision when it was last connected."""
    instructions: str = ""
    """Its instructions then, bounded."""
    is_stale: bool = False
    """Whether the newest attempt to list it failed. `detail` has the reason."""
    detail: str = ""
    """The reason of the state, for people."""
