"""What a scope leaves out, in few words: how many for each reason, and the first of them by name."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from toolgate.policy.scope import Decision, Reason

MAX_NAMED: Final = 64
"""Exclusions that are kept whole. The others are counted."""


@dataclass(frozen=True, slots=True)
class Exclusions:
    """The exclusions of one scope."""

    reasons: Mapping[Reason, int]
    named: tuple[Decision, ...]
    """The first of them: whole servers before single names."""
    fingerprint: int
    """Differs when what is excluded, or why, differs. Comparable within one process only."""

    @property
    def count(self) -> int:
        return sum(self.reasons.values())


def summarize_exclusions(decisions: Iterable[Decision]) -> Exclusions:
    """What `decisions` leave out. The wording of rules is not part of the fingerprint: it may hold details
    of a failure that differ each time."""
    against = [one for one in decisions if one.reason is not None]
    servers = [one for one in against if one.tool is None]
    named = servers[:MAX_NAMED]
    if len(named) < MAX_NAMED:
        named += [one for one in against if one.tool is not None][: MAX_NAMED - len(named)]
    return Exclusions(
        reasons=Counter(one.reason for one in against if one.reason is not None),
        named=tuple(named),
        fingerprint=hash(tuple((one.server_id, one.tool, one.reason) for one in against)),
    )
