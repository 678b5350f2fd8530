"""Audit events: calls, denials, offered scopes, changes, invocations, approvals, sessions and processes.

Arguments are redacted. Results are not recorded, only their size and tokens.
"""

from typing import Annotated, Final, Literal

import msgspec

from toolgate.model.json_text import NO_ARGUMENTS

Outcome = Literal["ok", "tool_error", "error", "denied", "cancelled", "unknown"]
"""`unknown`: the process ended before the call did."""
ApprovalStep = Literal["asked", "approved", "denied", "expired", "used"]
MAX_NUMBER: Final = 2**53  # the end of the integers that every JSON reader has (RFC 8259, section 6)
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
"""Numbers in logs that other processes wrote: checked when they are read."""


class _Event(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    at_ms: Number


class _CallFields(_Event, frozen=True, gc=False):
    """The members that the start and the end of a call share."""

    door: str
    principal: str
    tool: str
    """The name on the server. For an unknown tool, the name that the caller sent: never trusted."""
    server_id: str = ""
    task_id: str = ""
    session: str = ""
    request_id: str = ""
    layer: str = ""
    rule: str = ""
    """The layer and rule that allowed or denied it."""
    revision: Number = 0
    definition: str = ""
    """Digest of the definition the caller was shown."""
    argument_bytes: Number = 0
    arguments: msgspec.Raw = NO_ARGUMENTS
    """One JSON object, redacted."""
    shadow: str = ""
    """The rule that would have denied it if its task's policy were enforced."""
    trace_id: str = ""
    """The OpenTelemetry trace it belongs to."""
    profile: str = ""
    """The profile versions that applied, like `code-review@4`, separated by spaces."""


class CallStarted(_CallFields, frozen=True, tag="start"):
    """The start of a call, recorded before it is sent, so that no call runs unrecorded.

    Its end is a CallRecorded with the number of this event.
    """


class CallEnded(_Event, frozen=True, gc=False, tag="call"):
    """The end of a sent call. With the members of its CallStarted it is a CallRecorded."""

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
    """A caller sent an invalid credential. Nothing of the credential is recorded."""

    peer: str
    """The address of the caller."""
    code: str


class DefinitionChanged(_Event, frozen=True, tag="definition"):
    """A tool differs from its approved definition. It is quarantined until someone approves it."""

    server_id: str
    tool: str
    approved: str
    """Digest of the definition in the server's pin."""
    found: str
    """Digest of the definition the server lists now."""


class InvocationEnded(_Event, frozen=True, tag="invocation"):
    """An invocation ended on this node. Its calls have its id as their session."""

    principal: str
    task_id: str
    invocation_id: str
    attempt: Number
    state: str
    ended_by: str
    module: str = ""
    """SHA-256 of the module; empty if it did not run."""
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
    """A process for a server, recorded before it is started."""

    server_id: str
    command: str
    """The program and its arguments as in the record, with unresolved references to secrets."""
    reason: Literal["start", "trial"] = "start"
    package: str = ""
    """SHA-256 of the package it runs from."""


class TokensCounted(_Event, frozen=True, tag="tokens"):
    """The tokens of a task's lists and results since the previous such event of this process."""

    task_id: str
    """Empty: callers without a task."""
    lists: Number = 0
    definition_tokens: Number = 0
    """Tokens of the definitions in these lists."""
    full_tokens: Number = 0
    """Tokens that these lists would have had with the definitions of all registered tools."""
    calls: Number = 0
    result_tokens: Number = 0


class Exclusion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server, tool, prompt or resource that is not in a scope."""

    server_id: str
    reason: str
    layer: str
    rule: str
    tool: str = ""
    """Empty: the whole server."""


class AppliedFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """An allowlist or denylist that a layer applies to all servers of a scope."""

    layer: str
    rule: str
    patterns: tuple[str, ...]
    """The first patterns."""
    is_deny: bool = False


class ScopeOffered(_Event, frozen=True, tag="scope"):
    """The scope that a caller was offered, in a list or to a model, if it differs from the last one.

    The counts are complete; lists of names are truncated to fit.
    """

    door: str
    principal: str
    scope: str
    """SHA-256 of everything in the scope, including definitions."""
    mode: str
    """`list`, or `find` if clients search the tools instead of listing them."""
    servers: Number
    tools: Number
    prompts: Number
    resources: Number
    tokens: Number
    """Tokens of the list."""
    excluded: Number
    """The number of excluded servers and names, without the servers that a list of ids excludes."""
    task_id: str = ""
    server_id: str = ""
    """For a list at the path of a single server."""
    revision: Number = 0
    effective_servers: tuple[str, ...] = ()
    """The first servers, including servers that have not listed their tools."""
    filters: tuple[AppliedFilter, ...] = ()
    """The first tool filters of key, task and request."""
    offered: tuple[str, ...] = ()
    """The first tools."""
    reasons: dict[str, Number] = {}
    """The number of exclusions for each reason."""
    exclusions: tuple[Exclusion, ...] = ()
    """The first exclusions."""
    profile: str = ""
    """As in calls."""


class SessionEnded(_Event, frozen=True, tag="session"):
    """The totals of a session that ended on this node, or of a chat whose tools the gateway ran."""

    door: str
    principal: str
    ended_by: str
    """For a session: `deleted`, `closed`, `idle`, `displaced`, `key_changed` or `shutdown`. For a chat: its
    outcome."""
    session: str = ""
    request_id: str = ""
    """For a chat: the same as in its calls."""
    task_id: str = ""
    duration_ms: Number = 0
    tool_calls: Number = 0
    rounds: Number = 0
    """For a chat: rounds with tool calls. For an MCP session: requests of servers to its client."""
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
