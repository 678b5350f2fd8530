"""What happened, as this surface shows it: one flat shape for events of every type, and counts of calls."""

from typing import Any, Final

import msgspec

from toolgate.audit.events import AppliedFilter, Outcome, ScopeOffered
from toolgate.audit.index.activity import Activity
from toolgate.audit.queries import EventType, KeptEvent
from toolgate.surfaces.rest.shapes import Shown


class ExclusionShown(Shown, frozen=True, kw_only=True):
    """A server, or something it has, that a scope excludes."""

    server_id: str
    tool: str | None
    """Null: the whole server."""
    reason: str
    layer: str
    rule: str


class FilterShown(Shown, frozen=True, kw_only=True):
    """An allowlist, or a denylist, that a layer applies to all servers of a scope."""

    layer: str
    rule: str
    patterns: list[str]
    """The first of them."""
    is_deny: bool


class AuditShown(Shown, frozen=True, kw_only=True):
    """One event. What its type does not have, and what is empty, is null."""

    event_id: str
    seq: int
    """Its number in the log of the process that wrote it."""
    node: str
    """The node that wrote it; empty: the process that governs."""
    type: EventType
    at_ms: int
    door: str | None
    principal: str | None
    tool: str | None
    """Its own name, beside its server's; of what is unknown, what the caller wrote: never to be trusted."""
    outcome: Outcome | None
    server_id: str | None
    task_id: str | None
    session: str | None
    """Of calls that a run made: the id of the run."""
    request_id: str | None
    code: str | None
    layer: str | None
    rule: str | None
    """The layer and rule that admitted or denied it."""
    revision: int | None
    definition: str | None
    """Digest of the definition the caller was shown."""
    duration_us: int | None
    argument_bytes: int | None
    result_bytes: int | None
    start: int | None
    """The `seq` of the line that said, before the call was sent, that it was about to be."""
    arguments: dict[str, Any] | None
    """What the rules of redaction leave of them."""
    result_tokens: int | None
    """What its result costs a model, by estimate."""
    shadow: str | None
    """The rule that would have denied it, were the policy of its task enforced."""
    trace_id: str | None
    """Of the OpenTelemetry trace it is part of."""
    operation: str | None
    kind: str | None
    record_id: str | None
    peer: str | None
    approved: str | None
    """Digest of the definition that was approved."""
    found: str | None
    """Digest of the definition in its place."""
    invocation_id: str | None
    attempt: int | None
    state: str | None
    """How a run ended, or which step an approval took."""
    ended_by: str | None
    module: str | None
    duration_ms: int | None
    tool_calls: int | None
    rounds: int | None
    """Of a chat that ended: rounds of tools. Of an MCP session: requests of servers to its client."""
    limits: dict[str, int] | None
    """Of a session or a chat that ended: how often each limit was hit."""
    approval_id: str | None
    decided_by: str | None
    reason: str | None
    """Why an approval was given or not; what a process was started for: `start`, or `trial`."""
    command: str | None
    """Of a process: the program and its arguments, with references to secrets as they are in the record."""
    package: str | None
    """SHA-256 of the package that a process comes from."""
    scope: str | None
    """SHA-256 over everything a caller was offered, with its definitions."""
    mode: str | None
    """Of an offered scope: `list`, or `find` where its tools are found and not listed."""
    servers: int | None
    tools: int | None
    prompts: int | None
    resources: int | None
    tokens: int | None
    """What the list of an offered scope costs a model."""
    excluded: int | None
    """How many servers and names an offered scope excludes."""
    effective_servers: list[str] | None
    """The first of the servers of an offered scope, also of those whose tools are not known yet."""
    filters: list[FilterShown] | None
    """The first of the tool filters that key, task and request apply."""
    offered: list[str] | None
    """The first of the offered tools."""
    reasons: dict[str, int] | None
    """How many are excluded for each reason."""
    exclusions: list[ExclusionShown] | None
    """The first of the excluded."""
    profile: str | None
    """The versions of profiles that decided, like `code-review@4`, separated by spaces."""


class AuditAnswer(Shown, frozen=True, kw_only=True):
    """A page of events, the newest first."""

    events: list[AuditShown]
    next_cursor: str | None = None
    """For the page after this one, where there is one."""


class AuditStoryAnswer(Shown, frozen=True, kw_only=True):
    """One event, and what happened around it."""

    event: AuditShown
    around: list[AuditShown]
    """The others of the same session, run, request or approval, in order: the nearest hundred before it and
    the nearest hundred after it."""


COLUMNS: Final = AuditShown.__struct_fields__
"""In order."""
_NOTHING: Final[dict[str, Any]] = dict.fromkeys(COLUMNS)


def show_event(kept: KeptEvent) -> AuditShown:
    """One event."""
    event = kept.event
    members = {name: value for name in event.__struct_fields__ if (value := getattr(event, name)) != ""}
    named = {"event_id": kept.event_id, "seq": kept.seq, "node": kept.node, "type": kept.type}
    if "arguments" in members:
        named["arguments"] = _show_arguments(members["arguments"])
    if isinstance(event, ScopeOffered):
        named |= {
            "effective_servers": list(event.effective_servers),
            "filters": [_show_filter(one) for one in event.filters],
            "offered": list(event.offered),
            "exclusions": _show_exclusions(event),
        }
    return AuditShown(**_NOTHING | members | named)


def _show_filter(one: AppliedFilter) -> FilterShown:
    return FilterShown(layer=one.layer, rule=one.rule, patterns=list(one.patterns), is_deny=one.is_deny)


def _show_exclusions(event: ScopeOffered) -> list[ExclusionShown]:
    return [
        ExclusionShown(
            server_id=one.server_id, tool=one.tool or None, reason=one.reason, layer=one.layer, rule=one.rule
        )
        for one in event.exclusions
    ]


def _show_arguments(raw: msgspec.Raw) -> dict[str, Any] | None:
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):  # a number that no program has, or too deep
        return {"…": bytes(raw).decode(errors="replace")}


class ActivityBucket(Shown, frozen=True, kw_only=True):
    """One span of time."""

    at_ms: int
    """When it begins."""
    calls: int
    """Those that were admitted, however they ended."""
    errors: int
    """Of them, those that failed: outcomes `error` and `tool_error`."""
    denials: int
    """Calls that were not admitted."""


class ServerActivity(Shown, frozen=True, kw_only=True):
    """The calls of one server."""

    server_id: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float
    """Both within 5 %."""
    last_ms: int
    """When it was last called."""


class ToolActivity(Shown, frozen=True, kw_only=True):
    """The calls of one tool."""

    server_id: str
    tool: str
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float


class DenialCount(Shown, frozen=True, kw_only=True):
    """How often something was denied for one reason."""

    code: str
    layer: str
    rule: str
    count: int


class CallerActivity(Shown, frozen=True, kw_only=True):
    """The calls of one principal."""

    principal: str
    calls: int


class ActivityAnswer(Shown, frozen=True, kw_only=True):
    """Calls over time, and by whom and what."""

    since_ms: int
    until_ms: int
    bucket_ms: int
    buckets: list[ActivityBucket]
    servers: list[ServerActivity]
    """By id; the 1,000 with the most calls."""
    tools: list[ToolActivity]
    """The 20 slowest by `p95_ms`."""
    denials: list[DenialCount]
    """The 20 most frequent."""
    callers: list[CallerActivity]
    """The 20 with the most calls."""


def show_activity(found: Activity) -> ActivityAnswer:
    """All of it."""
    return ActivityAnswer(
        since_ms=found.since_ms,
        until_ms=found.until_ms,
        bucket_ms=found.bucket_ms,
        buckets=[ActivityBucket(**one._asdict()) for one in found.buckets],
        servers=[ServerActivity(**one._asdict()) for one in found.servers],
        tools=[ToolActivity(**one._asdict()) for one in found.tools],
        denials=[
            DenialCount(code=one.code, layer=one.layer, rule=one.rule, count=one.many)
            for one in found.denials
        ],
        callers=[CallerActivity(**one._asdict()) for one in found.callers],
    )
