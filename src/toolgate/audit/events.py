"""Audit events: calls, denials, offered scopes, changes, runs, approvals, sessions and processes.

Arguments are redacted. Of a result, only its size and tokens are recorded.
"""

from typing import Annotated, Final, Literal

import msgspec

from toolgate.model.json_text import NO_ARGUMENTS

Outcome = Literal["ok", "tool_error", "error", "denied", "cancelled", "unknown"]
"""`unknown`: the process ended before the call did."""
ApprovalStep = Literal["asked", "approved", "denied", "expired", "used"]
MAX_NUMBER: Final = 2**53  # the end of the integers that every JSON reader has (RFC 8259, section 6)
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
"""Numbers of logs that other processes wrote: checked where they are read."""


class _Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    at_ms: Number


class _CallFields(_Event, frozen=True, gc=False):
    """The members that the start of a call and its end both have."""

    door: str
    principal: str
    tool: str
    """Its name at the server; of an unknown tool, what the caller sent: never trusted."""
    server_id: str = ""
    task_id: str = ""
    session: str = ""
    request_id: str = ""
    layer: str = ""
    rule: str = ""
    """The layer and rule that admitted or denied it."""
    revision: Number = 0
    definition: str = ""
    """Digest of the definition the caller was shown."""
    argument_bytes: Number = 0
    arguments: msgspec.Raw = NO_ARGUMENTS
    """Redacted: one JSON object."""
    shadow: str = ""
    """The rule that would have denied it if its task's policy were enforced."""
    trace_id: str = ""
    """Of the OpenTelemetry trace it is part of."""
    profile: str = ""
    """The versions of profiles that decided, like `code-review@4`, separated by spaces."""


class CallStarted(_CallFields, frozen=True, tag="start"):
    """A call that is about to be sent: recorded first, so that nothing runs unrecorded.

    Its end is a CallRecorded with the number of this event.
    """


class CallEnded(_Event, frozen=True, gc=False, tag="call"):
    """The end of a call that was sent. With the members of its CallStarted it is a CallRecorded."""

    outcome: Outcome
    start: Number
    code: str = ""
    duration_us: Number = 0
    result_bytes: Number = 0
    result_tokens: Number = 0


class CallRecorded(_CallFields, frozen=True, tag="call", kw_only=True):
    """One requested call: the caller, the tool, the outcome."""

    outcome: Outcome
    start: Number = 0
    """The number of its CallStarted; 0 if nothing was sent."""
    code: str = ""
    """The error code, if it failed."""
    duration_us: Number = 0
    result_bytes: Number = 0
    result_tokens: Number = 0
    """Estimated tokens of its result."""


class AdminRecorded(_Event, frozen=True, tag="admin"):
    """One change of a record, or another action of an admin."""

    principal: str
    operation: str
    kind: str
    record_id: str
    revision: Number = 0


class CredentialRefused(_Event, frozen=True, tag="credential"):
    """An invalid credential was presented. Nothing of it is recorded."""

    peer: str
    """The address it came from."""
    code: str


class DefinitionChanged(_Event, frozen=True, tag="definition"):
    """A tool differs from its approved definition. It is quarantined until it is approved again."""

    server_id: str
    tool: str
    approved: str
    """Digest of the definition in the server's pin."""
    found: str
    """Digest of the definition the server lists now."""


class InvocationEnded(_Event, frozen=True, tag="invocation"):
    """A run of a task ended on this node. Its calls have its id as their session."""

    principal: str
    task_id: str
    invocation_id: str
    attempt: Number
    state: str
    ended_by: str
    module: str = ""
    """SHA-256 of the module; empty if it was not run."""
    duration_ms: Number = 0
    tool_calls: Number = 0


class ApprovalRecorded(_Event, frozen=True, tag="approval"):
    """One step of an approval: requested, decided, used, or expired without a decision."""

    approval_id: str
    state: ApprovalStep
    principal: str
    """The caller."""
    task_id: str
    server_id: str
    tool: str
    decided_by: str = ""
    reason: str = ""


class ProcessSpawned(_Event, frozen=True, tag="spawn"):
    """A process is about to be started for a server: recorded first."""

    server_id: str
    command: str
    """The program and its arguments as in the record: references to secrets are not resolved."""
    reason: Literal["start", "trial"] = "start"
    package: str = ""
    """SHA-256 of the package it comes from."""


class TokensCounted(_Event, frozen=True, tag="tokens"):
    """The tokens of a task's lists and results since the last such event of this process."""

    task_id: str
    """Empty: of callers without a task."""
    lists: Number = 0
    definition_tokens: Number = 0
    """Of the definitions in those lists."""
    full_tokens: Number = 0
    """Of the definitions of all registered tools, had they been listed."""
    calls: Number = 0
    result_tokens: Number = 0


class Exclusion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server, or one of its tools, prompts or resources, that is not in a scope."""

    server_id: str
    reason: str
    layer: str
    rule: str
    tool: str = ""
    """Empty: the whole server."""


class AppliedFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """An allowlist, or a denylist, that a layer applies to all servers of a scope."""

    layer: str
    rule: str
    patterns: tuple[str, ...]
    """The first of them."""
    is_deny: bool = False


class ScopeOffered(_Event, frozen=True, tag="scope"):
    """What a caller was offered, in a list or to a model, if it differs from the last time.

    The counts are complete; names are cut to those that fit.
    """

    door: str
    principal: str
    scope: str
    """SHA-256 over everything in the scope with its definitions."""
    mode: str
    """`list`, or `find`: tools are searched instead of listed."""
    servers: Number
    tools: Number
    prompts: Number
    resources: Number
    tokens: Number
    """Of the list."""
    excluded: Number
    """Servers and names outside the scope, without the servers that a list of ids leaves out."""
    task_id: str = ""
    server_id: str = ""
    """Of a list at a single server's path."""
    revision: Number = 0
    effective_servers: tuple[str, ...] = ()
    """The first of the servers, including those that have not listed their tools."""
    filters: tuple[AppliedFilter, ...] = ()
    """The first of the tool filters of key, task and request."""
    offered: tuple[str, ...] = ()
    """The first of the tools."""
    reasons: dict[str, Number] = {}
    """How many are excluded for each reason."""
    exclusions: tuple[Exclusion, ...] = ()
    """The first of the excluded."""
    profile: str = ""
    """As in a call."""


class SessionEnded(_Event, frozen=True, tag="session"):
    """A session ended on this node, or a chat whose tools were run here: its totals."""

    door: str
    principal: str
    ended_by: str
    """Of a session: `deleted`, `closed`, `idle`, `displaced`, `key_changed` or `shutdown`. Of a chat:
    its outcome."""
    session: str = ""
    request_id: str = ""
    """Of a chat: the same as in its calls."""
    task_id: str = ""
    duration_ms: Number = 0
    tool_calls: Number = 0
    rounds: Number = 0
    """Of a chat: rounds of tools. Of an MCP session: requests of servers to its client."""
    limits: dict[str, Number] = {}
    """How often each limit was hit."""


AuditEvent = (
    CallStarted
    | CallRecorded
    | AdminRecorded
    | CredentialRefused
    | DefinitionChanged
    | InvocationEnded
    | ApprovalRecorded
    | ProcessSpawned
    | TokensCounted
    | ScopeOffered
    | SessionEnded
)
