"""Approvals: a tool call that an approver has to decide on, and its state."""

import hashlib
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal

ApprovalState = Literal["pending", "approved", "denied", "expired", "used"]
MAX_ARGUMENT_BYTES: Final = 8 * 1024  # of arguments, as approvers see them
MAX_REASON: Final = 500  # characters that an approver writes: a few sentences


_BOUND: Final = attrgetter("principal", "task_id", "server_id", "tool", "arguments_digest", "definition")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call that needs an approval. The approval is valid for exactly its `binding`."""

    principal: str
    task_id: str
    """Empty: the call has no task."""
    server_id: str
    tool: str
    arguments_digest: str
    """SHA-256 of the arguments in canonical JSON, before redaction."""
    definition: str
    """Digest of the tool's definition."""
    arguments: bytes = b"{}"
    """A JSON object for people: secrets are masked, long texts are cut with a mark."""
    why: str = ""
    """The rule that requires the approval."""
    session: str = ""
    door: str = ""
    round: int = 0
    """How often the call was sent before, if its server requested input from its client."""

    @property
    def binding(self) -> str:
        """Equal exactly for the same call of the same definition by the same principal."""
        # Lengths first, so that the parts cannot be shifted.
        bound = "".join(f"{len(part)}:{part}" for part in _BOUND(self))
        return hashlib.sha256(bound.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallApproval:
    """A request for approval and its state."""

    approval_id: str
    question: ApprovalRequest
    created_ms: int
    expires_ms: int
    """When it expires: before the decision, or after an approval for its call."""
    state: ApprovalState = "pending"
    decided_by: str = ""
    decided_ms: int | None = None
    reason: str = ""
    used_ms: int | None = None
    rounds: int = 0
    """How often the call was sent again with input that its server requested."""
