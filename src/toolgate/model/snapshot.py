"""Pins: which definitions of a server were looked at and approved.

The immutable picture a node serves from. A new one replaces it whole; nobody edits it.
"""

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
    """A server whose tools are offered only as they were approved: by name, with exactly this digest."""

    server_id: str
    tools: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of its definition. A tool that is not named here is not offered."""
    changed: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of the definition that was found in place of the approved one. Such a tool is not
    offered until it is approved again, whatever its server lists by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Registry at one revision, with the last good tools of every server."""

    serial: int = 0
    """Rises by one with every swap on this node; caches are keyed by it."""
    revision: int = 0
    """The registry revision it shows."""
    environment: Environment = "prod"
    redaction: RedactionRules = field(default_factory=RedactionRules)
    """Of the installation: what is hidden of every server's arguments."""
    servers: Mapping[str, ServerTools] = field(default_factory=lambda: MappingProxyType({}))
    tasks: Mapping[str, Task] = field(default_factory=lambda: MappingProxyType({}))
    profiles: Mapping[str, Profile] = field(default_factory=lambda: MappingProxyType({}))
    candidates: frozenset[str] = frozenset()
    """Profiles of which the caller in question has the candidate. Empty in what a node serves to all: see
    `policy/rollouts`."""
    keys: Mapping[str, Key] = field(default_factory=lambda: MappingProxyType({}))
    pins: Mapping[str, Pin] = field(default_factory=lambda: MappingProxyType({}))
    chat_upstreams: Mapping[str, ChatUpstream] = field(default_factory=lambda: MappingProxyType({}))
    choices: Mapping[str, IntegrationChoice] = field(default_factory=lambda: MappingProxyType({}))
    """By `make_choice_id` their callers."""
