"""What is written down of calls, denials, offered scopes, changes, runs, approvals and processes.

Of arguments, what the rules of redaction leave; of results, their size and what they cost.
"""

from typing import Annotated, Final, Literal

import msgspec

from toolgate.model.json_text import NO_ARGUMENTS

Outcome = Literal["ok", "tool_error", "error", "denied", "cancelled", "unknown"]
"""`unknown`: the call was begun, and the process ended before it did."""
ApprovalStep = Literal["asked", "approved", "denied", "expired", "used"]


MAX_NUMBER: Final = 2**53
Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
"""What a log that came from elsewhere may say: checked where it is read."""


class CallStarted(msgspec.Struct, frozen=True, gc=False, tag="start", tag_field="type", omit_defaults=True):
    """A call that is about to be sent: written before it is, so that nothing runs of which nothing is known.

    What came of it is a CallRecorded with this one's number.
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
    """What came of a call that was sent. With what its CallStarted says, it is a CallRecorded."""

    at_ms: Number
    outcome: Outcome
    start: Number
    code: str = ""
    duration_us: Number = 0
    result_bytes: Number = 0
    result_tokens: Number = 0


class CallRecorded(msgspec.Struct, frozen=True, gc=False, tag="call", tag_field="type", omit_defaults=True):
    """One call that was asked for: who, which tool, what came of it."""

    at_ms: Number
    door: str
    principal: str
    tool: str
    """Its own name, beside its server's; of what is unknown, what its caller wrote: never trusted."""
    outcome: Outcome
    server_id: str = ""
    task_id: str = ""
    session: str = ""
    request_id: str = ""
    code: str = ""
    """The error code, where there is one."""
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
    """The number of its CallStarted; 0 where nothing was sent."""
    arguments: msgspec.Raw = NO_ARGUMENTS
    """Redacted: one JSON object."""
    result_tokens: Number = 0
    """What its result costs a model, by estimate."""
    shadow: str = ""
    """The rule that would have denied it, were its task's policy enforced."""
    trace_id: str = ""
    """Of the OpenTelemetry trace it is part of."""
    profile: str = ""
    """The versions of profiles that decided, like `code-review@4`, separated by spaces."""


class AdminRecorded(msgspec.Struct, frozen=True, tag="admin", tag_field="type", omit_defaults=True):
    """One change to what is governed."""

    at_ms: Number
    principal: str
    operation: str
    kind: str
    record_id: str
    revision: Number = 0


class CredentialRefused(msgspec.Struct, frozen=True, tag="credential", tag_field="type", omit_defaults=True):
    """A credential that proves nothing was shown. Nothing of it is kept."""

    at_ms: Number
    peer: str
    """The address it came from."""
    code: str


class DefinitionChanged(msgspec.Struct, frozen=True, tag="definition", tag_field="type", omit_defaults=True):
    """A tool is no longer what was approved. It is not offered until somebody approves it again."""

    at_ms: Number
    server_id: str
    tool: str
    approved: str
    """Digest of the definition in the server's pin."""
    found: str
    """Digest of the definition the server lists now."""


class InvocationEnded(msgspec.Struct, frozen=True, tag="invocation", tag_field="type", omit_defaults=True):
    """One run of a task is over on this node. In the records of its calls, its id is the session."""

    at_ms: Number
    principal: str
    task_id: str
    invocation_id: str
    attempt: Number
    state: str
    ended_by: str
    module: str = ""
    """SHA-256 of what was run; empty where it did not come to that."""
    duration_ms: Number = 0
    tool_calls: Number = 0


class ApprovalRecorded(msgspec.Struct, frozen=True, tag="approval", tag_field="type", omit_defaults=True):
    """One step of an approval: it was asked for, decided on, used up, or nobody decided in time."""

    at_ms: Number
    approval_id: str
    state: ApprovalStep
    principal: str
    """Who asked."""
    task_id: str
    server_id: str
    tool: str
    decided_by: str = ""
    reason: str = ""


class ProcessSpawned(msgspec.Struct, frozen=True, tag="spawn", tag_field="type", omit_defaults=True):
    """A process is about to be started for a server: written before it is."""

    at_ms: Number
    server_id: str
    command: str
    """The program and its arguments as the record has them: references to secrets are not resolved."""
    reason: Literal["start", "trial"] = "start"
    package: str = ""
    """SHA-256 of the package it comes from."""


class TokensCounted(msgspec.Struct, frozen=True, tag="tokens", tag_field="type", omit_defaults=True):
    """What a task's lists and results cost models since the last such event of this process."""

    at_ms: Number
    task_id: str
    """Empty: of callers without a task."""
    lists: Number = 0
    definition_tokens: Number = 0
    """What the definitions in those lists cost."""
    full_tokens: Number = 0
    """What the definitions of all registered tools would have cost."""
    calls: Number = 0
    result_tokens: Number = 0


class Exclusion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A server, or something it has, that is not in a scope."""

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
    """What a caller was offered, in a list or to a model, when it differs from the last time.

    The counts are complete; of the names there are as many as fit.
    """

    at_ms: Number
    door: str
    principal: str
    scope: str
    """SHA-256 over everything in the scope with its definitions."""
    mode: str
    """`list`, or `find`: the tools are found and not listed."""
    servers: Number
    tools: Number
    prompts: Number
    resources: Number
    tokens: Number
    """What the list costs a model."""
    excluded: Number
    """Servers and names that are not in the scope. Servers that a list of ids leaves out are not counted."""
    task_id: str = ""
    server_id: str = ""
    """Of a list at a single server's path."""
    revision: Number = 0
    effective_servers: tuple[str, ...] = ()
    """The first of the servers, also of those whose tools are not known yet."""
    filters: tuple[AppliedFilter, ...] = ()
    """The first of the tool filters of key, task and request."""
    offered: tuple[str, ...] = ()
    """The first of the tools."""
    reasons: dict[str, Number] = {}
    """How many are excluded for each reason."""
    exclusions: tuple[Exclusion, ...] = ()
    """The first of the excluded."""
    profile: str = ""
    """As of a call."""


class SessionEnded(msgspec.Struct, frozen=True, tag="session", tag_field="type", omit_defaults=True):
    """A session is over on this node, or a chat whose tools were run here: what it has used in all."""

    at_ms: Number
    door: str
    principal: str
    ended_by: str
    """Of a session: `deleted`, `closed`, `idle`, `displaced`, `key_changed` or `shutdown`. Of a chat:
    its outcome."""
    session: str = ""
    request_id: str = ""
    """Of a chat: its calls have the same."""
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
