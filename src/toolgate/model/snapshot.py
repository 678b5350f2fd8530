"""The immutable snapshot that a node serves from, and pins. A new snapshot replaces the old one as a
whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from toolgate.model.chat import ChatUpstream
from toolgate.model.principals import IntegrationChoice, Key
from toolgate.model.servers import EMPTY, RedactionRules
from toolgate.model.tasks import Environment, Profile, Task
from toolgate.model.tools import ServerTools


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The approved tools of a server: each is offered only with exactly this digest."""

    server_id: str
    tools: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of its definition. Other tools are not offered."""
    changed: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of the definition that was found in place of the approved one. Such a tool is
    quarantined until it is approved again, whatever its server lists then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The registry at one revision, with the last valid lists of every server."""

    serial: int = 0
    """Rises by one with every swap on this node; caches are keyed by it."""
    revision: int = 0
    """The registry revision."""
    environment: Environment = "prod"
    redaction: RedactionRules = field(default_factory=RedactionRules)
    """The installation's rules, for the arguments of every server."""
    servers: Mapping[str, ServerTools] = field(default_factory=lambda: MappingProxyType({}))
    tasks: Mapping[str, Task] = field(default_factory=lambda: MappingProxyType({}))
    profiles: Mapping[str, Profile] = field(default_factory=lambda: MappingProxyType({}))
    candidates: frozenset[str] = frozenset()
    """The profiles whose candidate the caller has, by `policy.rollouts`. Empty in a node's own snapshot."""
    keys: Mapping[str, Key] = field(default_factory=lambda: MappingProxyType({}))
    pins: Mapping[str, Pin] = field(default_factory=lambda: MappingProxyType({}))
    chat_upstreams: Mapping[str, ChatUpstream] = field(default_factory=lambda: MappingProxyType({}))
    choices: Mapping[str, IntegrationChoice] = field(default_factory=lambda: MappingProxyType({}))
    """By `make_choice_id` their callers."""
