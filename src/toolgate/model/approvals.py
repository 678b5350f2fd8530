"""Approvals: what a person is asked about one call, and what became of that."""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

ApprovalState = Literal["pending", "approved", "denied", "expired", "used"]
MAX_ARGUMENT_BYTES: Final = 8 * 1024
"""Of arguments as people are shown them."""
MAX_REASON: Final = 500
"""Characters of what a person gives as a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """A call that a person is to agree to. What an approval is good for is what `binding` says, no more."""

    principal: str
    task_id: str
    """Empty: none."""
    server_id: str
    tool: str
    arguments_digest: str
    """SHA-256 of the arguments in canonical JSON, before anything in them was hidden."""
    definition: str
    """Digest of the tool's definition."""
    arguments: bytes = b"{}"
    """One JSON object for people: secrets are masked, and what is too long is cut, visibly."""
    why: str = ""
    """The rule that asks for it."""
    session: str = ""
    door: str = ""
    round: int = 0
    """Of a call in which its server asked its client something: how often it was sent before."""

    @property
    def binding(self) -> str:
        """Equal exactly where the same principal makes the same call of the same definition."""
        bound = (
            self.principal,
            self.task_id,
            self.server_id,
            self.tool,
            self.arguments_digest,
            self.definition,
        )
        # Lengths first: where one part ends cannot be a matter of opinion.
        return hashlib.sha256("".join(f"{len(part)}:{part}" for part in bound).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallApproval:
    """A question and how it stands."""

    approval_id: str
    question: ApprovalRequest
    created_ms: int
    expires_ms: int
    """Until then somebody may decide; once approved, until then the call may be made."""
    state: ApprovalState = "pending"
    decided_by: str = ""
    decided_ms: int | None = None
    reason: str = ""
    used_ms: int | None = None
    rounds: int = 0
    """Of a call that was made: how often it was sent again with answers to its server's questions."""
