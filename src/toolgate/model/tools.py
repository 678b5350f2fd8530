"""What servers offer: tools with their effects, listings, pins, and the snapshot that a node serves.

MCP lets a server annotate a tool with four hints. Each is true, false or absent, and two of them may
contradict each other. An allow pattern (`@read_only`) matches only stated effects; a deny pattern matches all
effects that are not ruled out. So an absent or contradictory hint always allows a caller less. A server
writes its own hints: only a pin ensures that they stay as approved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from toolgate.model.chat import ChatUpstream
from toolgate.model.names import ToolRef
from toolgate.model.principals import IntegrationChoice, Key
from toolgate.model.servers import EMPTY, RedactionRules, ServerRecord
from toolgate.model.tasks import Environment, Profile, Task

HINTS: Final[Mapping[str, str]] = {
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
    "read_only": "readOnlyHint",
}
"""The effects that patterns can name, and the annotation of each."""


class Effects(NamedTuple):
    """The effects of a tool by its definition. Equal annotations share one object."""

    stated: frozenset[str]
    """The effects that the tool has."""
    ruled_out: frozenset[str]
    """The effects that it does not have. An effect in neither set is unknown."""
    hints: tuple[tuple[str, bool], ...]
    """The annotations, for people."""

    def counts_as(self, effect: str, *, is_deny: bool) -> bool:
        """Whether a pattern for `effect` matches the tool. Only this method decides it."""
        return effect not in self.ruled_out if is_deny else effect in self.stated

    def describe(self, effect: str) -> str:
        """What the definition states about `effect`, for people."""
        hint = HINTS[effect]
        hints = dict(self.hints)
        if effect in _OPPOSITES and hints.get("readOnlyHint") and hints.get("destructiveHint"):
            return "the definition contradicts itself: `readOnlyHint: true`, `destructiveHint: true`"
        if hint in hints:
            return f"the definition says `{hint}: {str(hints[hint]).lower()}`"
        if effect in self.ruled_out:
            return "the definition says `readOnlyHint: true`"
        return f"the definition does not state `{hint}`"


_OPPOSITES: Final = frozenset({"destructive", "read_only"})


def read_effects(annotations: Mapping[str, Any]) -> Effects:
    """The effects by the `annotations` of a definition. Only true and false count as hints."""
    values = map(annotations.get, HINTS.values())
    return _derive_effects(tuple(value if isinstance(value, bool) else None for value in values))


@lru_cache(maxsize=81)  # four hints, each true, false or absent
def _derive_effects(values: tuple[bool | None, ...]) -> Effects:
    hints = dict(zip(HINTS, values, strict=True))
    stated = {effect for effect, value in hints.items() if value is True}
    ruled_out = {effect for effect, value in hints.items() if value is False}
    if stated >= _OPPOSITES:
        stated -= _OPPOSITES
    elif "read_only" in stated:
        # By MCP, `destructiveHint` is meaningful only if a tool is not read-only.
        ruled_out.add("destructive")
    return Effects(
        stated=frozenset(stated),
        ruled_out=frozenset(ruled_out),
        hints=tuple((HINTS[effect], value) for effect, value in hints.items() if value is not None),
    )


UNSTATED: Final = read_effects({})
"""For a tool without annotations, or without a definition."""


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
    """SHA-256 of the canonical JSON of the members that a model or client uses."""
    tokens: int
    """Estimated tokens of the definition."""
    native_name: str = ""
    """The server's name, if it is not a valid tool name and `ref` has an alias. Empty: as in `ref`."""
    description: str = ""
    is_legacy_safe: bool = True
    """Whether session-based clients accept it unchanged."""
    effects: Effects = UNSTATED
    """The effects by its annotations."""
    param_headers: tuple[tuple[tuple[str, ...], str], ...] = ()
    """(argument path, header token) of each argument that stateless HTTP mirrors as `Mcp-Param-*`."""

    @property
    def name(self) -> str:
        return self.ref.name

    @property
    def is_read_only(self) -> bool:
        """Whether its server states that it changes nothing: `readOnlyHint` without `destructiveHint`."""
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
    """SHA-256 of its canonical JSON."""


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
    """Its instructions from that connection, truncated to a limit."""
    is_stale: bool = False
    """Whether the last attempt to list it failed. `detail` has the reason."""
    detail: str = ""
    """The reason of the state, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The approved tools of a server: each is offered only with exactly this digest."""

    server_id: str
    tools: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of its definition. Other tools are not offered."""
    changed: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of the changed definition. The tool is quarantined until someone approves it,
    whatever its server lists meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The registry at one revision, with the last valid lists of every server."""

    serial: int = 0
    """Rises by one with every swap on this node; caches use it as a key."""
    revision: int = 0
    """The registry revision."""
    environment: Environment = "prod"
    redaction: RedactionRules = field(default_factory=RedactionRules)
    """The installation's redaction rules, for the arguments of every server."""
    servers: Mapping[str, ServerTools] = field(default_factory=lambda: MappingProxyType({}))
    tasks: Mapping[str, Task] = field(default_factory=lambda: MappingProxyType({}))
    profiles: Mapping[str, Profile] = field(default_factory=lambda: MappingProxyType({}))
    candidates: frozenset[str] = frozenset()
    """The profiles whose candidate the caller has, by `policy.rollouts`. Empty in a node's own snapshot."""
    keys: Mapping[str, Key] = field(default_factory=lambda: MappingProxyType({}))
    pins: Mapping[str, Pin] = field(default_factory=lambda: MappingProxyType({}))
    chat_upstreams: Mapping[str, ChatUpstream] = field(default_factory=lambda: MappingProxyType({}))
    choices: Mapping[str, IntegrationChoice] = field(default_factory=lambda: MappingProxyType({}))
    """By `make_choice_id` of their callers."""
