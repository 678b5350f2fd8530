"""What is written down about a call or a denial. Arguments and results never are; their sizes are."""

from typing import Literal

import msgspec

Outcome = Literal["ok", "tool_error", "error", "denied", "cancelled"]


class CallRecorded(msgspec.Struct, frozen=True, gc=False, tag="call", tag_field="type", omit_defaults=True):
    """One call that was asked for: who, which tool, what came of it."""

    at_ms: int
    door: str
    principal: str
    tool: str
    """The name the caller used: bounded, and never trusted."""
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
    revision: int = 0
    definition: str = ""
    """Digest of the definition the caller was shown."""
    duration_us: int = 0
    argument_bytes: int = 0
    result_bytes: int = 0


class AdminRecorded(msgspec.Struct, frozen=True, tag="admin", tag_field="type", omit_defaults=True):
    """One change to what is governed."""

    at_ms: int
    principal: str
    operation: str
    kind: str
    record_id: str
    revision: int = 0


class CredentialRefused(msgspec.Struct, frozen=True, tag="credential", tag_field="type", omit_defaults=True):
    """A credential that proves nothing was shown. Nothing of it is kept."""

    at_ms: int
    peer: str
    """The address it came from."""
    code: str


class DefinitionChanged(msgspec.Struct, frozen=True, tag="definition", tag_field="type", omit_defaults=True):
    """A tool is no longer what was approved. It is not offered until somebody approves it again."""

    at_ms: int
    server_id: str
    tool: str
    approved: str
    """Digest of the definition in the server's pin."""
    found: str
    """Digest of the definition the server lists now."""


class InvocationEnded(msgspec.Struct, frozen=True, tag="invocation", tag_field="type", omit_defaults=True):
    """One run of a task is over on this node. In the records of its calls, its id is the session."""

    at_ms: int
    principal: str
    task_id: str
    invocation_id: str
    attempt: int
    state: str
    ended_by: str
    module: str = ""
    """SHA-256 of what was run; empty where it did not come to that."""
    duration_ms: int = 0
    tool_calls: int = 0


AuditEvent = CallRecorded | AdminRecorded | CredentialRefused | DefinitionChanged | InvocationEnded
