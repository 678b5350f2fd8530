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


class CallStarted(msgspec.Struct, frozen=True, gc=False, tag="start", tag_field="type", omit_defaults=True):
    """A call that is about to be sent: recorded first, so that nothing runs unrecorded.

    Its end is a CallRecorded with the number of this event.
    """

    at_ms: Number
    door: str
    principal: str
    tool: str
    server_id: str
    task_id: str = ""
    session: str = ""
    request_id: str = ""
    layer: str = ""
    rule: str = ""
    revision: Number = 0
    definition: str = ""
    argument_bytes: Number = 0
    arguments: msgspec.Raw = NO_ARGUMENTS
    shadow: str = ""
    trace_id: str = ""
    profile: str = ""


class CallEnded(msgspec.Struct, frozen=True, gc=False, tag="call", tag_field="type", omit_defaults=True):
    """The end of a call that was sent. With the members of its CallStarted it is a CallRecorded."""

    at_ms: Number
    outcome: Outcome
    start: Number
    code: str = ""
    duration_us: Number = 0
    result_bytes: Number = 0
    result_tokens: Number = 0


class CallRecorded(msgspec.Struct, frozen=True, gc=False, tag="call", tag_field="type", omit_defaults=True):
    """One requested call: the caller, the tool, the outcome."""

    at_ms: Number
    door: str
    principal: str
    tool: str
    """Its name at the server; of an unknown tool, what the caller sent: never trusted."""
    outcome: Outcome
    server_id: str = ""
    task_id: str = ""
    session: str = ""
    request_id: str = ""
    code: str = ""
    """The error code, if it failed."""
    layer: str = ""
    rule: str = ""
    """The layer and rule that admitted or denied it."""
    revision: Number = 0
    definition: str = ""
    """Digest of the definition the caller was shown."""
    duration_us: Number = 0
    argument_bytes: Number = 0
    result_bytes: Number = 0
    start: Number = 0
    """The number of its CallStarted; 0 if nothing was sent."""
    arguments: msgspec.Raw = NO_ARGUMENTS
    """Redacted: one JSON object."""
    result_tokens: Number = 0
    """Estimated tokens of its result."""
    shadow: str = ""
    """The rule that would have denied it if its task's policy were enforced."""
    trace_id: str = ""
    """Of the OpenTelemetry trace it is part of."""
    profile: str = ""
    """The versions of profiles that decided, like `code-review@4`, separated by spaces."""


class AdminRecorded(msgspec.Struct, frozen=True, tag="admin", tag_field="type", omit_defaults=True):
    """One change of a record, or another action of an admin."""

    at_ms: Number
    principal: str
    operation: str
    kind: str
    record_id: str
    revision: Number = 0


class CredentialRefused(msgspec.Struct, frozen=True, tag="credential", tag_field="type", omit_defaults=True):
    """An invalid credential was presented. Nothing of it is recorded."""

    at_ms: Number
    peer: str
    """The address it came from."""
    code: str


class DefinitionChanged(msgspec.Struct, frozen=True, tag="definition", tag_field="type", omit_defaults=True):
    """A tool differs from its approved definition. It is quarantined until it is approved again."""

    at_ms: Number
    server_id: str
    tool: str
    approved: str
    """Digest of the definition in the server's pin."""
    found: str
    """Digest of the definition the server lists now."""


class InvocationEnded(msgspec.Struct, frozen=True, tag="invocation", tag_field="type", omit_defaults=True):
    """A run of a task ended on this node. Its calls have its id as their session."""

    at_ms: Number
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


class ApprovalRecorded(msgspec.Struct, frozen=True, tag="approval", tag_field="type", omit_defaults=True):
    """One step of an approval: requested, decided, used, or expired without a decision."""

    at_ms: Number
    approval_id: str
    state: ApprovalStep
    principal: str
    """The caller."""
    task_id: str
    server_id: str
    tool: str
    decided_by: str = ""
    reason: str = ""


class ProcessSpawned(msgspec.Struct, frozen=True, tag="spawn", tag_field="type", omit_defaults=True):
    """A process is about to be started for a server: recorded first."""

    at_ms: Number
    server_id: str
    command: str
    """The program and its arguments as in the record: references to secrets are not resolved."""
    reason: Literal["start", "trial"] = "start"
    package: str = ""
    """SHA-256 of the package it comes from."""


class TokensCounted(msgspec.Struct, frozen=True, tag="tokens", tag_field="type", omit_defaults=True):
    """The tokens of a task's lists and results since the last such event of this process."""

    at_ms: Number
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


class ScopeOffered(msgspec.Struct, frozen=True, tag="scope", tag_field="type", omit_defaults=True):
    """What a caller was offered, in a list or to a model, if it differs from the last time.

    The counts are complete; names are cut to those that fit.
    """

    at_ms: Number
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


class SessionEnded(msgspec.Struct, frozen=True, tag="session", tag_field="type", omit_defaults=True):
    """A session ended on this node, or a chat whose tools were run here: its totals."""

    at_ms: Number
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
