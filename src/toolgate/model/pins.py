"""Pins: which definitions of a server were looked at and approved."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolgate.model.servers import EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A server whose tools are offered only as they were approved: by name, with exactly this digest."""

    server_id: str
    tools: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of its definition. A tool that is not named here is not offered."""
    changed: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Tool name → SHA-256 of the definition that was found in place of the approved one. Such a tool is not
    offered until it is approved again, whatever its server lists by then."""
