"""Server-sent events, as far as the gateway sends them: an id, a name, and JSON on data lines."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class Event(NamedTuple):
    """One event."""

    id: str
    name: str
    data: Any


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """The events in the lines of a stream. Comments, which only keep it open, are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                name = fields.get("event", "message")
                yield Event(fields.get("id", ""), name, json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[field] = f"{fields[field]}\n{value}" if field == "data" and field in fields else value
