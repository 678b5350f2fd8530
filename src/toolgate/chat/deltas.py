"""One streamed reply, put together from its deltas.

What may be shown at once comes back from `feed`; calls are kept back until the end. Servers do not agree
on how calls are cut up: some put all of them at index 0, some leave ids out, some repeat the name with
every piece. A call begins where the table says so, else its pieces go on:

    the piece has                                                  at an index that is in use
    -------------------------------------------------------------  --------------------------
    an id that another call there has, and no name                 that call goes on
    an id of its own, and a name                                   a call begins
    a name, and `{` after arguments that ended in `}`              a call begins
    anything else                                                  the last call there goes on
"""

from dataclasses import dataclass, field

from toolgate.chat.replies import Reply, parse_reply
from toolgate.model.raw import Members


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What may be shown of a piece: no calls, no role, nothing that says nothing."""

    fields: Members
    """Of its `delta`."""
    choice: Members = field(default_factory=dict)
    """The rest of its choice: `logprobs`, and what else there is."""
    head: Members = field(default_factory=dict)
    """The rest of its chunk: `id`, `model`, `created`, and what else there is."""


class Assembly:
    """One reply, the `nth` of its conversation."""

    def __init__(self, *, nth: int = 0) -> None:
        self._nth = nth

    def feed(self, data: bytes) -> Delta | None:
        """What of a `data:` may be shown; ModelRefused for an error in it, ModelUnavailable for garbage."""
        raise NotImplementedError

    def finish(self) -> Reply:
        """The whole. ModelUnavailable where there is none."""
        return parse_reply(b"", nth=self._nth)
