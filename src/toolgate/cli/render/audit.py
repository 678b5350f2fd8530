"""Events of the audit, a line each."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from toolgate.cli.render.layout import BAD, DIM, OK, WARN, cell, count_of, grid, render_time
from toolgate.model.json_text import encode_json

JsonObject = Mapping[str, Any]
MAX_ARGUMENTS: Final = 160
"""Characters of them in a line. Programs get all."""
MAX_WHO: Final = 24
"""Columns of a table for who it was: longer names go on below."""

_STYLES = {"ok": OK, "denied": WARN, "tool_error": BAD, "error": BAD, "cancelled": DIM, "unknown": BAD}


def render_events(events: Sequence[JsonObject]) -> RenderableType:
    """When, what came of it, who, and what it was."""
    if not events:
        return Text("nothing of that has happened")
    table = grid("WHEN (UTC)", "TYPE", "OUTCOME", "WHO", "WHAT*")
    who = table.columns[3]
    who.no_wrap, who.overflow, who.max_width = False, "fold", MAX_WHO
    for event in events:
        table.add_row(*_cells(event))
    return table


def render_event(event: JsonObject) -> RenderableType:
    """The same of one, as it comes."""
    return Text("  ").join(one for one in _cells(event) if one)


def _cells(event: JsonObject) -> list[Text]:
    outcome = event["outcome"] or event["mode"] or event["state"] or event["operation"] or event["code"]
    if event["type"] == "spawn":
        outcome = event["reason"]
    elif event["type"] == "session":
        outcome = event["ended_by"]
    return [
        cell(render_time(event["at_ms"]), DIM),
        cell(event["type"]),
        cell(outcome, _STYLES.get(outcome or "", "")),
        cell(event["principal"] or event["peer"]),
        cell(" ".join(_what(event))),
    ]


def _what(event: JsonObject) -> list[str]:
    """What it was about, in the words that this type of event has."""
    tool = ".".join(filter(None, (event["server_id"], event["tool"])))
    parts = [event["kind"], event["record_id"], tool, event["invocation_id"], event["approval_id"]]
    parts += [event["command"], _scope(event) if event["type"] == "scope" else None]
    if event["type"] == "session":
        parts.append(_session(event))
    if event["duration_us"]:
        parts.append(f"{event['duration_us'] / 1000:.1f} ms")
    by = event["rule"] or event["decided_by"]
    parts += [event["code"] if event["outcome"] else None, by and f"by {by}"]
    parts += [event["shadow"] and f"would be denied by {event['shadow']}"]
    parts += [event["task_id"] and f"task {event['task_id']}", event["node"] and f"on {event['node']}"]
    parts += [event["reason"] if event["type"] == "approval" else None]
    parts += [event["arguments"] and _cut(encode_json(event["arguments"]))]
    return [str(part) for part in parts if part]


def _scope(event: JsonObject) -> str:
    """What was offered, and how much was not."""
    offered = f"{count_of(event['tools'], 'tool')} of {count_of(event['servers'], 'server')}"
    reasons = ", ".join(f"{reason} {many}" for reason, many in (event["reasons"] or {}).items())
    return f"{offered}, {event['excluded']} excluded: {reasons}" if reasons else offered


def _session(event: JsonObject) -> str:
    """What a session or a chat used."""
    used = f"{event['door']} {event['session'] or event['request_id']}:"
    totals = f"{count_of(event['tool_calls'], 'call')}, {count_of(event['rounds'], 'round')}"
    hits = ", ".join(f"{limit} {many}" for limit, many in (event["limits"] or {}).items())
    return f"{used} {totals}, limits hit: {hits}" if hits else f"{used} {totals}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}…"
