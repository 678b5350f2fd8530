"""The contract of approvals: kept beside the records, without revisions.

Any number of nodes ask, through any number of replicas of control on one database, and each approval is used
once by one of them. One suite in `tests/contract/` runs against each implementation.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

from toolgate.model.approvals import ApprovalState, CallApproval, Question

EXPIRES_MS: Final = 15 * 60 * 1000
"""How long a question waits for a decision, and an approval for its call."""
ROUND_MS: Final = 10 * 60 * 1000
"""How long a call that was made may be gone on with."""
MAX_PENDING_EACH: Final = 50
"""Of one principal."""
MAX_PENDING: Final = 1_000
"""Replicas that take one in at the same moment may go past either by one each."""
KEEP_CLOSED: Final = 10_000
KEEP_CLOSED_MS: Final = 30 * 24 * 3600 * 1000

NOTICE_MS: Final = 15_000
"""After so long a question is told of again that nobody has taken note of; then after twice as long."""
NOTICE_MS_MOST: Final = 240_000

Outcome = Literal["granted", "asked", "waiting", "denied", "full"]
"""`granted`: the call may be made, now and once. `asked`: a new question waits; `waiting`: one that is known.
`full`: nothing is asked, since too much waits already."""


class Verdict(NamedTuple):
    """What comes of a question."""

    outcome: Outcome
    approval_id: str = ""
    expires_ms: int = 0
    reason: str = ""
    """Of a denial."""
    in_place: bool = False
    """Who asked has decided itself, with this very answer."""
    console_url: str = ""
    """Where people reach the console of who keeps approvals; empty: not known here."""


class Said(NamedTuple):
    """What the person says who is at the client that calls."""

    approval_id: str
    is_approved: bool


class Desk(Protocol):
    """Approvals as a node sees them."""

    async def ask(self, question: Question, *, new_id: str) -> Verdict:
        """Use the approval there is for this call, or ask for one.

        An approval is used up by the one who is told `granted`, before anything is sent. The same question
        while one waits is that one. A denial is told once; whoever asks after that asks anew. A round of a
        call that was made goes on under its approval, each round once and in its turn.
        """

    async def settle(self, question: Question, said: Said, *, new_id: str) -> Verdict:
        """As `ask`, after the one who asks this question was asked about it in place.

        What was said counts for the approval it was said of, while that waits for this very question: it is
        decided and used, or decided and told, in one step. Whoever said no gets no `granted`, whatever
        others have decided meanwhile.
        """


class Approvals(Desk, Protocol):
    """All there are."""

    async def decide(self, approval_id: str, *, is_approved: bool, by: str, reason: str) -> CallApproval:
        """Decide on one that is pending. Raises NotFound, and Conflict where that is over.

        What is approved may be used for as long as a question waits, from now on.
        """

    async def get(self, approval_id: str) -> CallApproval | None:
        """One of them."""

    async def list(
        self, *, state: ApprovalState | None = None, before: str | None = None, limit: int = 50
    ) -> Sequence[CallApproval]:
        """The newest first; `before` is the id of the last one seen."""

    async def pending(self) -> int:
        """How many wait for a decision."""

    async def expire(self) -> Sequence[CallApproval]:
        """Those whose time is over since this was last asked; each is told of once."""

    async def claim_notices(self, *, limit: int) -> Sequence[CallApproval]:
        """Questions that wait and that others are still to be told of, the oldest first.

        Each is given to one who asks, and again after a while, longer each time, until it was `noticed`.
        """

    async def noticed(self, approval_id: str) -> None:
        """It was told of: nobody is given it again."""

    async def forget(self) -> None:
        """Drop what was closed long ago, and what there is too much of."""
