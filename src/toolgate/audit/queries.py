"""What can be asked of the index: which events, from where on, and how one is named."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, cast

from toolgate.audit.events import AuditEvent

EventType = Literal[
    "call", "admin", "credential", "definition", "invocation", "approval", "spawn", "scope", "session"
]
"""The tags of the events that are listed."""
MAX_KEY_CHARS: Final = 400
"""Of a text that events are looked up by. Longer ones are looked up by their beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events: those that have all of `equals`, from `since_ms` on, and before `until_ms`."""

    equals: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Column to value. An empty value means: those that have none."""
    since_ms: int | None = None
    until_ms: int | None = None


class Place(NamedTuple):
    """Where an event stands among all: by time, and of one moment by arrival."""

    at_ms: int
    position: int


class KeptEvent(NamedTuple):
    """An event as the index has it."""

    position: int
    """In the order of arrival. It only rises."""
    node: str
    log: str
    """Which log it is of: one a process and data directory."""
    seq: int
    event: AuditEvent

    @property
    def event_id(self) -> str:
        return f"{self.log}-{self.seq}"

    @property
    def type(self) -> EventType:
        return cast("EventType", self.event.__struct_config__.tag)

    @property
    def place(self) -> Place:
        return Place(self.event.at_ms, self.position)


def parse_event_id(text: str) -> tuple[str, int] | None:
    """Log and sequence; None where no event has such an id."""
    log, _, seq = text.partition("-")
    is_one = len(log) == LOG_CHARS and log.isalnum() and seq.isascii() and seq.isdigit() and len(seq) <= 15
    return (log, int(seq)) if is_one else None


LOG_CHARS: Final = 24
"""Of the name of a log."""
